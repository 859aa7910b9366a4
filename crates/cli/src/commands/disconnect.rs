//! `tyche disconnect`: ends sessions, and clears what dead daemons have left.

use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::commands::list::remark;
use crate::output::{Format, show};
use crate::shared::control::{Done, SILENCE, SessionRequest, ask, ask_patiently, is_timeout};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::report::Output;
use crate::shared::runtime::CONTROL;
use crate::shared::seconds::positive;
use crate::shared::sessions::{Session, for_each, is_running, named};
use crate::{output, shared::complete, shared::leftovers};

/// Time limit for an orderly disconnect of a daemon that lives: the device's cache is written
/// first.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause before a device that is in use is tried again.
const IN_USE_RETRY: Duration = Duration::from_millis(100);
/// Time limit for a forced disconnect.
const FORCED_TIMEOUT: Duration = Duration::from_secs(10);

/// End a session: the device goes away.
#[derive(Args, Debug)]
pub(crate) struct DisconnectArgs {
    /// The export, the session's UUID (or how it begins), or the device.
    #[arg(required_unless_present = "all", add = complete::connected())]
    name: Option<String>,

    /// All sessions of this machine.
    #[arg(long, conflicts_with = "name")]
    all: bool,

    /// Even if the device is in use or the target lost: requests in progress fail with EIO.
    #[arg(long)]
    force: bool,

    /// Wait for up to this many seconds for a device that is in use, such as a mounted one.
    #[arg(long, value_name = "SECONDS", conflicts_with = "force", value_parser = positive)]
    wait: Option<f64>,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn run(args: &DisconnectArgs) -> Result<()> {
    let chosen = match &args.name {
        None => Session::all()?,
        Some(name) => named(name)?,
    };
    // One deadline for all: a machine that shuts down has no time for each.
    let deadline = Instant::now() + Duration::from_secs_f64(args.wait.unwrap_or(0.0));
    // A forced end kills a daemon that does not answer.
    let heard = Instant::now() + if args.force { Duration::ZERO } else { SILENCE };
    let chosen = chosen.into_iter().map(|session| session.heard(heard));
    let ended = for_each(&chosen.collect::<Vec<_>>(), |session| {
        end_by(session, args.force, deadline)?;
        // A forced end leaves a device that is still in use.
        if let Some(left) = Session::find(session.dir.clone()).as_ref().and_then(remark) {
            output::remark(format_args!("tyche: still in use: {}", left.trim_end()));
        }
        Ok(session.report.record.session)
    })?;
    show(args.output, || Output::Disconnect { sessions: ended }, String::new)
}

/// Ends a session; retries until the deadline while its device is in use.
pub(crate) fn end_by(session: &Session, force: bool, deadline: Instant) -> Result<()> {
    loop {
        match end(session, force) {
            Err(error) if error.code == Code::Device && Instant::now() < deadline => {
                std::thread::sleep(IN_USE_RETRY);
            }
            ended => return ended,
        }
    }
}

fn end(session: &Session, force: bool) -> Result<()> {
    if session.is_dead() {
        return match &session.left {
            Some(left) => leftovers::remove_left(&session.dir, left, force),
            None => leftovers::clear_dead(&session.dir, force),
        };
    }
    if session.is_starting() {
        return Err(session.not_started());
    }
    if session.is_silent() {
        return if force { kill(session) } else { Err(session.unanswered(SILENCE)) };
    }
    match end_daemon(session, force) {
        Err(_) if force && is_running(&session.dir) => kill(session),
        ended => ended,
    }
}

/// Has a session's daemon end it.
fn end_daemon(session: &Session, force: bool) -> Result<()> {
    let (socket, request) = (session.dir.join(CONTROL), SessionRequest::Disconnect { force });
    let asked = match force {
        true => ask(&socket, &request, FORCED_TIMEOUT),
        false => ask_patiently(&socket, &request, DISCONNECT_TIMEOUT),
    };
    match asked {
        Ok(Ok(Done {})) => await_end(session),
        Ok(Err(error)) => Err(error),
        Err(error) if is_timeout(&error) => Err(not_ended(session, &error)),
        // The daemon ended before it could answer.
        Err(_) => await_end(session),
    }
}

/// The error for a daemon that has not ended in time: its device keeps it busy, or it is stopped.
fn not_ended(session: &Session, error: &std::io::Error) -> Error {
    if Session::find(session.dir.clone()).is_none_or(|it| it.is_silent()) {
        return session.unanswered(SILENCE);
    }
    let (device, limit) = (session.report.device(), DISCONNECT_TIMEOUT.as_secs());
    let message = format!("{device} is not released within {limit} s: {error}");
    Error::new(Code::Device, message)
}

/// Ends a session by killing its daemon, which is stopped or stuck.
fn kill(session: &Session) -> Result<()> {
    let pid = i32::try_from(session.report.record.pid).ok();
    let process = pid.and_then(Pid::from_raw).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    // The process that holds the lock has written its PID beside it.
    if let Some(Ok(process)) = process.filter(|_| is_running(&session.dir)) {
        let device = session.report.device();
        output::remark(format_args!("tyche: the daemon of {device} does not end: killed"));
        let killed = pidfd_send_signal(process, Signal::KILL);
        killed.map_err(std::io::Error::from).context(Code::Permission, "kill the daemon")?;
    }
    await_end(session)?;
    Session::find(session.dir.clone()).map_or(Ok(()), |dead| end(&dead, true))
}

/// Waits until nothing of the session is left.
fn await_end(session: &Session) -> Result<()> {
    let deadline = Instant::now() + FORCED_TIMEOUT;
    while is_running(&session.dir) {
        if Instant::now() >= deadline {
            let message = format!("the daemon of {} does not end", session.report.device());
            return Err(Error::new(Code::Other, message));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
