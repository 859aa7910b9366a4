//! The protocol between commands and daemons: one line of JSON each way over a Unix socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The longest request in bytes.
const REQUEST_MAX: u64 = 4096;
/// Time limit for the rest of a request that was begun.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// A request to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Report the state.
    Report,
    /// End the session.
    Disconnect {
        /// Even if the device is in use or the target lost.
        force: bool,
    },
    /// Use one more interface.
    AddLink {
        /// Its name.
        link: String,
    },
    /// Stop using an interface.
    RemoveLink {
        /// Its name.
        link: String,
    },
    /// Make an export larger, and tell its hosts.
    Resize {
        /// Its name.
        export: String,
        /// Bytes; `None`: the current size of its file or device.
        size: Option<u64>,
    },
}

/// Asks the daemon that listens at `socket`.
///
/// # Errors
/// `ConnectionRefused` or `NotFound` if there is none; `TimedOut` if it does not answer in time.
pub(crate) fn ask(socket: &Path, request: &Request, timeout: Duration) -> io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Answers requests at `socket` for ever, each in a thread of its own, so that a slow one does not
/// delay others.
///
/// # Errors
/// If the socket can't be made.
pub(crate) fn serve(
    socket: &Path,
    answer: impl Fn(Request) -> Value + Clone + Send + 'static,
) -> io::Result<()> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            let answer = answer.clone();
            let spawned =
                std::thread::Builder::new().name("control-answer".into()).spawn(move || {
                    if let Err(error) = answer_one(&stream, answer) {
                        tracing::debug!(%error, "control connection");
                    }
                });
            if let Err(error) = spawned {
                tracing::warn!(%error, "no thread to answer a control request");
            }
        }
    })?;
    Ok(())
}

fn answer_one(stream: &UnixStream, answer: impl Fn(Request) -> Value) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line)?;
    let value = match serde_json::from_str(&line) {
        Ok(request) => answer(request),
        Err(error) => json!({ "error": format!("not a request: {error}") }),
    };
    let mut line = serde_json::to_vec(&value)?;
    line.push(b'\n');
    { stream }.write_all(&line)
}
