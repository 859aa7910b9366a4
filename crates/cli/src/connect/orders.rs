//! Orders to a session's daemon, and their answers.

use std::sync::mpsc::{SyncSender, sync_channel};

use tyche_engine::LinkError;
use tyche_session::{Control, log_warnings};

use super::SessionArgs;
use super::late::MissingLinks;
use crate::control::Answer;
use crate::error::{Code, Error, Result};

/// Answers an order to disconnect, in the thread of the connection. `hand_over` passes it on to the
/// daemon's loop together with the sender for its result; returns false if the loop has ended.
pub(super) fn disconnect(
    control: &Control,
    force: bool,
    hand_over: &dyn Fn(SyncSender<Result<()>>) -> bool,
) -> Answer {
    if force {
        // Immediately: this also ends an orderly disconnect that waits for a lost target.
        control.abort();
    }
    pass_on(hand_over)
}

/// Answers an order that the daemon's loop executes.
pub(super) fn pass_on(hand_over: &dyn Fn(SyncSender<Result<()>>) -> bool) -> Answer {
    let (answer, answered) = sync_channel(1);
    if !hand_over(answer) {
        return Answer::Done {};
    }
    match answered.recv() {
        Ok(result) => to_answer(result),
        Err(_) => Answer::Done {},
    }
}

/// The answer to an order: an empty object, or the error.
fn to_answer(result: Result<()>) -> Answer {
    result.map(|()| Answer::Done {}).into()
}

/// Begins to use another interface, or another place over IP, with the session's own options.
pub(super) fn add_link(
    control: &Control,
    args: &SessionArgs,
    name: &str,
    missing: &MissingLinks,
) -> Answer {
    let added = try_add_link(control, args, name);
    if added.is_ok() {
        missing.forget(name);
    }
    to_answer(added)
}

/// As [`add_link`].
pub(super) fn try_add_link(control: &Control, args: &SessionArgs, name: &str) -> Result<()> {
    if matches!(control, Control::Fcoe(_)) {
        return Err(fixed());
    }
    let placement = args.placement.placement()?;
    let open = |queue| {
        let (mut links, warnings) = args.open_links(&[name.to_owned()], &placement)?;
        if queue == 0 {
            log_warnings(&warnings);
        }
        Ok(links.remove(0))
    };
    let links = (0..control.queues()).map(open).collect::<Result<_>>()?;
    control.add_link(links).ok_or_else(fixed)?.map_err(|error| link_error(error, name))?;
    tracing::info!(link = name, "link added");
    Ok(())
}

/// Stops using an interface.
pub(super) fn remove_link(control: &Control, name: &str, missing: &MissingLinks) -> Answer {
    if missing.forget(name) {
        tracing::info!(link = name, "link, which was missing, removed");
        return Answer::Done {};
    }
    let removed = control.remove_link(name).ok_or_else(fixed);
    let removed = removed.and_then(|removed| removed.map_err(|error| link_error(error, name)));
    if removed.is_ok() {
        tracing::info!(link = name, "link removed");
    }
    to_answer(removed)
}

/// The error for a session that has one interface for good.
fn fixed() -> Error {
    let message = "a session over FCoE has one interface: connect anew over another";
    Error::new(Code::Usage, message)
}

fn link_error(error: LinkError, name: &str) -> Error {
    let (code, message) = match error {
        LinkError::InUse => (Code::Usage, format!("the session uses {name} already")),
        LinkError::Unknown => {
            let message = format!("the session does not use {name}; `tyche list` shows its links");
            (Code::NotFound, message)
        }
        LinkError::Last => {
            let message = format!(
                "{name} is the session's last link: add another one first, or use \
                 `tyche disconnect`"
            );
            (Code::Usage, message)
        }
        LinkError::Gone => (Code::Other, "the session is ending".to_owned()),
    };
    Error::new(code, message)
}
