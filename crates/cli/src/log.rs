//! The log of this process: standard error, until a daemon opens a permanent log.
//!
//! A daemon's log outlives the daemon, for it explains its end. With systemd it is the journal;
//! without, or if the environment names a directory, it is a file for each export:
//!
//! ```text
//! /var/log/tyche/EXPORT.log    all sessions of the export, one after the other
//! /var/log/tyche/EXPORT.log.1  the previous file, once the first is 1 MiB long
//! ```
//!
//! Logging never blocks: the log may lie on the very disk that the daemon serves. A thread writes
//! the entries; entries that it can't write for long are lost.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use uuid::Uuid;

use crate::error::{Code, Context, Result};
use crate::runtime;

/// The socket of systemd's journal.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// The longest file, in bytes; there are two for each export.
const FILE_MAX: u64 = 1 << 20;
/// Maximum number of lines that wait to be written.
const LINES_MAX: usize = 1024;
/// Time limit for the last lines when the process ends.
const FLUSH: Duration = Duration::from_secs(1);

/// The queue of the writing thread, if there is one.
static QUEUE: OnceLock<Queue> = OnceLock::new();

struct Queue {
    entries: SyncSender<Entry>,
    /// Whether the place of the log adds timestamps of its own.
    has_clock: bool,
}

enum Entry {
    Line(Level, Vec<u8>),
    /// Dropped when all earlier entries are written.
    Mark {
        _until: SyncSender<()>,
    },
}

/// Sends the log of the session's daemon to its permanent place from now on. Returns how to read
/// it: a file, or the command that shows it.
///
/// # Errors
/// If the file can't be made, or the log is open already.
pub(crate) fn open(export: &str, session: Uuid) -> Result<String> {
    let directory = runtime::logs();
    let (place, name, has_clock) = match &directory {
        None if Path::new(JOURNAL).exists() => {
            let journal = Journal::open(Path::new(JOURNAL), export, session);
            let journal = journal.context(Code::Other, JOURNAL)?;
            let name = format!("journalctl TYCHE_SESSION={session}");
            (Place::Journal(journal), name, true)
        }
        directory => {
            let directory = directory.as_deref().unwrap_or(Path::new(runtime::LOGS));
            runtime::create(directory)?;
            let path = directory.join(format!("{}.log", runtime::plain(export)));
            let name = path.display().to_string();
            (Place::File(LogFile::open(path).context(Code::Other, &name)?), name, false)
        }
    };
    let (entries, queue) = sync_channel(LINES_MAX);
    std::thread::Builder::new().name("log".into()).spawn(move || keep(place, &queue))?;
    let queue = Queue { entries, has_clock };
    QUEUE.set(queue).map_err(|_| "it is open").context(Code::Other, "log")?;
    Ok(name)
}

/// Waits until all entries are written, up to a time limit.
pub(crate) fn flush() {
    let Some(queue) = QUEUE.get() else { return };
    let (until, written) = sync_channel(1);
    if queue.entries.try_send(Entry::Mark { _until: until }).is_ok() {
        let _ = written.recv_timeout(FLUSH);
    }
}

/// The body of the writing thread.
fn keep(mut place: Place, queue: &Receiver<Entry>) {
    while let Ok(entry) = queue.recv() {
        let Entry::Line(level, line) = entry else { continue };
        // There is no other place to report that the log is full or gone.
        let _ = match &mut place {
            Place::File(file) => file.write(&line),
            Place::Journal(journal) => journal.write(level, &line),
        };
    }
}

enum Place {
    File(LogFile),
    Journal(Journal),
}

/// A log file that is replaced when it is too long.
struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::options().create(true).append(true).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.file.metadata()?.len() + line.len() as u64 > FILE_MAX {
            // Another session of the export may have replaced it already.
            if runtime::is_at(&self.file, &self.path) {
                fs::rename(&self.path, self.path.with_extension("log.1"))?;
            }
            *self = Self::open(std::mem::take(&mut self.path))?;
        }
        self.file.write_all(line)
    }
}

/// systemd's journal, by its native protocol.
struct Journal {
    socket: UnixDatagram,
    /// The fields common to all entries.
    fields: Vec<u8>,
}

impl Journal {
    fn open(path: &Path, export: &str, session: Uuid) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        let mut fields = Vec::new();
        field(&mut fields, "SYSLOG_IDENTIFIER", b"tyche");
        field(&mut fields, "TYCHE_EXPORT", export.as_bytes());
        field(&mut fields, "TYCHE_SESSION", session.to_string().as_bytes());
        Ok(Self { socket, fields })
    }

    fn write(&self, level: Level, line: &[u8]) -> io::Result<()> {
        let mut entry = self.fields.clone();
        field(&mut entry, "PRIORITY", priority(level));
        field(&mut entry, "MESSAGE", line.trim_ascii());
        self.socket.send(&entry).map(drop)
    }
}

/// Adds a field, in the form that allows any content.
fn field(entry: &mut Vec<u8>, name: &str, value: &[u8]) {
    entry.extend_from_slice(name.as_bytes());
    entry.push(b'\n');
    entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    entry.extend_from_slice(value);
    entry.push(b'\n');
}

/// The syslog priority of a level.
fn priority(level: Level) -> &'static [u8] {
    match level {
        Level::ERROR => b"3",
        Level::WARN => b"4",
        Level::INFO => b"6",
        _ => b"7",
    }
}

/// The factory of log lines.
pub(crate) struct Log;

impl MakeWriter<'_> for Log {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(Level::INFO)
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> Line {
        Line(*meta.level())
    }
}

/// One line of the log.
pub(crate) struct Line(Level);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(queue) = QUEUE.get() else { return io::stderr().write(line) };
        // A line is lost if the queue is full.
        let _ = queue.entries.try_send(Entry::Line(self.0, line.to_owned()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Timestamps of lines.
pub(crate) struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        if QUEUE.get().is_some_and(|queue| queue.has_clock) {
            return Ok(());
        }
        SystemTime.format_time(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_replaced_and_the_one_before_it_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1.log");
        let mut log = LogFile::open(path.clone()).unwrap();
        let mut other = LogFile::open(path.clone()).unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        for _ in 0..2 * FILE_MAX / 1024 {
            log.write(&line).unwrap();
        }
        other.write(b"of another session\n").unwrap();
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!(length(&dir.path().join("vm1.log.1")), FILE_MAX);
        // The other session has noticed, and replaced nothing too early.
        assert!(fs::read(&path).unwrap().ends_with(b"of another session\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_entry_of_the_journal_names_the_session_and_may_have_several_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        let session = Uuid::nil().to_string();
        let journal = Journal::open(&path, "vm1", Uuid::nil()).unwrap();
        journal.write(Level::WARN, b" WARN a\nb\n").unwrap();
        let mut entry = [0; 1024];
        let len = journald.recv(&mut entry).unwrap();
        let wanted = [
            &b"SYSLOG_IDENTIFIER\n\x05\0\0\0\0\0\0\0tyche\n"[..],
            b"TYCHE_EXPORT\n\x03\0\0\0\0\0\0\0vm1\n",
            b"TYCHE_SESSION\n\x24\0\0\0\0\0\0\0",
            session.as_bytes(),
            b"\nPRIORITY\n\x01\0\0\0\0\0\0\x004\n",
            b"MESSAGE\n\x08\0\0\0\0\0\0\0WARN a\nb\n",
        ];
        assert_eq!(entry[..len], wanted.concat());
    }
}
