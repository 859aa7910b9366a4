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

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    #[test]
    fn an_empty_variable_names_no_directory() {
        const NAME: &str = "runtime::tests::an_empty_variable_names_no_directory";
        if env::var_os(RUNTIME_DIR_VARIABLE).is_some_and(|it| it.is_empty()) {
            assert_eq!(runtime_dir(), Path::new(ROOT));
            return;
        }
        // Once more in another process: the environment of this one is that of all its tests.
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", NAME]).env(RUNTIME_DIR_VARIABLE, "");
        let done = again.output().unwrap();
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{done:?}");
    }
}
