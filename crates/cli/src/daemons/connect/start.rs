//! The start of a daemon's session, of either protocol.

use tyche_fcoe::FcoeHost;
use tyche_native::Host;
use tyche_proto::ExportState;
use tyche_remote::Notice;
use tyche_session::Remote;
use uuid::Uuid;

use super::{ConnectArgs, MissingLink};
use crate::shared::error::Result;

/// The identity of a session, and the device that it is for.
pub(crate) struct Identity {
    pub(crate) session: Uuid,
    pub(crate) device: Uuid,
    /// The disk, as the former session of the device knew it.
    pub(crate) resumes: Option<ExportState>,
}

/// Starts a session, with a laboratory's wrapper around its disk; also returns warnings about its
/// links, and those that are missing.
pub(super) fn start(
    args: &ConnectArgs,
    identity: &Identity,
    notify: impl FnMut(Notice) + Send + 'static,
) -> Result<(Remote, Vec<String>, Vec<MissingLink>)> {
    let (mut remote, warnings, missing) = start_bare(args, identity, notify)?;
    if let Some(wrapper) = &args.session.link.wrapper {
        remote = remote.try_with_disk(|disk| wrapper.disk(disk, args.session.link.spin()))?;
    }
    Ok((remote, warnings, missing))
}

fn start_bare(
    args: &ConnectArgs,
    identity: &Identity,
    notify: impl FnMut(Notice) + Send + 'static,
) -> Result<(Remote, Vec<String>, Vec<MissingLink>)> {
    if args.fcoe.is_wanted() {
        let (options, name, warnings) = args.fcoe.options(&args.session, identity)?;
        let host = FcoeHost::start(options, notify)?;
        return Ok((Remote::fcoe(host, name), warnings, Vec::new()));
    }
    let (mut options, warnings, missing) = args.session.options(identity.session)?;
    options.session.device = identity.device;
    options.session.resumes = identity.resumes;
    Ok((Remote::tyche(Host::start(options, notify)?), warnings, missing))
}
