//! The protocol between commands and daemons: one line of JSON each way over a Unix socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, recv};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tyche_wake::Timed;

pub(crate) use crate::shared::control_socket::{REPORT_TIMEOUT, is_timeout};
use crate::shared::control_socket::{bind, may_change, reach};
use crate::shared::error::{Code, Error, ErrorReport, Result};
use crate::shared::export::Export;
use crate::shared::host::AddedHost;
use crate::shared::places::{PLACES, Place, Places};
use crate::shared::report::{
    AccessChanged, ExportChanged, ExportCloned, ExportResized, HostChanged, KnownHosts, PlanReport,
    SessionReport, TargetLinkChanged, TargetReport,
};
use crate::shared::setting::Setting;

/// The longest request in bytes: the text of a configuration.
const REQUEST_MAX: u64 = 4 << 20;
/// The same for those who may ask for reports only.
const REPORT_REQUEST_MAX: u64 = 4 << 10;
/// Time limit for a request, from the connection on.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for an answer to be taken, however slowly it is read.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A request to a daemon.
pub(crate) trait Request: DeserializeOwned {
    /// Whether it changes nothing: readers may send it, too ([`readers`](crate::shared::readers)).
    fn is_report(&self) -> bool;
}

impl Request for SessionRequest {
    fn is_report(&self) -> bool {
        matches!(self, Self::Report)
    }
}

impl Request for TargetRequest {
    fn is_report(&self) -> bool {
        matches!(self, Self::Report | Self::Hosts)
    }
}

/// A request to the daemon of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SessionRequest {
    /// Report the state.
    Report,
    /// End the session.
    Disconnect {
        /// Even if the device is in use or the target lost.
        force: bool,
    },
    /// Begin anew as the program that is installed now, and go on with the device.
    Reload,
    /// End, and leave the device in use to the next daemon.
    Leave,
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
}

/// A request to a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum TargetRequest {
    /// Report the state.
    Report,
    /// Report the hosts that are known by their keys.
    Hosts,
    /// Make an export larger, and tell its hosts.
    Resize {
        /// Its name.
        export: String,
        /// Bytes; `None`: the current size of its file or device.
        size: Option<u64>,
    },
    /// Serve one more export, from now on and after restarts.
    AddExport {
        /// The export.
        export: Box<Export>,
        /// Whether it may be another disk than the last one of that name.
        accept_changed_disk: bool,
        /// The file that is made for it, whose path the target knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        new_file: Option<NewFile>,
    },
    /// Clone the disk of an export, and serve that, from now on and after restarts.
    CloneExport {
        /// The export.
        export: String,
        /// The name of the clone.
        clone: String,
        /// Whether it is a snapshot, which nobody may write.
        read_only: bool,
    },
    /// Serve an export no more that was added so.
    RemoveExport {
        /// Its name.
        export: String,
        /// Even if hosts have it connected.
        force: bool,
        /// Its file or volume is deleted, which is in a pool.
        #[serde(default, skip_serializing_if = "is_false")]
        delete: bool,
        /// Time limit for requests that are with its disk, in milliseconds.
        limit_ms: u64,
    },
    /// Give an export that was added so another name.
    RenameExport {
        /// Its name.
        export: String,
        /// The other name.
        to: String,
    },
    /// Change properties of an export that was added so.
    SetExport {
        /// Its name.
        export: String,
        /// The changes.
        settings: Vec<Setting>,
    },
    /// Serve one more link, from now on and after restarts.
    AddLink {
        /// Its name.
        link: String,
    },
    /// Serve a link no more.
    RemoveLink {
        /// Its name.
        link: String,
        /// Even if it is the last one, or the only one of a session.
        force: bool,
        /// Time limit for its end, in milliseconds.
        limit_ms: u64,
    },
    /// Let one more host in by its key, from now on and after restarts.
    AddHost {
        /// The host.
        host: AddedHost,
    },
    /// Let a host in no more that was added so.
    RemoveHost {
        /// Its name.
        host: String,
    },
    /// Say what reading this configuration would do.
    Plan {
        /// The file, for messages.
        path: PathBuf,
        /// Its text.
        text: String,
    },
    /// Change which hosts may have an export.
    Access {
        /// The export.
        export: String,
        /// The host: its name at the target, or its UUID; `None`: all, if decisions are taken back.
        host: Option<String>,
        /// The change.
        change: AccessChange,
    },
}

