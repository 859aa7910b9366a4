//! Kernel modules.

use std::process::{Command, Stdio};

/// Tries to load a module. Callers find out about success when they open the driver.
pub(crate) fn load(name: &str) {
    let mut modprobe = Command::new("modprobe");
    modprobe.args(["--quiet", name]).stdin(Stdio::null()).stdout(Stdio::null());
    if let Err(error) = modprobe.stderr(Stdio::null()).status() {
        tracing::debug!(%error, "modprobe {name}");
    }
}
