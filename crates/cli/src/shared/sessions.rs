//! The sessions and targets of this machine: finds them, and sends orders to their daemons.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::output::remark;
use crate::shared::attach::Lasting;
use crate::shared::attempt::Attempt;
use crate::shared::control::{
    Done, REPORT_TIMEOUT, SessionRequest, TargetRequest, ask, is_timeout,
};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::leftovers;
use crate::shared::report::{SessionReport, SessionState, TargetReport};
use crate::shared::runtime::{self, CONTROL};
use crate::shared::state::State;

/// Time limit for an order other than to disconnect.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a killed daemon may take to end: the kernel first ends what each queue of its device
/// had in progress, and closes its control socket before it releases its lock.
const DEATH: Duration = Duration::from_secs(5);
/// Pause between two looks at a daemon that is about to listen, or to end.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A session of this machine.
pub(crate) struct Session {
    pub(crate) dir: PathBuf,
    /// The daemon's report, or the state file if the daemon is dead.
    pub(crate) report: SessionReport,
    /// The device that a dead daemon has left for another daemon.
    pub(crate) left: Option<Lasting>,
}

impl Session {
    /// All sessions. The session of a dead daemon stays among them until it is disconnected, or its
    /// export is connected again.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let dir = runtime::sessions();
        let dirs = runtime::below(&dir).context(Code::Permission, dir.display())?;
        let mut found = each(dirs, Self::find);
        // A device whose next daemon has just begun to serve it has one session, not two.
        let served = found.iter().filter(|it| !it.is_starting() && !it.is_dead());
        let served: Vec<_> = served.filter_map(Self::identity).collect();
        found
            .retain(|it| !it.is_starting() || it.identity().is_none_or(|id| !served.contains(&id)));
        Ok(found)
    }

    /// The session of that directory, if there is one.
    pub(crate) fn find(dir: PathBuf) -> Option<Self> {
        if let Ok(report) = living(&dir) {
            return Some(Self { dir, report: report?, left: None });
        }
        if let Some(report) = settled(&dir) {
            return Some(Self { dir, report, left: None });
        }
        let waits = |seen: &(SessionReport, Option<Lasting>)| {
            seen.1.is_some() || matches!(seen.0.state, SessionState::Starting)
        };
        // Without the lock, which is for the next daemon.
        if let Some((report, left)) = seen_dead(&dir).filter(waits) {
            return Some(Self { dir, report, left });
        }
        let Some(_lock) = leftovers::lock_dead(&dir) else {
            // The daemon is starting or ending; or the lock is not for those who may only look.
            let (report, left) = seen_dead(&dir)?;
            return Some(Self { dir, report, left });
        };
        let Some(record) = State::load(&dir) else {
            if State::exists(&dir) {
                // Of another version of this program. Its device stays listed.
                let dir = dir.display();
                tracing::warn!(%dir, "the record of a daemon can't be read");
            } else {
                // The daemon died during its start: nobody was told of its device.
                leftovers::clear(&dir, None);
            }
            return None;
        };
        let left = left(&record);
        let Some(report) = dead(&dir, &record, left.is_some()) else {
            leftovers::clear(&dir, Some(&record));
            return None;
        };
        Some(Self { dir, report, left })
    }

    /// The error of a command for a daemon that lives, and did not answer within that time.
    pub(crate) fn unanswered(&self, limit: Duration) -> Error {
        Error::new(Code::Unreachable, unanswered(&self.report.record, limit))
    }

    /// Has the daemon do what ends its process, or this session. If it ends before it answers, it
    /// has done so.
    pub(crate) fn pass_on(&self, request: &SessionRequest) -> Result<()> {
        match ask::<Done>(&self.dir.join(CONTROL), request, ORDER_TIMEOUT) {
            Ok(answer) => answer.map(|Done {}| ()),
            Err(error) if is_timeout(&error) => Err(self.unanswered(ORDER_TIMEOUT)),
            Err(_) => Ok(()),
        }
    }

    /// The session, asked again until that time while its daemon does not answer.
    pub(crate) fn heard(mut self, deadline: Instant) -> Self {
        while self.is_silent() && Instant::now() < deadline {
            thread::sleep(LOOK_AGAIN);
            match Self::find(self.dir.clone()) {
                Some(again) => self = again,
                None => break,
            }
        }
        self
    }

    /// Whether the daemon lives, and does not answer.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.report.state, SessionState::Silent { .. })
    }

    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.report.state, SessionState::Dead { .. })
    }

    /// Whether the next daemon of its device is about to take that over.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.report.state, SessionState::Starting)
    }

    /// The identity of its device, if that outlives its daemons.
    pub(crate) fn identity(&self) -> Option<Uuid> {
        self.report.record.lasting.as_ref().map(|lasting| lasting.identity)
    }

    /// The error of a command for a session that has no daemon yet which could do it.
    pub(crate) fn not_started(&self) -> Error {
        let by = runtime::successor(&self.dir);
        let end = by.map_or_else(String::new, |pid| format!(", or end process {pid} first"));
        let message = format!(
            "the next daemon of {} is about to take it over, as soon as the target answers: try \
             again when `tyche list` shows it{end}",
            self.report.record.device.display()
        );
        Error::new(Code::Unreachable, message)
    }

    /// Whether that name may mean it.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.report.record.is_named(name) || self.has_export(name)
    }

    /// Whether it was connected as TARGET/EXPORT, with that export.
    fn has_export(&self, name: &str) -> bool {
        self.report.record.export.split_once('/').is_some_and(|(_, export)| export == name)
    }
}

