//! A unit whose former daemon lives: it gets that back, instead of a second daemon that is refused.
//!
//! The stop of a unit fails while its device is in use, and a daemon whose kind of device ends with
//! it stays. systemd then starts the unit anew, beside the daemon that is left in its control
//! group.

use std::fs;

use sd_notify::NotifyState;

use crate::shared::error::Result;
use crate::shared::sessions::is_running;
use crate::shared::state::State;

/// The variable with the socket of the supervisor, if there is one.
const SUPERVISOR: &str = "NOTIFY_SOCKET";

/// Tells the supervisor that the daemon which has the export already is the unit's. False if there
/// is none in the control group of this process.
pub(super) fn give_back(export: &str) -> Result<bool> {
    if std::env::var_os(SUPERVISOR).is_none() {
        return Ok(false);
    }
    let group = |process: &str| fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    let own = group("self");
    for (dir, state) in State::all()? {
        let is_it = state.export == export && is_running(&dir);
        if !is_it || own.is_none() || group(&state.pid.to_string()) != own {
            continue;
        }
        let (pid, device) = (state.pid, state.device.display());
        let status = format!("connected as {device}, by the daemon that has been there");
        tracing::info!(export, pid, "the unit gets back its daemon, which is still there");
        let states = [NotifyState::MainPid(pid), NotifyState::Ready, NotifyState::Status(&status)];
        // Fails only if the supervisor that asked for it is gone.
        let _ = sd_notify::notify(false, &states);
        return Ok(true);
    }
    Ok(false)
}
