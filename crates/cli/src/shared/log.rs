//! The log of this process: standard error, until a daemon opens a permanent log.
//!
//! Logging never blocks and never fails: whatever the log is, it may be full, closed or stopped,
//! and it may lie on the very disk that a daemon serves. So lines wait in a bounded queue, and a
//! thread writes them. Those that find the queue full, or can't be written, are lost; the log says
//! how many as soon as it can be written again.
//!
//! A daemon's log outlives the daemon, for it explains its end. With systemd it is the journal;
//! without, or if the environment names a directory, it is a file for each export:
//!
//! ```text
//! /var/log/tyche/EXPORT.log    all sessions of the export, one after the other
//! /var/log/tyche/EXPORT.log.1  the previous file, once the first is 1 MiB long
//! ```
//!
//! An entry in the journal has a field for each value that is logged with its line, in capitals and
//! with `TYCHE_` before its name: `journalctl TYCHE_HOST=vmhost1`.

use std::cell::RefCell;
use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer;
use uuid::Uuid;

use crate::output::write_error;
use crate::shared::error::{Code, Context, Result};
use crate::shared::runtime;

/// The socket of systemd's journal.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// The longest file, in bytes; there are two for each export.
const FILE_MAX: u64 = 1 << 20;
/// Bytes of the thread's stack. With the process's memory, all of it is locked.
const STACK: usize = 256 << 10;
/// Maximum number of lines that wait to be written.
const LINES_MAX: usize = 1024;
/// Time limit for the last lines when the process ends.
const FLUSH: Duration = Duration::from_secs(1);
/// Pause before an entry is offered again to a queue that is full.
const RETRY: Duration = Duration::from_millis(5);

/// The queue of standard error.
static STDERR: OnceLock<Queue> = OnceLock::new();
/// The queue of the permanent log, if this process has one.
static PERMANENT: OnceLock<Queue> = OnceLock::new();

/// The lines that wait to be written.
struct Queue {
    entries: SyncSender<Entry>,
    /// Number of lines that were lost since the log last said so.
    lost: Arc<AtomicU64>,
    /// Whether the place of the log adds timestamps of its own.
    has_clock: bool,
}

enum Entry {
    /// A line, with the journal's fields of what is in it.
    Line(Level, Vec<u8>, Vec<u8>),
    /// Dropped when all earlier entries are written.
    Mark { _until: SyncSender<()> },
}

