//! The context of the figures: the machine, the versions and the commit.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::process::{Result, Stop, run};

/// The machine and its software.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) fio: String,
    pub(crate) nbdkit: String,
    /// Commit of this project; followed by `, changed` if the files differ from it.
    pub(crate) commit: String,
    /// Date of the start, in UTC.
    pub(crate) date: String,
}

impl Machine {
    /// Collects the values of this machine; `built_from` is the commit that the programs are of,
    /// where they are not those of the sources here.
    pub(crate) fn look(built_from: Option<&str>, stop: &Stop) -> Result<Self> {
        let said = |program: &str, args: &[&str]| -> Result<String> {
            Ok(run(Command::new(program).args(args), stop)?.trim().to_owned())
        };
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let git = |args: &[&str]| said("git", &[&["-C", root], args].concat()).unwrap_or_default();
        let commit = built_from.map_or_else(
            || {
                let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
                git(&["rev-parse", "HEAD"]) + if changed.is_empty() { "" } else { ", changed" }
            },
            str::to_owned,
        );
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory_kib =
            field(&memory, "MemTotal").and_then(|it| it.split(' ').next()?.parse().ok());
        Ok(Self {
            cpu: field(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib.unwrap_or(0u64) << 10,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            fio: said("fio", &["--version"])?,
            nbdkit: said("nbdkit", &["--version"])?,
            commit,
            date: said("date", &["--utc", "+%Y-%m-%d %H:%M:%S"])?,
        })
    }
}

/// The value in the first line `NAME : VALUE`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(key, value)| (key.trim(), value.trim()))
        .find(|(key, _)| *key == name)
        .map(|it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "MemFree:  1 kB\nMemTotal:       24 kB\n";
        assert_eq!(field(text, "MemTotal"), Some("24 kB"));
        assert_eq!(field(text, "Mem"), None);
    }
}
