//! The server: a thread for each address, and one for each connection.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::connection::Connection;
use super::request::{self, Request, Response};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::places::{Place, Places};

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Makes the response to a request.
pub(super) type Answer = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// An address to answer at.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    /// With its path.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at an address; port 0 means any free one.
    ///
    /// # Errors
    /// `Link`: the port is taken, or the address is not this machine's.
    pub(super) fn tcp(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).context(Code::Link, address)?;
        Ok(Self::Tcp(listener))
    }

    /// Listens at a Unix socket, in the place of one that nobody listens at any more.
    ///
    /// # Errors
    /// `Usage` if the path is that of something else, or of another process.
    pub(super) fn unix(path: &Path) -> Result<Self> {
        let about = path.display();
        let usage = |what| Error::new(Code::Usage, format!("{about}: {what}"));
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(Code::Permission, &about),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(usage("there is something else than a socket"));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(usage("another process listens there"));
            }
            Ok(_) => std::fs::remove_file(path).context(Code::Permission, &about)?,
        }
        let listener = UnixListener::bind(path).context(Code::Permission, about)?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    /// Where it is, for people.
    pub(super) fn place(&self) -> io::Result<String> {
        match self {
            Self::Tcp(listener) => Ok(format!("http://{}/metrics", listener.local_addr()?)),
            Self::Unix(_, path) => Ok(format!("unix:{}", path.display())),
        }
    }

    fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Tcp(listener) => Ok(Connection::Tcp(listener.accept()?.0)),
            Self::Unix(listener, _) => Ok(Connection::Unix(listener.accept()?.0)),
        }
    }
}

/// Answers at an address until the process ends. All addresses share the places.
///
/// # Errors
/// There is no thread.
pub(super) fn serve(
    listener: Listener,
    connections: &Arc<Places<Connection>>,
    answer: &Answer,
) -> io::Result<()> {
    let (connections, answer) = (Arc::clone(connections), Arc::clone(answer));
    let accept = move || loop {
        match listener.accept() {
            // Otherwise all are being answered: who asks again will be.
            Ok(connection) => {
                if let Ok(place) = connections.admit(connection) {
                    answer_apart(place, Arc::clone(&answer));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a connection can't be accepted");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    };
    thread::Builder::new().name("accept".into()).spawn(accept).map(drop)
}

fn answer_apart(place: Place<Connection>, answer: Answer) {
    let talk = move || {
        if let Err(error) = talk(&place, &answer) {
            tracing::debug!(%error, "connection");
        }
    };
    if let Err(error) = thread::Builder::new().name("answer".into()).spawn(talk) {
        tracing::warn!(%error, "no thread to answer a request");
    }
}

fn talk(place: &Place<Connection>, answer: &Answer) -> io::Result<()> {
    let asked = request::read(&place.connection)?;
    place.answer();
    let (response, is_head) = match asked {
        Ok(asked) => (answer(&asked), asked.is_head),
        Err(refusal) => (refusal, false),
    };
    place.tell();
    request::respond(&place.connection, &response, is_head)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::shared::places::PLACES;

    /// A server at a socket, and its path.
    fn server(dir: &Path) -> PathBuf {
        let path = dir.join("http.sock");
        let listener = Listener::unix(&path).unwrap();
        let answer: Answer = Arc::new(|request| Response::plain("200 OK", &request.path));
        serve(listener, &Arc::default(), &answer).unwrap();
        path
    }

    fn connect(path: &Path) -> UnixStream {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn said(mut stream: UnixStream, head: &[u8]) -> String {
        stream.write_all(head).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn requests_are_answered_and_a_head_has_no_body() {
        let dir = tempfile::tempdir().unwrap();
        let path = server(dir.path());
        let text = said(connect(&path), b"GET /a HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n/a\n"));
        let text = said(connect(&path), b"HEAD /a HTTP/1.1\r\n\r\n");
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        let text = said(connect(&path), b"DELETE /a HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
        // As long as a head may be.
        let text = said(connect(&path), &[b'G'; 8 << 10]);
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }

    #[test]
    fn those_who_say_nothing_keep_nobody_out_and_are_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = server(dir.path());
        let mut silent: Vec<_> = (0..2 * PLACES).map(|_| connect(&path)).collect();
        // One that never comes to an end.
        silent[0].write_all(b"GET / HT").unwrap();
        assert!(said(connect(&path), b"GET /b HTTP/1.1\r\n\r\n").ends_with("/b\n"));
        for stream in &mut silent {
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn those_who_ask_and_do_not_read_keep_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        let listener = Listener::unix(&path).unwrap();
        // More than a socket takes for a client that does not read.
        let body = "a".repeat(8 << 20);
        let answer: Answer = Arc::new(move |request| match request.path.as_str() {
            "/long" => Response::plain("200 OK", &body),
            path => Response::plain("200 OK", path),
        });
        serve(listener, &Arc::default(), &answer).unwrap();
        let ask_for_long = || {
            let mut stream = connect(&path);
            stream.write_all(b"GET /long HTTP/1.1\r\n\r\n").unwrap();
            // It is being answered.
            stream.read_exact(&mut [0]).unwrap();
            stream
        };
        let begun = std::time::Instant::now();
        let unread: Vec<_> = (0..PLACES).map(|_| ask_for_long()).collect();
        let mut attempts = (0..).map(|_| {
            let mut text = String::new();
            let mut stream = connect(&path);
            let asked = stream.write_all(b"GET /b HTTP/1.1\r\n\r\n");
            let read = asked.and_then(|()| stream.read_to_string(&mut text));
            read.is_ok() && text.ends_with("/b\n")
        });
        assert!(attempts.any(|is_answered| is_answered));
        let took = begun.elapsed();
        assert!(took < request::RESPONSE_TIMEOUT, "they had to go before: {took:?}");
        drop(unread);
    }

    #[test]
    fn a_socket_takes_the_place_of_a_dead_one_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(Listener::unix(&path).unwrap_err().code, Code::Usage);
        assert!(listener.place().unwrap().ends_with("http.sock"));
        let other = dir.path().join("file");
        std::fs::write(&other, "").unwrap();
        assert_eq!(Listener::unix(&other).unwrap_err().code, Code::Usage);
        assert!(other.exists());
    }
}