/// There is no daemon.
struct Nobody;

/// The report of the daemon of that directory; `None` if it does not report, and has no record.
fn living(dir: &Path) -> std::result::Result<Option<SessionReport>, Nobody> {
    let silent = |problem: String| {
        let state = SessionState::Silent { problem };
        Some(SessionReport { record: State::load(dir)?, state })
    };
    match ask(&dir.join(CONTROL), &SessionRequest::Report, REPORT_TIMEOUT) {
        Ok(Ok(report)) => Ok(Some(report)),
        Ok(Err(refusal)) => Ok(silent(refusal.message)),
        Err(error) if is_nobody(error.kind()) => Err(Nobody),
        Err(error) if is_timeout(&error) => {
            let record = State::load(dir);
            Ok(record.and_then(|record| silent(unanswered(&record, REPORT_TIMEOUT))))
        }
        Err(error) => Ok(silent(error.to_string())),
    }
}

/// The device that a dead daemon has left. One whose state is unknown counts as left.
fn left(record: &State) -> Option<Lasting> {
    record.lasting.clone().filter(|it| it.is_there().unwrap_or(true))
}

/// The report on a dead daemon; `None` if nothing is left of a session that was ended.
fn dead(dir: &Path, record: &State, waits: bool) -> Option<SessionReport> {
    if record.ended && !waits && !record.has_device() {
        return None;
    }
    let clear = leftovers::clearing(record, waits);
    let attempt = Attempt::described(dir).filter(|_| waits);
    let state = SessionState::Dead { waits, clear, attempt };
    Some(SessionReport { record: record.clone(), state })
}

/// Reports on all sessions for who only looks: nothing of what dead daemons have left is removed,
/// and no privilege is needed ([`readers`](crate::shared::readers)).
pub(crate) fn observed() -> Result<Vec<SessionReport>> {
    let dir = runtime::sessions();
    let dirs = runtime::below(&dir).context(Code::Permission, dir.display())?;
    Ok(each(dirs, |dir| match living(&dir) {
        Ok(report) => report,
        Err(Nobody) => seen_dead(&dir).map(|(report, _)| report),
    }))
}

/// The report on a dead daemon, and the device that it has left, without the lock; `None` if it is
/// starting or ending.
fn seen_dead(dir: &Path) -> Option<(SessionReport, Option<Lasting>)> {
    let record = State::load(dir)?;
    if is_taken_over(dir, &record) {
        return Some((SessionReport { record, state: SessionState::Starting }, None));
    }
    // Who tries again and again to take its place has the lock most of the time.
    if runtime::is_locked(dir) && Attempt::described(dir).is_none() {
        return None;
    }
    let left = left(&record);
    Some((dead(dir, &record, left.is_some())?, left))
}

/// The report of a daemon that begins to listen soon. Waits for the end of one that has died.
fn settled(dir: &Path) -> Option<SessionReport> {
    let record = State::load(dir).filter(|record| !record.ended)?;
    let deadline = Instant::now() + DEATH;
    let ends = || is_taken_over(dir, &record) || Attempt::described(dir).is_some();
    while runtime::is_locked(dir) && !ends() && Instant::now() < deadline {
        if let Ok(report) = living(dir) {
            return report;
        }
        thread::sleep(LOOK_AGAIN);
    }
    None
}

/// Whether the next daemon of a device is about to take that over: it holds the directory of the
/// last one; or the process of that goes on as another program, and does not hold it yet. One that
/// has failed to, and tries again, is not about to.
fn is_taken_over(dir: &Path, record: &State) -> bool {
    if record.lasting.is_none() || record.ended || Attempt::described(dir).is_some() {
        return false;
    }
    if runtime::is_locked(dir) {
        return runtime::successor(dir).is_some();
    }
    let arguments = std::fs::read(format!("/proc/{}/cmdline", record.pid)).unwrap_or_default();
    let mut arguments = arguments.split(|&byte| byte == 0).skip(1);
    arguments.next() == Some(b"connect") && arguments.any(|it| it == record.export.as_bytes())
}

