//! The last attempt of a process that is to be the next daemon of a device and tries again and
//! again, kept beside the record of the dead daemon: without it, nobody would know why requests
//! wait.

use std::fs;
use std::path::Path;

use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::shared::readers;

/// Name of the file, in the dead session's directory.
const FILE: &str = "attempt.json";

/// See the [module](self).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// The process.
    pid: u32,
    /// The error with which it has failed.
    error: String,
}

impl Attempt {
    /// Keeps an attempt of this process in the directory of the dead session.
    pub(crate) fn keep(dir: &Path, error: &str) {
        let (path, aside) = (dir.join(FILE), dir.join("attempt.json.new"));
        let this = Self { pid: std::process::id(), error: error.to_owned() };
        let kept = serde_json::to_string(&this).map_err(Into::into).and_then(|text| {
            fs::write(&aside, text)?;
            readers::admit(&aside, Mode::RGRP);
            fs::rename(&aside, &path)
        });
        if let Err(error) = kept {
            tracing::debug!(%error, "`tyche list` does not show the attempt");
        }
    }

    /// The last attempt, in words; `None` if nobody tries.
    pub(crate) fn described(dir: &Path) -> Option<String> {
        let Self { pid, error } =
            serde_json::from_str(&fs::read_to_string(dir.join(FILE)).ok()?).ok()?;
        // Its number may be another program's by now.
        let name = |process: &str| fs::read_to_string(format!("/proc/{process}/comm")).ok();
        (name(&pid.to_string())? == name("self")?)
            .then(|| format!("its next daemon (process {pid}) tries again and again: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_told_as_long_as_its_process_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Attempt::described(dir.path()), None);
        Attempt::keep(dir.path(), "no link");
        let said = Attempt::described(dir.path()).unwrap();
        let pid = std::process::id();
        assert_eq!(said, format!("its next daemon (process {pid}) tries again and again: no link"));
        let other = r#"{"pid":4294967295,"error":"no link"}"#;
        fs::write(dir.path().join(FILE), other).unwrap();
        assert_eq!(Attempt::described(dir.path()), None);
    }
}