/// A file or volume that is made for an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFile {
    /// The pool.
    pub(crate) pool: String,
    /// Bytes.
    pub(crate) size: u64,
}

/// Requests without it are understood by earlier versions.
fn is_false(value: &bool) -> bool {
    !value
}

impl TargetRequest {
    /// The change that it asks for, as the command that asks says it; `None`: it changes nothing.
    pub(crate) fn change(&self) -> Option<String> {
        Some(match self {
            Self::Report | Self::Hosts | Self::Plan { .. } => return None,
            Self::AddHost { host: AddedHost { name, key, .. } } => format!("host add {name} {key}"),
            Self::RemoveHost { host } => format!("host remove {host}"),
            Self::AddLink { link } => format!("link add {link}"),
            Self::RemoveLink { link, force, .. } => {
                format!("link del {link}{}", if *force { " --force" } else { "" })
            }
            Self::Resize { export, size: Some(size) } => format!("export resize {export} {size}"),
            Self::Resize { export, size: None } => format!("export resize {export}"),
            Self::AddExport { export, new_file: Some(NewFile { pool, size }), .. } => {
                format!("export add {} --pool {pool} --size {size}", export.name)
            }
            Self::AddExport { export, .. } => {
                format!("export add {}={}", export.name, export.path)
            }
            Self::CloneExport { export, clone, read_only } => {
                let verb = if *read_only { "snapshot" } else { "clone" };
                format!("export {verb} {export} {clone}")
            }
            Self::RemoveExport { export, force, delete, .. } => {
                let force = if *force { " --force" } else { "" };
                format!("export remove {export}{force}{}", if *delete { " --delete" } else { "" })
            }
            Self::RenameExport { export, to } => format!("export rename {export} {to}"),
            Self::SetExport { export, settings } => {
                let settings: Vec<_> = settings.iter().map(Setting::to_string).collect();
                format!("export set {export} {}", settings.join(" "))
            }
            Self::Access { export, host, change } => {
                let host = host.as_ref().map(|host| format!(" {host}")).unwrap_or_default();
                format!("export {} {export}{host}", change.name())
            }
        })
    }
}

/// A change of the hosts that may have an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum AccessChange {
    /// The host may have it.
    Allow,
    /// It may not, and its sessions end.
    Deny,
    /// The same, answered when nothing of the host is with the disk any more.
    Evict {
        /// Time limit in milliseconds.
        limit_ms: u64,
    },
    /// The configuration decides again.
    Revert,
}

impl AccessChange {
    /// The command that asks for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Evict { .. } => "evict",
            Self::Revert => "revert",
        }
    }
}

/// The answer of a daemon.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum ControlAnswer {
    /// To [`SessionRequest::Report`].
    Session(Box<SessionReport>),
    /// To [`TargetRequest::Report`].
    Target(TargetReport),
    /// To [`TargetRequest::Hosts`].
    Hosts(KnownHosts),
    /// To [`TargetRequest::Resize`].
    Resized(ExportResized),
    /// To [`TargetRequest::AddExport`] and other changes of the exports.
    Changed(ExportChanged),
    /// To [`TargetRequest::CloneExport`].
    Cloned(ExportCloned),
    /// To [`TargetRequest::AddLink`] and [`TargetRequest::RemoveLink`].
    Link(TargetLinkChanged),
    /// To [`TargetRequest::AddHost`] and [`TargetRequest::RemoveHost`].
    Host(HostChanged),
    /// To [`TargetRequest::Plan`].
    Plan(PlanReport),
    /// To [`TargetRequest::Access`].
    Access(AccessChanged),
    /// To the other requests, once they are done.
    Done {},
    /// The request failed.
    Refused(ErrorReport),
}

impl ControlAnswer {
    /// Whether a request has changed something; false also if it has failed.
    pub(crate) fn has_changed(&self) -> bool {
        match self {
            Self::Changed(it) => it.changed,
            Self::Cloned(it) => it.changed,
            Self::Link(it) => it.changed,
            Self::Host(it) => it.changed,
            Self::Resized(_) | Self::Access(_) | Self::Done {} => true,
            Self::Session(_) | Self::Target(_) | Self::Hosts(_) => false,
            Self::Plan(_) | Self::Refused(_) => false,
        }
    }

