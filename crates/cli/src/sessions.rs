//! The sessions and targets of this machine: finds, lists, watches and ends them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::attach::Lasting;
use crate::complete;
use crate::control::{Request, ask};
use crate::error::{Code, Context, Error, Result};
use crate::health;
use crate::leftovers;
use crate::links::mtu;
use crate::output::{Format, Table, bytes, show};
use crate::report::add;
use crate::runtime::{self, CONTROL};
use crate::seconds::positive;
use crate::state::State;

/// Time limit for a daemon's report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for an orderly disconnect: the device's cache is written first.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(600);
/// Time limit for other orders.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a device that is in use is tried again.
const IN_USE_RETRY: Duration = Duration::from_millis(100);
/// Time limit for a forced disconnect.
const FORCED_TIMEOUT: Duration = Duration::from_secs(10);

/// List the connected exports of this machine, and the targets that run here.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// End a session: the device goes away.
#[derive(Args, Debug)]
pub(crate) struct DisconnectArgs {
    /// The export, the session's UUID (or how it begins), or the device.
    #[arg(required_unless_present = "all", add = complete::connected())]
    name: Option<String>,

    /// All sessions of this machine.
    #[arg(long, conflicts_with = "name")]
    all: bool,

    /// Though it is in use or its target lost: everything in progress fails with EIO.
    #[arg(long)]
    force: bool,

    /// Wait for up to this many seconds for a device that is in use, such as a mounted one.
    #[arg(long, value_name = "SECONDS", conflicts_with = "force", value_parser = positive)]
    wait: Option<f64>,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// A session of this machine.
struct Session {
    dir: PathBuf,
    /// The daemon's report, or the state file if the daemon is dead.
    report: Value,
    /// The device that a dead daemon has left for another daemon.
    left: Option<Lasting>,
}

impl Session {
    fn text(&self, field: &str) -> &str {
        self.report[field].as_str().unwrap_or_default()
    }

    fn is_dead(&self) -> bool {
        self.text("state") == "dead"
    }

