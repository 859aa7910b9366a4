//! The start of a daemon's session: the place where its protocol is chosen.

use std::sync::Arc;

use tyche_fcoe::FcoeHost;
use tyche_native::Host;
use tyche_remote::{Notice, Remote};

use super::{ConnectArgs, Identity, MissingLink, Search, fcoe};
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
    let (mut search, control) = (Search::new(&args.session), Arc::clone(remote.control()));
    let check = Box::new(move |is_last| search.check(control.report().as_ref(), is_last));
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