    /// The answer to a request that has failed.
    pub(crate) fn refused(code: Code, message: &str) -> Self {
        Self::Refused(Error::new(code, message).report())
    }
}

impl From<Result<Self>> for ControlAnswer {
    fn from(result: Result<Self>) -> Self {
        result.unwrap_or_else(|error| Self::Refused(error.report()))
    }
}

/// The answer to a request that has no result.
#[derive(Deserialize)]
pub(crate) struct Done {}

/// Asks the daemon that listens at `socket`. The inner result is that of the request.
///
/// # Errors
/// `ConnectionRefused` or `NotFound` if there is none; `TimedOut` if it does not answer in time;
/// `InvalidData` if the answer makes no sense.
pub(crate) fn ask<T: DeserializeOwned>(
    socket: &Path,
    request: &impl Serialize,
    timeout: Duration,
) -> io::Result<Result<T>> {
    begin(socket, request, timeout)?.answer(timeout)
}

/// Time after which a daemon that is to end its session is taken for stopped or stuck. Longer than
/// that for a report: a machine that is short of CPU time, or whose disks are slow, may keep it
/// waiting, and who is told that it is stuck kills it.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

/// As [`ask`], for requests to a session that may take long: an answer is waited for only as long
/// as the daemon still reports, each time within [`SILENCE`].
///
/// # Errors
/// As [`ask`]; `TimedOut` also as soon as the daemon does not report in time.
pub(crate) fn ask_patiently<T: DeserializeOwned>(
    socket: &Path,
    request: &SessionRequest,
    timeout: Duration,
) -> io::Result<Result<T>> {
    let deadline = Instant::now() + timeout;
    let mut asked = begin(socket, request, REPORT_TIMEOUT)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match asked.answer(left.min(REPORT_TIMEOUT).max(Duration::from_millis(1))) {
            Err(error) if is_timeout(&error) && !left.is_zero() => {}
            answered => return answered,
        }
        // It may have ended, after an answer that is read next.
        match ask::<serde::de::IgnoredAny>(socket, &SessionRequest::Report, SILENCE) {
            Err(error) if is_timeout(&error) => return Err(error),
            _ => {}
        }
    }
}

/// A request that was sent.
struct Asked {
    stream: BufReader<UnixStream>,
    /// The part of the answer that was read.
    line: String,
}

/// Connects to a daemon and sends it a request.
fn begin(socket: &Path, request: &impl Serialize, timeout: Duration) -> io::Result<Asked> {
    let mut stream = reach(socket, timeout)?;
    stream.write_all(&line(request)?)?;
    Ok(Asked { stream: BufReader::new(stream), line: String::new() })
}

impl Asked {
    /// Waits for the answer. May be called again after a timeout.
    fn answer<T: DeserializeOwned>(&mut self, timeout: Duration) -> io::Result<Result<T>> {
        self.stream.get_ref().set_read_timeout(Some(timeout))?;
        self.stream.read_line(&mut self.line).map_err(|error| match is_timeout(&error) {
            true => {
                let limit = timeout.as_secs_f64();
                io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit} s"))
            }
            false => error,
        })?;
        Ok(parse_answer(&self.line)?)
    }
}

/// Parses a daemon's answer, which may be an error.
pub(crate) fn parse_answer<T: DeserializeOwned>(line: &str) -> serde_json::Result<Result<T>> {
    match serde_json::from_str::<ErrorReport>(line) {
        Ok(refusal) => Ok(Err(refusal.into())),
        Err(_) => serde_json::from_str(line).map(Ok),
    }
}

/// The command that waits for the answer to a request.
pub(crate) struct Asker<'a>(&'a UnixStream);

impl Asker<'_> {
    /// Whether it still waits. It sends nothing more, so what can be read is its end.
    pub(crate) fn waits(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(recv(self.0, &mut [0], flags), Err(Errno::AGAIN | Errno::INTR))
    }

    /// The user whose process asks; none if the kernel does not say.
    pub(crate) fn uid(&self) -> Option<u32> {
        socket_peercred(self.0).ok().map(|it| it.uid.as_raw())
    }
}

