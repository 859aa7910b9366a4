//! A device that is left to the next daemon, which may be this process again, as another program.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::installed;
use crate::error::{Code, Context, Error, Result};
use crate::state::State;

/// Checks that the device of a session can be left to the next daemon. Returns the program that is
/// to be that, if this process is to go on `again` as such.
///
/// # Errors
/// `Device` if the device ends with its daemon; `NotFound` if there is no program.
pub(super) fn may_leave(state: &State, again: bool) -> Result<Option<PathBuf>> {
    let State { device, kind, lasting, .. } = state;
    if lasting.is_none() {
        let message = format!(
            "{} ends with its daemon, as each device of kind {}: disconnect it when it is not in \
             use, and connect it anew",
            device.display(),
            kind.name()
        );
        return Err(Error::new(Code::Device, message));
    }
    if !again {
        return Ok(None);
    }
    let gone = || Error::new(Code::NotFound, "the program is not where it was started from");
    installed().map(Some).ok_or_else(gone)
}

/// Goes on as that program, with the same arguments, in the same process.
///
/// # Errors
/// Its descriptors can't be kept from the program.
pub(super) fn go_on_as(program: PathBuf, detached: bool) -> Result<()> {
    tyche_attach::keep_from_children().context(Code::Other, "close_range")?;
    let mut given = std::env::args_os();
    let mut next = Command::new(program);
    next.arg0(given.next().unwrap_or_else(|| "tyche".into()));
    next.args(given.next());
    if detached {
        next.args(["--daemon", "--reloaded"]);
    }
    next.args(given.filter(|it| it != "--daemon" && it != "--reloaded"));
    let error = next.exec();
    // The device waits for another daemon now, as after a crash.
    tracing::error!("cannot begin anew: {error}");
    crate::log::flush();
    std::process::abort()
}
