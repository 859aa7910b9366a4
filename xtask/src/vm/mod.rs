//! Virtual machines that run Debian's own kernels.
//!
//! They are emulated, so they run anywhere, and are some 15 times as slow as the real thing: good
//! for asking a kernel about what one doesn't have, not for measuring.
//!
//! There are two kinds. A [script](script) brings all that it needs in its archive, runs, and is
//! gone: that is how placement is proven. The [list](list) boots [guests](image) that have the
//! programs of this machine, and that tests on this machine talk to while they cut links and kill
//! targets outside.

mod archive;
mod image;
mod kernel;
mod list;
mod peers;
mod script;

use std::fs;
use std::path::PathBuf;

pub(crate) use kernel::Series;
pub(crate) use list::run;
pub(crate) use peers::run as compare;
pub(crate) use script::{Script, run as run_script};

use crate::{Result, target_dir};

/// Where kernels and what is made of them are.
fn dir() -> Result<PathBuf> {
    let dir = target_dir().join("vm");
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(dir)
}
