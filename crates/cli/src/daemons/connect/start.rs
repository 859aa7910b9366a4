//! The start of a daemon's session: the place where its protocol is chosen.

use std::sync::Arc;

use tyche_fcoe::FcoeHost;
use tyche_native::Host;
use tyche_proto::Problem;
use tyche_remote::{Control, Notice, Remote};

use super::refusal::Absence;
use super::{ConnectArgs, Identity, MissingLink, SessionArgs, fcoe};
use crate::shared::error::Result;

/// A session that was started, and is not connected yet.
pub(super) struct Started<'a> {
    pub(super) remote: Remote,
    /// Looks why it is not, the `last` time when its time is over.
    ///
    /// # Errors
    /// The reason, if there is no use in waiting longer.
    pub(super) check: Box<dyn FnMut(bool) -> Result<()> + 'a>,
    /// Warnings about its links.
    pub(super) warnings: Vec<String>,
    /// Its links that are missing.
    pub(super) missing: Vec<MissingLink>,
}

/// Starts a session, with a laboratory's wrapper around its disk.
pub(super) fn start<'a>(
    args: &'a ConnectArgs,
    identity: &Identity,
    notify: impl FnMut(Notice) + Send + 'static,
) -> Result<Started<'a>> {
    let mut started = if args.fcoe.is_wanted() {
        start_fcoe(args, identity, notify)?
    } else {
        start_native(args, identity, notify)?
    };
    if let Some(wrapper) = &args.session.link.wrapper {
        let wrap = |disk| wrapper.disk(disk, args.session.link.spin());
        started.remote = started.remote.try_with_disk(wrap)?;
    }
    Ok(started)
}

fn start_native<'a>(
    args: &'a ConnectArgs,
    identity: &Identity,
    notify: impl FnMut(Notice) + Send + 'static,
) -> Result<Started<'a>> {
    let (mut options, warnings, missing) = args.session.options(identity.session)?;
    options.session.device = identity.device;
    options.session.resumes = identity.resumes;
    let remote = Host::start(options, notify)?.into_remote();
    let mut search = Search::new(&args.session, Arc::clone(remote.control()));
    let check = Box::new(move |is_last| search.check(is_last));
    Ok(Started { remote, check, warnings, missing })
}

fn start_fcoe<'a>(
    args: &'a ConnectArgs,
    identity: &Identity,
    notify: impl FnMut(Notice) + Send + 'static,
) -> Result<Started<'a>> {
    let (options, name, warnings) = args.fcoe.options(&args.session, identity)?;
    let host = FcoeHost::start(options, notify)?;
    let control = host.control();
    let check = Box::new(move |is_last| {
        control.check(is_last).map_err(|it| fcoe::unreached(&args.session, it))
    });
    Ok(Started { remote: host.into_remote(name), check, warnings, missing: Vec::new() })
}

/// The search of a session for its target, as far as the reasons are concerned why it takes long.
struct Search<'a> {
    args: &'a SessionArgs,
    control: Arc<dyn Control>,
    looked: Absence,
    /// Whether the target was compared with the known one.
    compared: bool,
}

impl<'a> Search<'a> {
    fn new(args: &'a SessionArgs, control: Arc<dyn Control>) -> Self {
        Self { args, control, looked: Absence::default(), compared: false }
    }

    fn check(&mut self, is_last: bool) -> Result<()> {
        let args = self.args;
        let report = self.control.report();
        let problem = report.as_ref().and_then(|report| report.problem);
        let unoffered = match problem {
            None => is_last,
            problem => problem == Some(Problem::NoOffer),
        };
        if unoffered && let Some(error) = self.looked.look(args, is_last)? {
            return Err(error);
        }
        // A known target that has another UUID now is none that offers the export.
        let is_unproven = problem.is_some_and(SessionArgs::is_unproven);
        if (unoffered && is_last || is_unproven && !std::mem::replace(&mut self.compared, true))
            && let Some(error) = args.changed_target()?
        {
            return Err(error);
        }
        if is_last { Err(args.unreachable(report.as_ref())) } else { Ok(()) }
    }
}
