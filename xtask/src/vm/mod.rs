//! Virtual machines that run Debian's own kernels.
//!
//! They are emulated, so they run anywhere, and are some 15 times as slow as real ones: good for
//! testing with kernels that this machine does not run, not for measuring.
//!
//! There are two kinds. A [script] contains all that it needs in its archive, runs, and
//! ends: the tests of placement use it. The [list] boots [guests](image) with the programs of
//! this machine, or with a [Debian](debian) of their own; some run [PostgreSQL](postgres). Tests on
//! this machine control them, while they cut links and kill targets outside.

mod archive;
mod debian;
mod image;
mod kernel;
mod list;
mod peers;
mod postgres;
mod script;

use std::fs;
use std::path::PathBuf;

pub(crate) use kernel::Series;
pub(crate) use list::run;
pub(crate) use peers::run as compare;
pub(crate) use script::{Script, run as run_script};

use crate::{Result, target_dir};

/// The directory of kernels and images.
fn dir() -> Result<PathBuf> {
    let dir = target_dir().join("vm");
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(dir)
}
