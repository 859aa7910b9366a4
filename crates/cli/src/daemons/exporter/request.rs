//! Requests and responses of HTTP, as far as metrics need them: GET and HEAD, one for each
//! connection.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::metrics::Form;

/// The longest head of a request in bytes.
const HEAD_MAX: usize = 8 << 10;
/// The most lines in it.
const HEADERS_MAX: usize = 64;
/// Time limit for a request, from the first byte to the last.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a response, for readers that take it slowly.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The path, without what follows a question mark.
    pub(super) path: String,
    /// The form of metrics that is wanted.
    pub(super) form: Form,
    /// Whether only the head of the response is wanted.
    pub(super) is_head: bool,
}

/// A response.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) status: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Response {
    /// A message in words.
    pub(super) fn plain(status: &'static str, message: &str) -> Self {
        let body = format!("{message}\n");
        Self { status, content_type: "text/plain; charset=utf-8", body }
    }

    fn head(&self) -> String {
        let Self { status, content_type, body } = self;
        // A page is shown as it is: whatever is in it loads nothing and runs nothing.
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\
             Allow: GET, HEAD\r\nConnection: close\r\n\r\n",
            body.len()
        )
    }
}

/// Reads a request; the inner error is the answer to one that makes no sense.
///
/// # Errors
/// The connection has ended, or the request has not come in time.
pub(super) fn read(connection: &Connection) -> io::Result<Result<Request, Response>> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let (mut head, mut len) = ([0; HEAD_MAX], 0);
    loop {
        connection.limit(deadline)?;
        let read = match { connection }.read(&mut head[len..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        len += read;
        if let Some(request) = parse(&head[..len]) {
            return Ok(request);
        }
        if len == HEAD_MAX {
            let status = "431 Request Header Fields Too Large";
            return Ok(Err(Response::plain(status, "the head of the request is too long")));
        }
    }
}

/// Parses the head of a request; `None` if it is not there as a whole.
fn parse(head: &[u8]) -> Option<Result<Request, Response>> {
    let refuse = |status, message| Some(Err(Response::plain(status, message)));
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return refuse("400 Bad Request", "that is no request"),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return refuse("405 Method Not Allowed", "only GET and HEAD are possible"),
    };
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let accepts = |header: &httparse::Header<'_>| {
        let value = String::from_utf8_lossy(header.value).to_ascii_lowercase();
        header.name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    };
    let is_open = request.headers.iter().any(accepts);
    let form = if is_open { Form::OpenMetrics } else { Form::Prometheus };
    Some(Ok(Request { path: path.to_owned(), form, is_head }))
}

/// Sends a response.
///
/// # Errors
/// The connection has ended, or its reader is too slow.
pub(super) fn respond(
    connection: &Connection,
    response: &Response,
    is_head: bool,
) -> io::Result<()> {
    let mut bytes = response.head().into_bytes();
    if !is_head {
        bytes.extend_from_slice(response.body.as_bytes());
    }
    let deadline = Instant::now() + RESPONSE_TIMEOUT;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        connection.limit(deadline)?;
        match { connection }.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    connection.end_sending()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Option<Result<Request, &'static str>> {
        Some(parse(head.as_bytes())?.map_err(|response| response.status))
    }

    #[test]
    fn requests_of_prometheus_and_browsers_are_read_once_they_are_whole() {
        let head = "GET /metrics?x=1 HTTP/1.1\r\nHost: a:1\r\n\
            Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n";
        let request = Request { path: "/metrics".into(), form: Form::OpenMetrics, is_head: false };
        assert_eq!(parsed(head), Some(Ok(request)));
        assert!((0..head.len()).all(|len| parsed(&head[..len]).is_none()));
        let request = Request { path: "/".into(), form: Form::Prometheus, is_head: true };
        assert_eq!(parsed("HEAD / HTTP/1.0\r\n\r\n"), Some(Ok(request)));
    }

    #[test]
    fn anything_else_is_refused() {
        let refused = |head: &str| parsed(head).unwrap().unwrap_err();
        assert_eq!(refused("POST / HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        for head in ["\0\0\0\0", "GET  HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\na b\r\n\r\n"] {
            assert_eq!(refused(head), "400 Bad Request", "{head:?}");
        }
        let lines = "a: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{lines}\r\n")), "400 Bad Request");
    }
}
