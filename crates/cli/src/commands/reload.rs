//! `tyche reload`: daemons of sessions go on as the program that is installed now.

use std::time::{Duration, Instant};

use clap::Args;
use uuid::Uuid;

use crate::output::{Format, show};
use crate::shared::complete;
use crate::shared::control::SessionRequest;
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::Output;
use crate::shared::seconds::positive;
use crate::shared::sessions::{Session, for_each, named};

/// The pause between two looks at a daemon that begins anew.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Have the daemon of a session go on as the program that is installed now.
///
/// For an upgrade while disks are mounted: the device stays, its requests wait until the daemon has
/// begun anew and serves it again, within a few seconds. That is possible with ublk, nbd and
/// vhost-user, whose devices outlive a daemon; the others keep the program that they have until
/// they are disconnected.
#[derive(Args, Debug)]
pub(crate) struct ReloadArgs {
    /// The export, the session's UUID (or how it begins), or the device.
    #[arg(required_unless_present = "all", add = complete::connected())]
    name: Option<String>,

    /// All sessions of this machine.
    #[arg(long, conflicts_with = "name")]
    all: bool,

    /// How long to wait for a daemon that begins anew. It goes on trying after that.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = positive)]
    timeout: f64,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn run(args: &ReloadArgs) -> Result<()> {
    let chosen = match &args.name {
        None => {
            let all = Session::all()?.into_iter();
            all.filter(|session| !session.is_dead() && !session.is_starting()).collect()
        }
        Some(name) => named(name)?,
    };
    let limit = Duration::from_secs_f64(args.timeout);
    let renewed = for_each(&chosen, |session| reload(session, limit))?;
    show(args.output, || Output::Reload { sessions: renewed }, String::new)
}

/// Has a daemon begin anew; returns the session that it has then.
fn reload(session: &Session, limit: Duration) -> Result<Uuid> {
    let record = &session.report.record;
    let about = format!("the daemon of `{}`", record.export);
    session.pass_on(&SessionRequest::Reload)?;
    let deadline = Instant::now() + limit;
    // A daemon that reports serves the device, whether or not it has lost the target since. It may
    // be another process: a supervisor starts a daemon again that has failed.
    let is_next = |it: &Session| {
        let is_other = it.report.record.session != record.session;
        is_other && it.identity() == session.identity() && it.report.figures().is_some()
    };
    loop {
        if let Some(next) = Session::all()?.into_iter().find(is_next) {
            return Ok(next.report.record.session);
        }
        if Instant::now() >= deadline {
            let message = format!(
                "{about} has not got its device back within {} s; its log: {}",
                limit.as_secs_f64(),
                record.log.as_deref().unwrap_or("none")
            );
            return Err(Error::new(Code::Unreachable, message));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
