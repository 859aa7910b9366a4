//! `cargo xtask vm peers`: the same jobs for our devices and for others, in one guest.
//!
//! It is a test like those of the list, but with a release build of our programs, and its results
//! are kept in `bench/results-vm`.

use super::image;
use super::kernel::Series;
use crate::{Result, cargo, packages, root, succeeds};

/// Runs the comparison; false if a device failed or did not keep what was written.
pub(crate) fn run() -> Result<bool> {
    for needs in [packages::VM, packages::GUEST, packages::PEERS] {
        packages::install(needs)?;
    }
    image::make(Series::V6_12)?;
    let mut test = cargo();
    test.args(["test", "--release", "--package", "tyche", "--test", "vm", "--"]);
    test.args(["--ignored", "--exact", "peers::compare", "--nocapture"]);
    test.env("TYCHE_VM", super::dir()?);
    test.env("TYCHE_VM_RESULTS", root().join("bench/results-vm"));
    succeeds(&mut test)
}
