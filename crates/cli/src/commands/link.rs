//! `tyche link`: the links of a live session, or of a running target.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::output::{Format, show};
use crate::shared::complete;
use crate::shared::control::{SessionRequest, TargetRequest};
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::{DefinedBy, Output, TargetLinkChanged};
use crate::shared::seconds::positive;
use crate::shared::sessions::{Session, order};
use crate::shared::state::State;
use crate::shared::target_control::{AtArgs, FoundTarget};

/// Time limit until a link of a target is open, or removed, beyond what its disks take. The name of
/// an address may take long to be found.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Add links to a live session or a running target, or take them out, without a pause for requests.
///
/// At a target, a link that is added is kept in its state, and served after a restart as well; what
/// its configuration says wins. The same again changes nothing.
#[derive(Args, Debug)]
pub(crate) struct LinkCommand {
    #[command(subcommand)]
    action: Action,

    #[command(flatten)]
    at: AtArgs,

    /// How to print.
    #[arg(short, long, default_value_t, global = true)]
    pub(crate) output: Format,
}

#[derive(Subcommand, Debug)]
enum Action {
    Add(LinkArgs),
    Del(Used),
}

/// Stop using an interface.
///
/// Of a session: requests in flight move to the other links. The last link can't be removed.
///
/// Of a target: hosts are told, and their sessions go on over other links at once. When this
/// returns, no request that has come over it is with a disk; if that takes longer than --timeout,
/// the exit code is 9, and the link ends when it can. Refused with exit code 7 if it is the last
/// link, or the only one that a session has, unless --force is given. A link of the target's
/// configuration is served again when that is read again.
#[derive(Args, Debug)]
struct Used {
    /// The export, the session's UUID (or how it begins), or the device; or the target.
    #[arg(add = complete::connected_or_served())]
    name: String,

    /// The interface, or udp:, tcp: or rdma:HOST:PORT, as `tyche list` shows it.
    #[arg(add = complete::used_links())]
    link: String,

    /// NAME is a target, also if a session has that name.
    #[arg(long)]
    target: bool,

    /// Of a target: even if it is the last one, so that no host reaches it, or the only one of a
    /// session, which loses the target.
    #[arg(long)]
    force: bool,

    /// Of a target: how long to wait for requests that are with its disks.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = positive)]
    timeout: f64,
}

/// Use another interface, too.
///
/// Of a session: channels open as soon as the target is heard on it. Of a target: it is served when
/// this returns; hosts use it as soon as they hear the target there.
#[derive(Args, Debug)]
struct LinkArgs {
    /// The export, the session's UUID (or how it begins), or the device; or the target.
    #[arg(add = complete::connected_or_served())]
    name: String,

    /// The interface, or udp:, tcp: or rdma:HOST:PORT, as `tyche list` shows it.
    #[arg(add = complete::interfaces())]
    link: String,

    /// NAME is a target, also if a session has that name.
    #[arg(long)]
    target: bool,
}

/// The daemon that is meant.
enum Daemon {
    Session,
    Target(Box<FoundTarget>),
}

pub(crate) fn run(command: &LinkCommand) -> Result<()> {
    let (name, link, target) = match &command.action {
        Action::Add(LinkArgs { name, link, target }) => (name, link, *target),
        Action::Del(Used { name, link, target, .. }) => (name, link, *target),
    };
    match (find(&command.at, name, target)?, &command.action) {
        (Daemon::Target(target), Action::Add(_)) => {
            let request = TargetRequest::AddLink { link: link.clone() };
            change(*target, &request, CHANGE_TIMEOUT, command.output)
        }
        (Daemon::Target(target), Action::Del(Used { force, timeout, .. })) => {
            let limit_ms = (timeout * 1000.0).ceil() as u64;
            let request = TargetRequest::RemoveLink { link: link.clone(), force: *force, limit_ms };
            let limit = CHANGE_TIMEOUT + Duration::from_millis(limit_ms);
            change(*target, &request, limit, command.output)
        }
        (Daemon::Session, Action::Add(_)) => {
            change_session(name, link, &SessionRequest::AddLink { link: link.clone() }, command)
        }
        (Daemon::Session, Action::Del(Used { force: true, .. })) => {
            let message = "--force is for the last link of a target: a session keeps its last link";
            Err(Error::new(Code::Usage, message))
        }
        (Daemon::Session, Action::Del(_)) => {
            change_session(name, link, &SessionRequest::RemoveLink { link: link.clone() }, command)
        }
    }
}

/// The session or target of that name. If there is neither, the session's error says so.
///
/// # Errors
/// `Usage` if there are both; `Unreachable` if the target does not answer.
fn find(at: &AtArgs, name: &str, is_target: bool) -> Result<Daemon> {
    let is_target = is_target || at.is_elsewhere();
    let Some(target) = at.targets()?.into_iter().find(|it| it.report.name == name) else {
        if is_target {
            let (place, list) = (at.place(), at.list_command());
            let message = format!("no target `{name}` runs {place}; see {list}");
            return Err(Error::new(Code::NotFound, message));
        }
        return Ok(Daemon::Session);
    };
    if !is_target && Session::all()?.iter().any(|session| session.has_name(name)) {
        let message = format!(
            "`{name}` is a session and a target: name the session by its device or UUID, or give \
             --target"
        );
        return Err(Error::new(Code::Usage, message));
    }
    match &target.report.problem {
        Some(problem) => Err(Error::new(Code::Unreachable, format!("target {name}: {problem}"))),
        None => Ok(Daemon::Target(Box::new(target))),
    }
}

fn change_session(
    name: &str,
    link: &str,
    request: &SessionRequest,
    command: &LinkCommand,
) -> Result<()> {
    let State { session, export, .. } = order(name, request)?;
    let output = || Output::Link { session, export, link: link.to_owned() };
    show(command.output, output, String::new)
}

fn change(
    FoundTarget { mut control, report }: FoundTarget,
    request: &TargetRequest,
    limit: Duration,
    output: Format,
) -> Result<()> {
    let what = format_args!("target `{}`", report.name);
    let done: TargetLinkChanged = control.ask(request, limit, what)?;
    let is_removal = matches!(request, TargetRequest::RemoveLink { .. });
    show(output, || Output::TargetLink(done.clone()), || text(&done, is_removal))
}

/// The change in words.
fn text(done: &TargetLinkChanged, is_removal: bool) -> String {
    let TargetLinkChanged { target, link, changed, waits_for, defined_by } = done;
    let again = match defined_by {
        Some(DefinedBy::File) => "; its configuration has it, and it is again when that is read",
        Some(DefinedBy::CommandLine) => "; its command line has it, and it is again on SIGHUP",
        _ => "",
    };
    match (is_removal, changed, waits_for) {
        (true, true, _) => format!("{target} does not serve {link} any more{again}\n"),
        (true, false, _) => format!("{target} does not serve {link}\n"),
        (false, _, Some(why)) => format!("{target} waits for {link} already: {why}\n"),
        (false, true, None) => format!("{target} serves {link}\n"),
        (false, false, None) => format!("{target} serves {link} already\n"),
    }
}