/// The message about a daemon that lives, and did not answer within that time.
fn unanswered(record: &State, limit: Duration) -> String {
    format!(
        "the daemon of {} (process {}) does not answer within {} s: it is stopped or stuck; \
         `kill -CONT {1}` wakes a stopped one, `tyche disconnect --force {}` ends it in any case",
        record.device.display(),
        record.pid,
        limit.as_secs_f64(),
        record.export
    )
}

/// Calls `find` for all directories at the same time: each may wait for a daemon. In their order.
fn each<T: Send>(dirs: Vec<PathBuf>, find: fn(PathBuf) -> Option<T>) -> Vec<T> {
    thread::scope(|scope| {
        let asking = dirs.into_iter().map(|dir| {
            let again = dir.clone();
            let thread = thread::Builder::new().spawn_scoped(scope, move || find(dir));
            thread.map_err(|_| again)
        });
        let asking: Vec<_> = asking.collect();
        let found = asking.into_iter().filter_map(|asked| match asked {
            Ok(thread) => thread.join().expect("it does not panic"),
            // No thread to spare.
            Err(dir) => find(dir),
        });
        found.collect()
    })
}

fn is_nobody(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(kind, ConnectionRefused | ConnectionReset | NotFound)
}

/// Whether the process that owns the directory is alive: it holds the lock.
pub(crate) fn is_running(dir: &Path) -> bool {
    runtime::is_locked(dir)
}

/// Reports of the targets on this machine, with their directories; also of those that live and do
/// not answer.
pub(crate) fn targets() -> Result<Vec<(PathBuf, TargetReport)>> {
    let dir = runtime::targets();
    let dirs = runtime::below(&dir).context(Code::Permission, dir.display())?;
    Ok(each(dirs, |dir| Some((dir.clone(), target_at(&dir)?))))
}

/// The report of the target with that directory, if there is one; also of one that lives and does
/// not answer.
pub(crate) fn target_at(dir: &Path) -> Option<TargetReport> {
    Some(match ask(&dir.join(CONTROL), &TargetRequest::Report, REPORT_TIMEOUT) {
        Ok(Ok(report)) => report,
        // It has ended; or it is starting or ending.
        Err(error) if is_nobody(error.kind()) || !is_running(dir) => return None,
        Ok(Err(refusal)) => silent_target(dir, refusal.message),
        Err(error) if is_timeout(&error) => {
            let limit = REPORT_TIMEOUT.as_secs_f64();
            let wake = runtime::owner(dir).map(|pid| format!(": `kill -CONT {pid}` wakes it"));
            let wake = wake.unwrap_or_default();
            silent_target(
                dir,
                format!("does not answer within {limit} s: it is stuck, or stopped{wake}"),
            )
        }
        Err(error) => silent_target(dir, error.to_string()),
    })
}

/// The report on the target with that directory, which lives and does not answer.
fn silent_target(dir: &Path, problem: String) -> TargetReport {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let pid = runtime::owner(dir).unwrap_or(0);
    TargetReport { name, pid, problem: Some(problem), ..Default::default() }
}

/// Refuses to connect an export that this host has connected already: the second session would take
/// the export away from the first.
pub(crate) fn refuse_twice(export: &str, host: Uuid) -> Result<()> {
    for (dir, state) in State::all()? {
        if state.export != export || state.host != host || !is_running(&dir) {
            continue;
        }
        let asked =
            ask::<SessionReport>(&dir.join(CONTROL), &SessionRequest::Report, REPORT_TIMEOUT);
        let is_unheard = asked.as_ref().is_err_and(|error| is_nobody(error.kind()));
        if is_unheard && runtime::await_unlocked(&dir, DEATH) {
            // The daemon, which was running, has died.
            continue;
        }
        let more = match asked {
            Ok(Ok(SessionReport { state: SessionState::Failed(_), .. })) => {
                format!("; that session has failed: run `tyche disconnect {export}` first")
            }
            Err(error) if is_timeout(&error) => format!("; {}", unanswered(&state, REPORT_TIMEOUT)),
            _ => String::new(),
        };
        let device = state.device.display();
        let message = format!("export `{export}` is connected already, as {device}{more}");
        return Err(Error::new(Code::Exists, message));
    }
    Ok(())
}

/// The exports that daemons of this machine have connected.
pub(crate) fn connected() -> Result<BTreeSet<String>> {
    let running = State::all()?.into_iter().filter(|(dir, _)| is_running(dir));
    Ok(running.map(|(_, state)| state.export).collect())
}

