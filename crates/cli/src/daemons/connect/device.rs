//! The device of a session: made anew, or taken over.

use std::num::NonZeroU16;
use std::path::Path;

use tyche_attach::Attachment;
use tyche_remote::Remote;
use uuid::Uuid;

use super::ConnectArgs;
use super::predecessor::Predecessor;
use crate::shared::attach::{self, AttachOptions, Kind, Lasting};
use crate::shared::error::Result;

/// The attachment that the arguments ask for, with as many queues as the session has.
pub(super) fn options<'a>(
    args: &'a ConnectArgs,
    kind: Kind,
    identity: Uuid,
    dir: &'a Path,
    queues: usize,
) -> AttachOptions<'a> {
    AttachOptions {
        kind,
        export: &args.session.export,
        dir,
        socket: args.device.socket.as_deref(),
        identity,
        queues: NonZeroU16::new(queues as u16).expect("a session has 1 to 64"),
        depth: args.session.common.queue_size,
        growable: args.device.growable,
        answer_within: args.session.common.answer_within(),
    }
}

/// Creates the device or takes over the predecessor's; also returns what to record of it.
pub(super) fn make(
    options: &AttachOptions<'_>,
    host: &Remote,
    predecessor: Option<&Predecessor>,
) -> Result<(Box<dyn Attachment>, Option<Lasting>)> {
    let Some(predecessor) = predecessor else {
        let attachment = attach::attach(options, host)?;
        let device = attachment.device_path().to_owned();
        return Ok((attachment, Lasting::new(options, device)));
    };
    let attachment = predecessor.lasting.take_over(options, host)?;
    tracing::info!(device = %predecessor.lasting.device.display(), "taken over");
    Ok((attachment, Some(predecessor.lasting.clone())))
}
