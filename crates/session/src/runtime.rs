//! The run-time directory, in which processes of this machine find each other.

use std::path::PathBuf;

/// The default directory.
const ROOT: &str = "/run/tyche";
/// Environment variable that names another directory.
pub const RUNTIME_DIR_VARIABLE: &str = "TYCHE_RUNTIME_DIR";

/// The run-time directory.
pub fn runtime_dir() -> PathBuf {
    set(RUNTIME_DIR_VARIABLE).map_or_else(|| ROOT.into(), PathBuf::from)
}

/// The value of an environment variable; an empty one is none.
pub fn set(variable: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(variable).filter(|value| !value.is_empty())
}
