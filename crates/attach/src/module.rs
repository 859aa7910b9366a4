//! Kernel modules.

use std::process::{Command, Stdio};

/// Tries to load a module; whether its driver opens shows the success.
pub(crate) fn load(name: &str) {
    let mut modprobe = Command::new("modprobe");
    modprobe.args(["--quiet", name]).stdin(Stdio::null()).stdout(Stdio::null());
    if let Err(error) = modprobe.stderr(Stdio::null()).status() {
        tracing::debug!(%error, "modprobe {name}");
    }
}
