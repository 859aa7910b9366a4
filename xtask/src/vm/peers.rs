//! `cargo xtask vm peers`.
use crate::Result;
pub(crate) fn run() -> Result<bool> {
    Err("not yet".to_owned())
}