/// Answers requests at `socket` for ever, each in a thread of its own, so that a slow one does not
/// delay others. A socket that others remove is made anew within some seconds: without one, no
/// command reaches the daemon. `removed` is called before, for what was removed with it, and says
/// whether the socket's directory is this process's.
///
/// # Errors
/// If the socket can't be made.
pub(crate) fn serve<R: Request>(
    socket: &Path,
    removed: impl Fn() -> bool + Send + 'static,
    answer: impl Fn(R, &Asker<'_>) -> ControlAnswer + Clone + Send + 'static,
) -> io::Result<()> {
    let mut bound = bind(socket)?;
    let (socket, readers) = (socket.to_owned(), Places::default());
    std::thread::Builder::new().name("control".into()).spawn(move || {
        loop {
            match bound.accept() {
                Ok(Some(stream)) => answer_apart(stream, &readers, answer.clone()),
                Ok(None) if bound.is_at(&socket) => {}
                Ok(None) if !removed() => {}
                Ok(None) => match bind(&socket) {
                    Ok(anew) => {
                        tracing::warn!("{} was removed: made anew", socket.display());
                        bound = anew;
                    }
                    Err(error) => tracing::debug!(%error, "control socket"),
                },
                Err(error) => {
                    tracing::warn!(%error, "a control request can't be accepted");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    })?;
    Ok(())
}

/// Answers a request in a thread of its own. `readers`: those that are being answered and may only
/// look.
fn answer_apart<R: Request>(
    stream: UnixStream,
    readers: &Places<UnixStream>,
    answer: impl Fn(R, &Asker<'_>) -> ControlAnswer + Send + 'static,
) {
    let guest = if may_change(&stream) {
        Guest::Owner(stream)
    } else {
        match readers.admit(stream) {
            Ok(place) => Guest::Reader(place),
            Err(stream) => return turn_away(stream),
        }
    };
    let spawned = std::thread::Builder::new().name("control-answer".into()).spawn(move || {
        if let Err(error) = answer_one(&guest, answer) {
            tracing::debug!(%error, "control connection");
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to answer a control request");
    }
}

/// Tells a reader that there is no place for it.
fn turn_away(mut stream: UnixStream) {
    let message = format!("{PLACES} others ask at the moment: try again");
    let refusal = line(&ControlAnswer::refused(Code::Unreachable, &message));
    // It goes into the buffer of a new connection.
    let prompt = stream.set_nonblocking(true);
    if let Err(error) = prompt.and(refusal).and_then(|line| stream.write_all(&line)) {
        tracing::debug!(%error, "control connection");
    }
}

/// The client of a connection.
enum Guest {
    /// It may change something, and is not bounded in number: it is root.
    Owner(UnixStream),
    /// It may only look, and has one of the places for those who do.
    Reader(Place<UnixStream>),
}

impl Guest {
    fn stream(&self) -> &UnixStream {
        match self {
            Self::Owner(stream) => stream,
            Self::Reader(place) => &place.connection,
        }
    }

    /// Its place, if it has one.
    fn place(&self) -> Option<&Place<UnixStream>> {
        match self {
            Self::Owner(_) => None,
            Self::Reader(place) => Some(place),
        }
    }
}

fn answer_one<R: Request>(
    guest: &Guest,
    answer: impl Fn(R, &Asker<'_>) -> ControlAnswer,
) -> io::Result<()> {
    let (stream, may_change) = (guest.stream(), guest.place().is_none());
    let max = if may_change { REQUEST_MAX } else { REPORT_REQUEST_MAX };
    let timed = Timed::new(stream, REQUEST_TIMEOUT);
    let mut request = String::new();
    BufReader::new(timed.take(max)).read_line(&mut request)?;
    guest.place().into_iter().for_each(Place::answer);
    let answer = match serde_json::from_str::<R>(&request) {
        Ok(request) if may_change || request.is_report() => answer(request, &Asker(stream)),
        Ok(_) => ControlAnswer::refused(Code::Permission, "only root may change anything"),
        Err(error) => ControlAnswer::refused(Code::Other, &format!("not a request: {error}")),
    };
    let line = line(&answer)?;
    guest.place().into_iter().for_each(Place::tell);
    Timed::new(stream, ANSWER_TIMEOUT).write_all(&line)
}

/// A request or an answer as it is sent.
fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod corpus;

#[cfg(test)]
mod tests;
