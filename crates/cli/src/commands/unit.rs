//! The stop of a unit `tyche@.service`, which systemd calls: a device in use is never taken away.
//!
//! A restart hands the device over to the daemon that is started next, if its kind outlives a
//! daemon.
//! A stop fails while the device is in use: the unit is started again, which cancels the stop, and
//! the next daemon gets the device, or else the unit gets its daemon back.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::commands::disconnect::end_by;
use crate::shared::control::SessionRequest;
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::runtime;
use crate::shared::seconds::positive;
use crate::shared::sessions::Session;

/// Time limit for a daemon to leave its device.
const LEAVE: Duration = Duration::from_secs(10);
/// The variable with the unit's process, as systemd sets it.
const MAIN_PID: &str = "MAINPID";

/// Stop the daemon of a unit; for systemd.
#[derive(Args, Debug)]
pub(crate) struct UnitStopArgs {
    /// The unit.
    unit: String,

    /// How long to wait for a device in use, unless the unit is restarted: units that use it may be
    /// stopped at the same time.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = positive)]
    wait: f64,
}

pub(crate) fn stop(args: &UnitStopArgs) -> Result<()> {
    // Without a daemon there is nothing to stop: it has ended, or has died and is about to be
    // started again.
    let pid: Option<u32> = std::env::var(MAIN_PID).ok().and_then(|pid| pid.parse().ok());
    let Some(pid) = pid else { return Ok(()) };
    let is_its = |it: &Session| !it.is_dead() && it.report.record.pid == pid;
    let Some(session) = Session::all()?.into_iter().find(is_its) else { return Ok(()) };
    let restarts = is_restart(&args.unit);
    let wait = if restarts { Duration::ZERO } else { Duration::from_secs_f64(args.wait) };
    let stopped = end_by(&session, false, Instant::now() + wait);
    let Err(error) = stopped else { return Ok(()) };
    if error.code != Code::Device {
        return Err(error);
    }
    let lasts = session.report.record.lasting.is_some();
    if !restarts {
        // In the place of the stop, which fails with that: `systemctl stop` must not say that the
        // disk is gone.
        start(&args.unit)?;
    }
    if lasts {
        leave(&session)?;
    }
    match (restarts, lasts) {
        (true, true) => Ok(()),
        (true, false) => {
            let kind = session.report.record.kind.name();
            let what = "it keeps its daemon, and the program that it was started with";
            Err(Error::new(error.code, format!("{error}; a device of kind {kind} in use: {what}")))
        }
        (false, _) => Err(Error::new(error.code, format!("{error}; it stays connected"))),
    }
}

/// Has a daemon leave its device to the next one, and end.
fn leave(session: &Session) -> Result<()> {
    let about = format!("the daemon of `{}`", session.report.record.export);
    session.pass_on(&SessionRequest::Leave)?;
    match runtime::await_unlocked(&session.dir, LEAVE) {
        true => Ok(()),
        false => Err(Error::new(Code::Other, format!("{about} does not end"))),
    }
}

/// Whether the job that stops a unit restarts it.
fn is_restart(unit: &str) -> bool {
    let mut list = Command::new("systemctl");
    list.args(["list-jobs", "--plain", "--no-legend", "--", unit]).stdin(Stdio::null());
    let listed = list.output().map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    listed.is_ok_and(|listed| restarts(&listed, unit))
}

/// Whether a list of jobs (number, unit, type, state) has a restart of the unit.
fn restarts(listed: &str, unit: &str) -> bool {
    listed.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some(unit) && words.next() == Some("restart")
    })
}

/// Has systemd start a unit when its stop is over.
fn start(unit: &str) -> Result<()> {
    let mut start = Command::new("systemctl");
    let started = start.args(["--no-block", "start", "--", unit]).stdin(Stdio::null()).status();
    let started = started.context(Code::Other, "systemctl start")?;
    match started.success() {
        true => Ok(()),
        false => Err(Error::new(Code::Other, format!("systemctl start {unit}: {started}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_told_from_a_stop_and_from_the_jobs_of_others() {
        let unit = "tyche@a\\x2fb.service";
        let listed =
            |kind: &str| format!("12 other.service restart waiting\n7 {unit} {kind} running\n");
        assert!(restarts(&listed("restart"), unit));
        assert!(!restarts(&listed("stop"), unit));
        assert!(!restarts("", unit));
    }
}