/// Reports of the sessions with that name, or of all.
pub(crate) fn named_sessions(name: Option<&str>) -> Result<Vec<SessionReport>> {
    let all = Session::all()?;
    let named = match name {
        Some(name) => matching(all, name),
        None => all,
    };
    Ok(named.into_iter().map(|it| it.report).collect())
}

/// The sessions with that name, or else those with an export of that name, of whatever target.
fn matching(all: Vec<Session>, name: &str) -> Vec<Session> {
    let (named, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|it| it.report.record.is_named(name));
    match named.is_empty() {
        true => others.into_iter().filter(|it| it.has_export(name)).collect(),
        false => named,
    }
}

/// The sessions with that name, or else those with an export of that name, of whatever target: the
/// one with a living daemon, or else all with dead ones.
pub(crate) fn named(name: &str) -> Result<Vec<Session>> {
    let named = matching(Session::all()?, name);
    let (dead, living): (Vec<_>, Vec<_>) = named.into_iter().partition(Session::is_dead);
    match (living.len(), dead.len()) {
        (0, 0) => Err(not_found(name)),
        (0, _) => Ok(dead),
        (1, _) => Ok(living),
        _ => {
            let ids = living.iter().map(|it| it.report.record.session.to_string());
            let ids: Vec<_> = ids.collect();
            let message = format!("`{name}` is several sessions: {}", ids.join(", "));
            Err(Error::new(Code::Usage, message))
        }
    }
}

/// Does something with each session, and with the others all the same if one fails. Returns the
/// results.
///
/// # Errors
/// The first; others are printed.
pub(crate) fn for_each<T>(
    sessions: &[Session],
    mut act: impl FnMut(&Session) -> Result<T>,
) -> Result<Vec<T>> {
    let (mut done, mut failed) = (Vec::new(), None);
    for session in sessions {
        match act(session) {
            Ok(result) => done.push(result),
            Err(error) if failed.is_some() => remark(format_args!("tyche: {error}")),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(done), Err)
}

/// Sends an order to the session of that name, and waits until it is done. Returns the session.
pub(crate) fn order(name: &str, request: &SessionRequest) -> Result<State> {
    let session = named(name)?.pop().ok_or_else(|| not_found(name))?;
    if session.is_starting() {
        return Err(session.not_started());
    }
    match ask::<Done>(&session.dir.join(CONTROL), request, ORDER_TIMEOUT) {
        Ok(answer) => answer.map(|Done {}| session.report.record),
        Err(error) if is_timeout(&error) => Err(session.unanswered(ORDER_TIMEOUT)),
        Err(error) => {
            let message = format!("the session of `{name}` does not answer: {error}");
            Err(Error::new(Code::Other, message))
        }
    }
}

pub(crate) fn not_found(name: &str) -> Error {
    let message = format!("nothing here is called `{name}`; `tyche list` shows what there is");
    Error::new(Code::NotFound, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session(export: &str) -> Session {
        let report = json!({
            "session": Uuid::new_v4(), "host": Uuid::nil(), "export": export, "kind": "ublk",
            "device": format!("/dev/{export}"), "pid": 7, "state": "ending",
        });
        let report = serde_json::from_value(report).unwrap();
        Session { dir: PathBuf::new(), report, left: None }
    }

    #[test]
    fn an_export_is_found_by_its_own_name_unless_a_session_has_that_name() {
        let exports = |all: &[&str], name| -> Vec<_> {
            let all = all.iter().map(|export| session(export)).collect();
            matching(all, name).into_iter().map(|it| it.report.record.export).collect()
        };
        assert_eq!(exports(&["store/pg", "store/vm1"], "pg"), ["store/pg"]);
        assert_eq!(exports(&["store/pg", "pg"], "pg"), ["pg"]);
        assert_eq!(exports(&["store/pg"], "store"), [""; 0]);
    }

    #[test]
    fn a_device_whose_next_daemon_is_not_ready_yet_is_listed_as_starting() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("socket");
        std::fs::write(&device, "").unwrap();
        let record = json!({
            "session": Uuid::new_v4(), "host": Uuid::nil(), "export": "vm1", "kind": "vhost-user",
            "device": device, "pid": u32::MAX,
            "lasting": { "kind": "vhost-user", "device": device, "identity": Uuid::nil() },
        });
        let record: State = serde_json::from_value(record).unwrap();
        record.save(dir.path()).unwrap();
        let found = || Session::find(dir.path().to_owned()).unwrap();
        assert!(found().is_dead() && found().left.is_some());
        let next = runtime::succeed(dir.path(), DEATH).unwrap().unwrap();
        assert!(found().is_starting() && !found().is_dead());
        assert_eq!(found().not_started().code, Code::Unreachable);
        // It has failed.
        drop(next);
        assert!(found().is_dead());
    }
}
