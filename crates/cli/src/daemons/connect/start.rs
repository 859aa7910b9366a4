//! The start of a daemon's session: the place where its protocol is chosen.

use std::sync::Arc;

use tyche_fcoe::FcoeHost;
use tyche_native::HostSession;
use tyche_remote::{Notice, Remote};

use super::{ConnectArgs, MissingLink, Search, SessionIdentity, fcoe};
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
    identity: &SessionIdentity,
    notify: impl FnMut(Notice) + Send + 'static,
) -> Result<Started<'a>> {
    let session = &args.session;
    let mut started = if args.fcoe.is_wanted() {
        let (options, name, warnings) = args.fcoe.options(session, identity)?;
        let queues = session.common.queues.map_or(1, usize::from);
        let links: Vec<_> = session.common.links.iter().map(String::as_str).collect();
        session.placement.bind(queues, &links);
        let host = FcoeHost::start(options, notify)?;
        let control = host.control();
        let check = Box::new(move |is_last| {
            control.check(is_last).map_err(|it| fcoe::unreached(session, it))
        });
        Started { remote: host.into_remote(name), check, warnings, missing: Vec::new() }
    } else {
        let (mut options, warnings, missing) = session.options(identity.session)?;
        session.bind(std::slice::from_ref(&options));
        options.session.device = identity.device;
        options.session.resumes = identity.resumes;
        let remote = HostSession::start(options, notify)?.into_remote();
        let (mut search, control) = (Search::new(session), Arc::clone(remote.control()));
        let check = Box::new(move |is_last| search.check(control.report().as_ref(), is_last));
        Started { remote, check, warnings, missing }
    };
    if let Some(wrapper) = &session.link.wrapper {
        let wrap = |disk| wrapper.disk(disk, session.link.spin());
        started.remote = started.remote.try_with_disk(wrap)?;
    }
    Ok(started)
}
