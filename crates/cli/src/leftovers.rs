//! What daemons that died have left: devices that others take over or still use, and what the
//! daemons have written down. It stays, and is listed, until somebody ends it on purpose.

use std::fs::File;
use std::path::Path;

use uuid::Uuid;

use crate::attach::{Kind, Lasting, clean_stale, in_use};
use crate::connect::forget_device;
use crate::error::{Code, Error, Result};
use crate::state::State;
use crate::{presence, runtime};

/// Takes the lock of a directory whose process is dead.
pub(crate) fn lock_dead(dir: &Path) -> Option<File> {
    Some(dir).filter(|dir| !runtime::is_locked(dir)).and_then(|dir| runtime::lock(dir).ok()?)
}

/// Takes away what a dead daemon has left in its directory, which is locked, and of its device,
/// which nobody is to take over. What is in use stays, with what is known of it.
pub(crate) fn clear(dir: &Path, state: Option<&State>) {
    // Sessions that take over nobody's device have their own identity.
    let identity = state.and_then(|state| Some(state.lasting.as_ref()?.identity));
    let name = || dir.file_name()?.to_str()?.parse().ok();
    let is_clean = identity.or_else(name).is_none_or(|it| clean_stale(dir, it));
    if let Some(state) = state {
        forget_device(&state.device, state.session);
    }
    // As long as something is left, the next one tries again.
    let is_held =
        state.is_some_and(|state| state.kind.is_block_device() && presence::is_there(state));
    if is_clean && !is_held {
        runtime::remove(dir);
    }
}

/// The commands after which nothing is left of a session whose daemon is dead.
pub(crate) fn clearing(state: &State, waits: bool) -> Vec<String> {
    // By its own name, for the export may have another session by now.
    let disconnect = format!("tyche disconnect {}", state.session);
    if waits {
        return vec![format!("{disconnect} --force")];
    }
    let mut commands = presence::unmounts(&state.device);
    if !state.ended {
        commands.push(disconnect);
    }
    commands
}

/// Takes away what is left of a session whose daemon is dead, and whose device nobody can take
/// over.
pub(crate) fn clear_dead(dir: &Path, force: bool) -> Result<()> {
    let Some(_lock) = runtime::lock(dir)? else { return Ok(()) };
    let Some(mut state) = State::load(dir) else { return Ok(()) };
    // Without a daemon only its users keep such a device.
    let is_held = state.kind == Kind::Loop && presence::is_there(&state);
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
    // Whoever takes it over holds the lock until the directory is gone.
    if !dir.exists() {
        return Err(overtaken());
    }
    let _lock = runtime::lock(dir)?.ok_or_else(overtaken)?;
    let state = State::load(dir).ok_or_else(overtaken)?;
    left.remove(force)?;
    forget_device(&state.device, state.session);
    runtime::remove(dir);
    Ok(())
}

/// Takes away what dead daemons of an export have left, now that there is to be another one, but
/// for devices that it takes over and devices in use.
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

/// Takes back what dead daemons have told of devices that are gone: others get their names.
pub(crate) fn forget_gone() -> Result<()> {
    for (dir, state) in State::all()? {
        let is_left = |lasting: &Lasting| lasting.is_there().unwrap_or(true);
        if !runtime::is_locked(&dir) && !state.lasting.as_ref().is_some_and(is_left) {
            forget_device(&state.device, state.session);
        }
    }
    Ok(())
}