    fn is_named(&self, name: &str) -> bool {
        self.text("export") == name
            || self.text("device") == name
            || (name.len() >= 4 && self.text("session").starts_with(name))
    }
}

/// All sessions. The session of a dead daemon stays among them until it is disconnected, or its
/// export is connected again.
fn sessions() -> Result<Vec<Session>> {
    let dir = runtime::sessions();
    let dirs = runtime::below(&dir).context(Code::Permission, dir.display())?;
    Ok(dirs.into_iter().filter_map(session).collect())
}

fn session(dir: PathBuf) -> Option<Session> {
    let of_state = |state: &State, more: Value| {
        let mut report = serde_json::to_value(state).unwrap_or_default();
        add(&mut report, more);
        report
    };
    match ask(&dir.join(CONTROL), &Request::Report, REPORT_TIMEOUT) {
        Ok(report) => return Some(Session { dir, report, left: None }),
        Err(error) if is_nobody(error.kind()) => {}
        Err(error) => {
            let problem = json!({ "state": "silent", "problem": error.to_string() });
            let report = of_state(&State::load(&dir)?, problem);
            return Some(Session { dir, report, left: None });
        }
    }
    // If the lock can't be taken, the daemon is starting or ending: not there yet, or no more.
    let _lock = leftovers::lock_dead(&dir)?;
    let Some(state) = State::load(&dir) else {
        if State::exists(&dir) {
            // Of another version of this program. Its device stays listed.
            tracing::warn!(dir = %dir.display(), "what a daemon has written down can't be read");
        } else {
            // The daemon died during its start: nobody was told of its device.
            leftovers::clear(&dir, None);
        }
        return None;
    };
    // A device whose state is unknown counts as left.
    let left = state.lasting.clone().filter(|it| it.is_there().unwrap_or(true));
    if state.ended && left.is_none() && !state.has_device() {
        leftovers::clear(&dir, Some(&state));
        return None;
    }
    let more = json!({
        "state": "dead",
        "waits": left.is_some(),
        "clear": leftovers::clearing(&state, left.is_some()),
    });
    let report = of_state(&state, more);
    Some(Session { dir, report, left })
}

fn is_nobody(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(kind, ConnectionRefused | ConnectionReset | NotFound)
}

/// Whether the process that owns the directory is alive: it holds the lock.
fn is_running(dir: &Path) -> bool {
    runtime::is_locked(dir)
}

/// Reports of the targets on this machine, with their directories.
pub(crate) fn targets() -> Result<Vec<(PathBuf, Value)>> {
    let dir = runtime::targets();
    let dirs = runtime::below(&dir).context(Code::Permission, dir.display())?;
    let report = |dir: &PathBuf| ask(&dir.join(CONTROL), &Request::Report, REPORT_TIMEOUT).ok();
    Ok(dirs.into_iter().filter_map(|dir| report(&dir).map(|report| (dir, report))).collect())
}

/// Refuses to connect an export that this host has connected already: the second session would take
/// the export away from the first.
pub(crate) fn refuse_twice(export: &str, host: Uuid) -> Result<()> {
    for (dir, state) in State::all()? {
        if state.export == export && state.host == host && is_running(&dir) {
            let device = state.device.display();
            let message = format!("export `{export}` is connected already, as {device}");
            return Err(Error::new(Code::Usage, message));
        }
    }
    Ok(())
}

/// The exports that daemons of this machine have connected.
pub(crate) fn connected() -> Result<BTreeSet<String>> {
    let running = State::all()?.into_iter().filter(|(dir, _)| is_running(dir));
    Ok(running.map(|(_, state)| state.export).collect())
}

pub(crate) fn list(args: &ListArgs) -> Result<()> {
    let sessions = sessions()?;
    let targets: Vec<_> = targets()?.into_iter().map(|(_, report)| report).collect();
    show(
        args.output,
        || {
            let sessions: Vec<_> = sessions.iter().map(|it| &it.report).collect();
            json!({ "schema": "tyche.list/1", "sessions": sessions, "targets": targets })
        },
        || {
            let mut text = String::new();
            if !sessions.is_empty() || targets.is_empty() {
                text += &session_table(&sessions);
                text.extend(sessions.iter().filter_map(remark));
            }
            if !targets.is_empty() {
                text += &target_table(&targets);
            }
            let of_sessions = sessions.iter().flat_map(|it| health::of_session(&it.report));
            let notes = of_sessions.chain(targets.iter().flat_map(health::of_target));
            notes.fold(text, |text, note| text + &note + "\n")
        },
    );
    Ok(())
}

fn session_table(sessions: &[Session]) -> String {
    let mut table = Table::new(["EXPORT", "DEVICE", "SIZE", "STATE", "LINKS", "SESSION"]);
    for session in sessions {
        let links = session.report["links"].as_array().map_or(&[][..], Vec::as_slice);
        let links = links.iter().map(|link| {
            let name = link["interface"].as_str().unwrap_or_default();
            match (link["problem"].as_str(), narrowed(link)) {
                (Some(problem), _) => format!("{name} ({problem})"),
                (None, Some(narrowed)) => format!("{name} ({narrowed})"),
                (None, None) => format!("{name} ({} B frames)", link["frame_len"]),
            }
        });
        table.row([
            session.text("export").to_owned(),
            session.text("device").to_owned(),
            bytes(session.report["disk"]["size"].as_u64().unwrap_or_default()),
            state(&session.report),
            links.collect::<Vec<_>>().join(", "),
            session.text("session").to_owned(),
        ]);
    }
    table.to_string()
}

/// The remark about a link whose path takes only shorter frames than its interface.
fn narrowed(link: &Value) -> Option<String> {
    let (found, own) = (link["frame_len"].as_u64()?, link["frame_len_max"].as_u64()?);
    (found < own).then(|| format!("{found} B frames, though its MTU is {}", mtu(own)))
}

/// The state for people, with the remaining time of a session whose target is lost.
pub(crate) fn state(report: &Value) -> String {
    let state = report["state"].as_str().unwrap_or_default();
    match (state, report["lost_for_s"].as_f64(), report["time_left_s"].as_f64()) {
        ("lost", Some(lost), Some(left)) => {
            format!("lost for {lost:.0} s, requests fail in {left:.0} s")
        }
        ("lost", Some(lost), None) => format!("lost for {lost:.0} s, requests wait"),
        ("dead", ..) if report["waits"] == true => {
            "its daemon died: requests wait for another `tyche connect`".to_owned()
        }
        ("dead", ..) if report["ended"] == true => "disconnected, still in use".to_owned(),
        ("dead", ..) => "its daemon died".to_owned(),
        _ => state.to_owned(),
    }
}

/// A line below the table: the problem of a session, and the remedy.
fn remark(session: &Session) -> Option<String> {
    let Session { report, .. } = session;
    let name = session.text("export");
    let device = session.text("device");
    if session.is_dead() {
        let log = report["log"].as_str().map(|log| format!("; its log: {log}"));
        let commands = report["clear"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let commands = commands.map(|command| format!("`{command}`")).collect::<Vec<_>>();
        let clear = match &commands[..] {
            [] => "until the last program closes it".to_owned(),
            commands => format!("to clear it: {}", commands.join(", ")),
        };
        return Some(format!("{name} ({device}): {clear}{}\n", log.unwrap_or_default()));
    }
    let problem = report["problem"].as_str()?;
    Some(format!("{name} ({device}): {problem}\n"))
}

fn target_table(targets: &[Value]) -> String {
    let mut table = Table::new(["TARGET", "EXPORT", "SIZE", "HOSTS"]);
    for target in targets {
        for export in target["exports"].as_array().map_or(&[][..], Vec::as_slice) {
            let hosts = export["sessions"].as_array().map_or(&[][..], Vec::as_slice);
            let hosts = hosts.iter().map(|it| it["host_name"].as_str().unwrap_or_default());
            table.row([
                target["name"].as_str().unwrap_or_default().to_owned(),
                export["export"].as_str().unwrap_or_default().to_owned(),
                bytes(export["size"].as_u64().unwrap_or_default()),
                hosts.collect::<Vec<_>>().join(", "),
            ]);
        }
    }
    table.to_string()
}

pub(crate) fn disconnect(args: &DisconnectArgs) -> Result<()> {
    let chosen = match &args.name {
        None => sessions()?,
        Some(name) => named(name)?,
    };
    // One deadline for all: a machine that shuts down has no time for each.
    let deadline = Instant::now() + Duration::from_secs_f64(args.wait.unwrap_or(0.0));
    let (mut ended, mut failed) = (Vec::new(), None);
    for session in &chosen {
        match end_by(session, args.force, deadline) {
            Ok(()) => {
                ended.push(session.text("session"));
                // A forced end leaves a device that is still in use.
                if let Some(left) = self::session(session.dir.clone()).as_ref().and_then(remark) {
                    eprint!("tyche: still in use: {left}");
                }
            }
            // The others are still disconnected; the first failure is reported.
            Err(error) if failed.is_some() => eprintln!("tyche: {error}"),
            Err(error) => failed = Some(error),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let value = json!({ "schema": "tyche.disconnect/1", "sessions": ended });
    show(args.output, || value, String::new);
    Ok(())
}

/// Ends a session; retries until the deadline while its device is in use.
fn end_by(session: &Session, force: bool, deadline: Instant) -> Result<()> {
    loop {
        match end(session, force) {
            Err(error) if error.code == Code::Device && Instant::now() < deadline => {
                std::thread::sleep(IN_USE_RETRY);
            }
            ended => return ended,
        }
    }
}

/// Reports of the sessions with that name, or of all.
pub(crate) fn named_sessions(name: Option<&str>) -> Result<Vec<Value>> {
    let named = sessions()?.into_iter().filter(|it| name.is_none_or(|name| it.is_named(name)));
    Ok(named.map(|it| it.report).collect())
}

/// The sessions with that name: the one with a living daemon, or else all with dead ones.
fn named(name: &str) -> Result<Vec<Session>> {
    let named = sessions()?.into_iter().filter(|it| it.is_named(name));
    let (dead, living): (Vec<_>, Vec<_>) = named.partition(Session::is_dead);
    match (living.len(), dead.len()) {
        (0, 0) => Err(not_found(name)),
        (0, _) => Ok(dead),
        (1, _) => Ok(living),
        _ => {
            let ids: Vec<_> = living.iter().map(|it| it.text("session")).collect();
            let message = format!("`{name}` is several sessions: {}", ids.join(", "));
            Err(Error::new(Code::Usage, message))
        }
    }
}

/// Sends an order to the session of that name, and waits until it is done.
pub(crate) fn order(name: &str, request: &Request) -> Result<()> {
    let session = named(name)?.pop().ok_or_else(|| not_found(name))?;
    match ask(&session.dir.join(CONTROL), request, ORDER_TIMEOUT) {
        Ok(answer) => refusal(&answer).map_or(Ok(()), Err),
        Err(error) => {
            let message = format!("the session of `{name}` does not answer: {error}");
            Err(Error::new(Code::Other, message))
        }
    }
}

/// The error in a daemon's answer, if any.
pub(crate) fn refusal(answer: &Value) -> Option<Error> {
    let message = answer["error"].as_str()?;
    Some(Error::new(Code::from_name(answer["code"].as_str().unwrap_or_default()), message))
}

pub(crate) fn not_found(name: &str) -> Error {
    let message = format!("nothing here is called `{name}`; `tyche list` shows what there is");
    Error::new(Code::NotFound, message)
}

fn end(session: &Session, force: bool) -> Result<()> {
    if session.is_dead() {
        return match &session.left {
            Some(left) => leftovers::remove_left(&session.dir, left, force),
            None => leftovers::clear_dead(&session.dir, force),
        };
    }
    match end_daemon(session, force) {
        Err(_) if force && is_running(&session.dir) => kill(session),
        ended => ended,
    }
}

/// Has a session's daemon end it.
fn end_daemon(session: &Session, force: bool) -> Result<()> {
    let timeout = if force { FORCED_TIMEOUT } else { DISCONNECT_TIMEOUT };
    match ask(&session.dir.join(CONTROL), &Request::Disconnect { force }, timeout) {
        Ok(answer) => match refusal(&answer) {
            Some(error) => Err(error),
            None => await_end(session),
        },
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let message = format!("{} does not let go in time", session.text("device"));
            Err(Error::new(Code::Device, message))
        }
        // The daemon ended before it could answer.
        Err(_) => await_end(session),
    }
}

/// Ends a session by killing its daemon, which is stopped or stuck.
fn kill(session: &Session) -> Result<()> {
    let pid = session.report["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let process = pid.and_then(Pid::from_raw).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    // The process that holds the lock has written its PID beside it.
    if let Some(Ok(process)) = process.filter(|_| is_running(&session.dir)) {
        eprintln!("tyche: the daemon of {} does not end: killed", session.text("device"));
        let killed = pidfd_send_signal(process, Signal::KILL);
        killed.map_err(std::io::Error::from).context(Code::Permission, "kill the daemon")?;
    }
    await_end(session)?;
    self::session(session.dir.clone()).map_or(Ok(()), |dead| end(&dead, true))
}

/// Waits until nothing of the session is left.
fn await_end(session: &Session) -> Result<()> {
    let deadline = Instant::now() + FORCED_TIMEOUT;
    while is_running(&session.dir) {
        if Instant::now() >= deadline {
            let message = format!("the daemon of {} does not end", session.text("device"));
            return Err(Error::new(Code::Other, message));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