impl Queue {
    /// Starts the thread that writes to the place.
    fn start(place: impl LogSink + Send + 'static, has_clock: bool) -> io::Result<Self> {
        let (entries, queue) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&lost);
        let keep = move || keep(place, &queue, &count, has_clock);
        std::thread::Builder::new().name("log".into()).stack_size(STACK).spawn(keep)?;
        Ok(Self { entries, lost, has_clock })
    }

    fn add(&self, level: Level, line: Vec<u8>, fields: Vec<u8>) {
        if self.entries.try_send(Entry::Line(level, line, fields)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all entries are written, up to a time limit.
    fn flush(&self) {
        let deadline = Instant::now() + FLUSH;
        let (until, written) = sync_channel(1);
        let mut mark = Entry::Mark { _until: until };
        loop {
            match self.entries.try_send(mark) {
                Err(TrySendError::Full(again)) if Instant::now() < deadline => mark = again,
                Err(_) => return,
                Ok(()) => break,
            }
            std::thread::sleep(RETRY);
        }
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Starts to log to standard error.
///
/// # Errors
/// There is no thread to spare: then all that is logged is lost.
pub(crate) fn start() -> io::Result<()> {
    // Fails if it has started already, which is as good.
    let _ = STDERR.set(Queue::start(Stderr, false)?);
    Ok(())
}

/// The queue of this process.
fn queue() -> Option<&'static Queue> {
    PERMANENT.get().or_else(|| STDERR.get())
}

/// Sends the log of the session's daemon to its permanent place from now on. Returns how to read
/// it: a file, or the command that shows it. A daemon that tries again keeps the one of its first
/// attempt.
///
/// # Errors
/// If the file can't be made.
pub(crate) fn open(export: &str, session: Uuid) -> Result<String> {
    static PLACE: OnceLock<String> = OnceLock::new();
    if let Some(place) = PLACE.get() {
        return Ok(place.clone());
    }
    let directory = runtime::logs();
    let (queue, name) = match &directory {
        None if Path::new(JOURNAL).exists() => {
            let session = session.to_string();
            let fields = [("TYCHE_EXPORT", export), ("TYCHE_SESSION", &session)];
            let journal = Journal::open(Path::new(JOURNAL), &fields);
            let journal = journal.context(Code::Other, JOURNAL)?;
            let name = format!("journalctl TYCHE_SESSION={session}");
            (Queue::start(journal, true)?, name)
        }
        directory => {
            let directory = directory.as_deref().unwrap_or(Path::new(runtime::LOGS));
            runtime::create(directory)?;
            let path = directory.join(format!("{}.log", runtime::plain(export)));
            let name = path.display().to_string();
            let file = LogFile::open(path).context(Code::Other, &name)?;
            (Queue::start(file, false)?, name)
        }
    };
    PERMANENT.set(queue).map_err(|_| "it is open").context(Code::Other, "log")?;
    Ok(PLACE.get_or_init(|| name).clone())
}

/// Sends the log of a target to the journal from now on, if standard error leads there: the journal
/// gets the fields of each line then. Without that, or if it is not to be had, nothing changes.
pub(crate) fn open_journal(target: &str) {
    if !is_journal(Path::new("/proc/self/fd/2"), env::var("JOURNAL_STREAM").ok().as_deref()) {
        return;
    }
    let journal = Journal::open(Path::new(JOURNAL), &[("TYCHE_TARGET", target)]);
    if let Ok(queue) = journal.and_then(|journal| Queue::start(journal, true)) {
        let _ = PERMANENT.set(queue);
    }
}

/// Whether a file is the stream of the journal that systemd has opened for this process.
/// `stream`: its device and inode, as systemd says them.
fn is_journal(file: &Path, stream: Option<&str>) -> bool {
    let found = fs::metadata(file).map(|found| format!("{}:{}", found.dev(), found.ino()));
    stream.is_some_and(|stream| found.is_ok_and(|found| found == stream))
}

/// Waits until all entries are written, up to a time limit.
pub(crate) fn flush() {
    if let Some(queue) = queue() {
        queue.flush();
    }
}

/// Logs the last words of this process, whatever the log level is.
pub(crate) fn last_words(text: &str) {
    if let Some(queue) = queue() {
        queue.add(Level::ERROR, of_ours(Level::ERROR, text, queue.has_clock), Vec::new());
        queue.flush();
    }
}

/// A line in the form that the subscriber gives to others.
fn of_ours(level: Level, text: &str, has_clock: bool) -> Vec<u8> {
    let mut line = String::new();
    if !has_clock {
        let _ = SystemTime.format_time(&mut Writer::new(&mut line));
        line.push(' ');
    }
    format!("{line}{level:>5} {text}\n").into_bytes()
}

/// The body of the writing thread.
fn keep(mut place: impl LogSink, queue: &Receiver<Entry>, lost: &AtomicU64, has_clock: bool) {
    let mut unsaid = 0;
    loop {
        let entry = match queue.try_recv() {
            Ok(entry) => entry,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                unsaid += lost.swap(0, Ordering::Relaxed);
                if unsaid > 0 {
                    let text = format!("{unsaid} lines were lost: this log could not be written");
                    let line = of_ours(Level::WARN, &text, has_clock);
                    if place.write(Level::WARN, &line, &[]).is_ok() {
                        unsaid = 0;
                    }
                }
                let Ok(entry) = queue.recv() else { return };
                entry
            }
        };
        if let Entry::Line(level, line, fields) = entry
            && place.write(level, &line, &fields).is_err()
        {
            unsaid += 1;
        }
    }
}

/// A place for the log.
trait LogSink {
    fn write(&mut self, level: Level, line: &[u8], fields: &[u8]) -> io::Result<()>;
}

struct Stderr;

impl LogSink for Stderr {
    fn write(&mut self, _level: Level, line: &[u8], _fields: &[u8]) -> io::Result<()> {
        write_error(line)
    }
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
}

impl LogSink for LogFile {
    fn write(&mut self, _level: Level, line: &[u8], _fields: &[u8]) -> io::Result<()> {
        if self.file.metadata()?.len() + line.len() as u64 > FILE_MAX {
            // Another session of the export may have replaced it already.
            if runtime::is_at(&self.file, &self.path) {
                fs::rename(&self.path, self.path.with_extension("log.1"))?;
            }
            // If that fails, the next line tries again.
            *self = Self::open(self.path.clone())?;
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
    /// The journal at a socket. `common`: fields of all entries.
    fn open(path: &Path, common: &[(&str, &str)]) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        let mut fields = Vec::new();
        field(&mut fields, "SYSLOG_IDENTIFIER", b"tyche");
        common.iter().for_each(|(name, value)| field(&mut fields, name, value.as_bytes()));
        Ok(Self { socket, fields })
    }
}

impl LogSink for Journal {
    fn write(&mut self, level: Level, line: &[u8], fields: &[u8]) -> io::Result<()> {
        let mut entry = [&self.fields, fields].concat();
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

thread_local! {
    /// The journal's fields of the line that this thread is about to write.
    static FIELDS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the values that are logged with a line for the [`Line`] that is written next. It comes
/// before the layer that writes lines.
pub(crate) struct KeepFields;

impl<S: Subscriber> Layer<S> for KeepFields {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        FIELDS.with_borrow_mut(|fields| {
            fields.clear();
            if queue().is_some_and(|queue| queue.has_clock) {
                event.record(&mut Recorder(fields));
            }
        });
    }
}

/// Writes values as fields of the journal.
struct Recorder<'a>(&'a mut Vec<u8>);

impl Recorder<'_> {
    fn add(&mut self, of: &Field, value: &str) {
        if of.name() != "message" {
            let name = format!("TYCHE_{}", of.name().to_ascii_uppercase().replace('.', "_"));
            field(self.0, &name, value.as_bytes());
        }
    }
}

impl Visit for Recorder<'_> {
    fn record_str(&mut self, of: &Field, value: &str) {
        self.add(of, value);
    }

    fn record_debug(&mut self, of: &Field, value: &dyn fmt::Debug) {
        self.add(of, &format!("{value:?}"));
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

/// An entry of which all lines but the first are indented: what somebody else has named, with a
/// line feed in its name, looks like no entry of ours.
fn indented(entry: &[u8]) -> Vec<u8> {
    let (text, end) = match entry {
        [text @ .., b'\n'] => (text, &b"\n"[..]),
        text => (text, &[][..]),
    };
    let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
    [&lines.join(&b"\n    "[..]), end].concat()
}

/// One entry of the log.
pub(crate) struct Line(Level);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(queue) = queue() {
            queue.add(self.0, indented(line), FIELDS.take());
        }
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
        if queue().is_some_and(|queue| queue.has_clock) {
            return Ok(());
        }
        SystemTime.format_time(writer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_long_file_is_replaced_and_the_one_before_it_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1.log");
        let mut log = LogFile::open(path.clone()).unwrap();
        let mut other = LogFile::open(path.clone()).unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        for _ in 0..2 * FILE_MAX / 1024 {
            log.write(Level::INFO, &line, &[]).unwrap();
        }
        other.write(Level::INFO, b"of another session\n", &[]).unwrap();
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!(length(&dir.path().join("vm1.log.1")), FILE_MAX);
        // The other session has noticed, and replaced nothing too early.
        assert!(fs::read(&path).unwrap().ends_with(b"of another session\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_could_not_be_replaced_is_replaced_later() {
        let dir = tempfile::tempdir().unwrap();
        let [here, away] = ["here", "away"].map(|name| dir.path().join(name));
        fs::create_dir(&here).unwrap();
        let mut log = LogFile::open(here.join("vm1.log")).unwrap();
        let full = vec![b'x'; FILE_MAX as usize];
        log.write(Level::INFO, &full, &[]).unwrap();
        fs::rename(&here, &away).unwrap();
        log.write(Level::INFO, b"lost\n", &[]).unwrap_err();
        fs::rename(&away, &here).unwrap();
        log.write(Level::INFO, b"kept\n", &[]).unwrap();
        assert_eq!(fs::read(here.join("vm1.log")).unwrap(), b"kept\n");
    }

    #[test]
    fn what_others_name_begins_no_entry() {
        assert_eq!(indented(b"INFO a\n"), b"INFO a\n");
        assert_eq!(indented(b"WARN x\nINFO y\n"), b"WARN x\n    INFO y\n");
    }

    #[test]
    fn an_entry_of_the_journal_names_the_session_and_may_have_several_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        let session = Uuid::nil().to_string();
        let common = [("TYCHE_EXPORT", "vm1"), ("TYCHE_SESSION", &*session)];
        let mut journal = Journal::open(&path, &common).unwrap();
        let mut fields = Vec::new();
        field(&mut fields, "TYCHE_READS", b"3");
        journal.write(Level::WARN, b" WARN a\nb\n", &fields).unwrap();
        let mut entry = [0; 1024];
        let len = journald.recv(&mut entry).unwrap();
        let wanted = [
            &b"SYSLOG_IDENTIFIER\n\x05\0\0\0\0\0\0\0tyche\n"[..],
            b"TYCHE_EXPORT\n\x03\0\0\0\0\0\0\0vm1\n",
            b"TYCHE_SESSION\n\x24\0\0\0\0\0\0\0",
            session.as_bytes(),
            b"\nTYCHE_READS\n\x01\0\0\0\0\0\0\x003",
            b"\nPRIORITY\n\x01\0\0\0\0\0\0\x004\n",
            b"MESSAGE\n\x08\0\0\0\0\0\0\0WARN a\nb\n",
        ];
        assert_eq!(entry[..len], wanted.concat());
    }

    #[test]
    fn standard_error_is_the_journal_if_it_is_the_stream_that_systemd_names() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = file.as_file().metadata().unwrap();
        let own = format!("{}:{}", found.dev(), found.ino());
        assert!(is_journal(file.path(), Some(&own)));
        assert!(!is_journal(file.path(), Some("8:1")) && !is_journal(file.path(), None));
    }

    #[test]
    fn values_are_fields_in_capitals() {
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl<S: Subscriber> Layer<S> for Kept {
            fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
                event.record(&mut Recorder(&mut self.0.lock().unwrap()));
            }
        }
        let kept = Arc::<Mutex<Vec<u8>>>::default();
        let subscriber = tracing_subscriber::registry().with(Kept(Arc::clone(&kept)));
        tracing::subscriber::with_default(subscriber, || {
            let (host, none) = ("vmhost1", None::<u64>);
            tracing::info!(host, none, reads = 3, key = %"SHA256:x", "host has left");
        });
        let mut wanted = Vec::new();
        let values = [("HOST", "vmhost1"), ("READS", "3"), ("KEY", "SHA256:x")];
        for (name, value) in values {
            field(&mut wanted, &format!("TYCHE_{name}"), value.as_bytes());
        }
        assert_eq!(*kept.lock().unwrap(), wanted);
    }

    /// A place whose writes wait for permission, and fail if it says so.
    struct Stuck {
        permissions: Receiver<bool>,
        written: SyncSender<String>,
    }

    impl LogSink for Stuck {
        fn write(&mut self, _level: Level, line: &[u8], _: &[u8]) -> io::Result<()> {
            if !self.permissions.recv().unwrap_or(true) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let _ = self.written.send(String::from_utf8_lossy(line).into_owned());
            Ok(())
        }
    }

    #[test]
    fn lines_that_can_not_be_written_are_lost_and_counted() {
        let (permit, permissions) = sync_channel(4 * LINES_MAX);
        let (written, lines) = sync_channel(4 * LINES_MAX);
        let queue = Queue::start(Stuck { permissions, written }, true).unwrap();
        // One may be with the thread, which waits for its permission; nobody waits for the thread.
        for number in 0..2 * LINES_MAX {
            queue.add(Level::INFO, format!("{number}\n").into_bytes(), Vec::new());
        }
        queue.flush();
        // The first fails; the rest, and what tells of the lost ones, is written.
        permit.send(false).unwrap();
        drop(permit);
        let mut kept = 0;
        let said = loop {
            let line = lines.recv_timeout(tyche_testkit::wait::PATIENCE).unwrap();
            if line.contains("lost") {
                break line;
            }
            kept += 1;
        };
        let lost = 2 * LINES_MAX - kept;
        assert!((1..=LINES_MAX).contains(&kept), "{kept}");
        assert_eq!(said, format!(" WARN {lost} lines were lost: this log could not be written\n"));
    }
}
