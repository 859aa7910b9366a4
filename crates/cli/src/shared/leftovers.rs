//! Leftovers of dead daemons: devices that another daemon can take over or that are still in use,
//! and the daemons' records. They stay, and are listed, until a user removes them.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use crate::shared::attach::{Kind, Lasting, clean_stale, in_use};
use crate::shared::attempt::Attempt;
use crate::shared::device_name::forget_device;
use crate::shared::error::{Code, Error, Result};
use crate::shared::state::State;
use crate::{shared::block_device, shared::runtime};

/// Time limit for an attempt to take over a device that is to be removed; by default it takes 10 s.
const ATTEMPT: Duration = Duration::from_secs(30);

/// Takes the lock of a directory whose process is dead.
pub(crate) fn lock_dead(dir: &Path) -> Option<File> {
    Some(dir).filter(|dir| !runtime::is_locked(dir)).and_then(|dir| runtime::lock(dir).ok()?)
}

/// Removes the leftovers of a dead daemon: those in its directory, which must be locked, and its
/// device, which nobody is to take over. A device in use stays, with its record.
pub(crate) fn clear(dir: &Path, state: Option<&State>) {
    // The device of a session without a predecessor has the session's identity.
    let identity = state.and_then(|state| Some(state.lasting.as_ref()?.identity));
    let name = || dir.file_name()?.to_str()?.parse().ok();
    let is_clean = identity.or_else(name).is_none_or(|it| clean_stale(dir, it));
    if let Some(state) = state {
        forget_device(&state.device, state.session);
    }
    // As long as something is left, the next call tries again.
    let is_held = state.is_some_and(|state| state.kind.is_block_device() && state.has_device());
    if is_clean && !is_held {
        runtime::remove(dir);
    }
}

/// The commands that remove everything that is left of a session whose daemon is dead.
pub(crate) fn clearing(state: &State, waits: bool) -> Vec<String> {
    // By the session's own UUID: the export may have another session by now.
    let disconnect = format!("tyche disconnect {}", state.session);
    if waits {
        return vec![format!("{disconnect} --force")];
    }
    let mut commands = block_device::unmounts(&state.device);
    if !state.ended {
        commands.push(disconnect);
    }
    commands
}

/// Removes the leftovers of a session whose daemon is dead and whose device cannot be taken over.
pub(crate) fn clear_dead(dir: &Path, force: bool) -> Result<()> {
    let Some(_lock) = runtime::lock(dir)? else { return Ok(()) };
    let Some(mut state) = State::load(dir) else { return Ok(()) };
    // Without a daemon such a device exists only while it is in use.
    let is_held = state.kind == Kind::Loop && state.has_device();
    if is_held && !force && !state.ended {
        return Err(in_use(&state.device));
    }
    state.ended = true;
    state.save(dir)?;
    clear(dir, Some(&state));
    Ok(())
}

/// Removes the device that a dead daemon has left, unless another has taken it over meanwhile.
pub(crate) fn remove_left(dir: &Path, left: &Lasting, force: bool) -> Result<()> {
    let overtaken = || {
        let device = left.device.display();
        let message = format!("{device} has another daemon meanwhile: see `tyche list`");
        Error::new(Code::Usage, message)
    };
    // A daemon that takes it over holds the lock until the directory is gone.
    if !dir.exists() {
        return Err(overtaken());
    }
    if force && Attempt::described(dir).is_some() {
        // Between two attempts.
        runtime::await_unlocked(dir, ATTEMPT);
    }
    let _lock = runtime::lock(dir)?.ok_or_else(overtaken)?;
    let state = State::load(dir).ok_or_else(overtaken)?;
    left.remove(force)?;
    forget_device(&state.device, state.session);
    runtime::remove(dir);
    Ok(())
}

/// Removes the leftovers of dead daemons of an export before it gets a new one, except devices that
/// can be taken over and devices in use.
pub(crate) fn clear_predecessors(export: &str, host: Uuid) -> Result<()> {
    let is_it = |state: &State| state.export == export && state.host == host;
    for (dir, state) in State::all()?.into_iter().filter(|(_, state)| is_it(state)) {
        let is_left = |lasting: &Lasting| lasting.is_there().unwrap_or(true);
        if !state.lasting.as_ref().is_some_and(is_left)
            && let Some(_lock) = lock_dead(&dir)
        {
            let (session, pid) = (state.session, state.pid);
            tracing::warn!(export, %session, pid, "the daemon of an earlier session has died");
            clear(&dir, Some(&state));
        }
    }
    Ok(())
}

/// Removes the udev files of devices that are gone: their names may be used again.
pub(crate) fn forget_gone() -> Result<()> {
    for (dir, state) in State::all()? {
        let is_left = |lasting: &Lasting| lasting.is_there().unwrap_or(true);
        if !runtime::is_locked(&dir) && !state.lasting.as_ref().is_some_and(is_left) {
            forget_device(&state.device, state.session);
        }
    }
    Ok(())
}
