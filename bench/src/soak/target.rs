//! A target on one side: a file served write-through.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::network::{Network, Side};
use crate::process::{Doing, Result, Running, Stop, failed};

/// Name and size of the target's disk.
pub(super) const EXPORT: &str = "soak";
const SIZE: u64 = 256 << 20;
/// Time limit for a target to start.
const READY: Duration = Duration::from_secs(30);

/// A running target.
pub(super) struct Target(Running);

impl Target {
    /// Starts a target on all of its side's interfaces, and waits until it serves.
    pub(super) fn start(tyche: &Path, network: &Network, dir: &Path, stop: &Stop) -> Result<Self> {
        let file = dir.join("disk.img");
        let disk =
            File::options().create(true).append(true).open(&file).doing("the disk's file")?;
        disk.set_len(SIZE).doing("the disk's file")?;
        let mut serve = network.inside(Side::Target, &tyche.to_string_lossy());
        serve.args(["serve", "--name", "soak", "--export"]);
        serve.arg(format!("{EXPORT}={}", file.display())).env("TYCHE_RUNTIME_DIR", dir.join("run"));
        serve.env("TYCHE_STATE_DIR", dir.join("state"));
        serve.env("TYCHE_KNOWN_TARGETS", dir.join("known-targets"));
        let mut running = Running::start(&mut serve)?;
        let ready = stop.until(READY, || {
            running.check()?;
            Ok(!running.output()?.is_empty())
        })?;
        if ready { Ok(Self(running)) } else { failed("the target does not serve") }
    }

    /// Kills the target as a power failure would. Its log is appended to a file.
    pub(super) fn kill(self, log: &Path) -> Result<()> {
        let said = self.0.kill()?;
        let log = File::options().create(true).append(true).open(log);
        log.and_then(|mut log| log.write_all(said.as_bytes())).doing("the target's log")
    }
}
