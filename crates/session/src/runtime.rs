//! The run-time directory, in which processes of this machine find each other.

use std::path::PathBuf;

/// The default directory.
const ROOT: &str = "/run/tyche";
/// Environment variable that names another directory.
pub const RUNTIME_DIR_VARIABLE: &str = "TYCHE_RUNTIME_DIR";

/// The run-time directory.
pub fn runtime_dir() -> PathBuf {
    std::env::var_os(RUNTIME_DIR_VARIABLE).map_or_else(|| ROOT.into(), PathBuf::from)
}
