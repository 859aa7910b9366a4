//! Orders to a session's daemon, and their answers.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tyche_remote::{Control, LinkChangeError};
use tyche_session::log_warnings;

use super::SessionArgs;
use crate::shared::control::{Asker, ControlAnswer};
use crate::shared::error::{Code, Error, Result};
use crate::{shared::attach, shared::block_device};

/// The time that a device must stay in use before an order to disconnect is refused: `udev` opens
/// devices that change for some milliseconds.
const BUSY_GRACE: Duration = Duration::from_secs(3);
/// The interval between two looks at the device's users.
const BUSY_RETRY: Duration = Duration::from_millis(50);

/// Answers an order to disconnect, in the thread of the connection. `hand_over` passes it on to the
/// daemon's loop together with the sender for its result; returns false if the loop has ended.
pub(super) fn disconnect(
    (control, device): (&dyn Control, &Path),
    force: bool,
    asker: &Asker<'_>,
    hand_over: &dyn Fn(SyncSender<Result<()>>) -> bool,
) -> ControlAnswer {
    if force {
        // Within 250 ms: this also ends an orderly disconnect that waits for a lost target.
        control.abort();
    } else if let Err(error) = await_unused(device, asker) {
        return to_answer(Err(error));
    }
    pass_on(hand_over)
}

/// Waits a little for the users of a device, as long as the asker waits, too: otherwise the device
/// would go some time after `tyche disconnect` was interrupted. A file system that is mounted here
/// is not expected to go.
fn await_unused(device: &Path, asker: &Asker<'_>) -> Result<()> {
    let deadline = Instant::now() + BUSY_GRACE;
    loop {
        let is_used = block_device::is_used(device);
        let is_late = || Instant::now() >= deadline || block_device::is_mounted(device);
        if !asker.waits() || is_used && is_late() {
            return Err(attach::in_use(device));
        }
        if !is_used {
            return Ok(());
        }
        thread::sleep(BUSY_RETRY);
    }
}

/// Answers an order that the daemon's loop executes.
pub(super) fn pass_on(hand_over: &dyn Fn(SyncSender<Result<()>>) -> bool) -> ControlAnswer {
    let (answer, answered) = sync_channel(1);
    if !hand_over(answer) {
        return ControlAnswer::Done {};
    }
    match answered.recv() {
        Ok(result) => to_answer(result),
        Err(_) => ControlAnswer::Done {},
    }
}

/// The answer to an order: an empty object, or the error.
pub(super) fn to_answer(result: Result<()>) -> ControlAnswer {
    result.map(|()| ControlAnswer::Done {}).into()
}

/// Begins to use another interface, or another place over IP, with the session's own options.
pub(super) fn add_link(control: &dyn Control, args: &SessionArgs, name: &str) -> Result<()> {
    let changes = control.links().ok_or_else(fixed)?;
    let placement = args.placement.placement()?;
    let open = |queue| {
        let (mut links, warnings) = args.open_links(&[name.to_owned()], &placement)?;
        if queue == 0 {
            log_warnings(&warnings);
        }
        Ok(links.remove(0))
    };
    let links = (0..control.queues()).map(open).collect::<Result<_>>()?;
    changes.add(links).map_err(|error| link_error(error, name))?;
    tracing::info!(link = name, "link added");
    Ok(())
}

/// Stops using an interface.
pub(super) fn remove_link(control: &dyn Control, name: &str) -> Result<()> {
    let changes = control.links().ok_or_else(fixed)?;
    changes.remove(name).map_err(|error| link_error(error, name))?;
    tracing::info!(link = name, "link removed");
    Ok(())
}

/// The error for a session that has one interface for good.
fn fixed() -> Error {
    let message = "a session over FCoE has one interface: connect anew over another";
    Error::new(Code::Usage, message)
}

fn link_error(error: LinkChangeError, name: &str) -> Error {
    let (code, message) = match error {
        LinkChangeError::InUse => (Code::Usage, format!("the session uses {name} already")),
        LinkChangeError::Unknown => {
            let message = format!("the session does not use {name}; `tyche list` shows its links");
            (Code::NotFound, message)
        }
        LinkChangeError::Last => {
            let message = format!(
                "{name} is the session's last link: add another one first, or use \
                 `tyche disconnect`"
            );
            (Code::Usage, message)
        }
        LinkChangeError::Gone => (Code::Other, "the session is ending".to_owned()),
    };
    Error::new(code, message)
}
