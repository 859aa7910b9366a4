//! The systemd generator: enables `tyche@EXPORT.service` for lines of tychetab.
//!
//! systemd calls it at boot and at each reload, before anything but the root and /usr is mounted;
//! its only place for messages is the kernel's log. So a mistake in a line affects that line alone,
//! and a missing tychetab is no error (systemd.generator(7)).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::daemons::connect::Entry;
use crate::output::remark;
use crate::shared::error::{Code, Context, Result};
use crate::shared::tab::{self, Tab};

/// The template unit: each export is an instance.
const TEMPLATE: &str = "/usr/lib/systemd/system/tyche@.service";
/// The directory of units that multi-user.target wants. The instances are not ordered before it: a
/// Tyche target that does not answer must not delay the boot.
const WANTED_BY: &str = "multi-user.target.wants";

/// Be a generator of systemd.
#[derive(Args, Debug)]
pub(crate) struct GenerateUnitsArgs {
    /// Where units of ordinary priority go.
    normal: PathBuf,

    /// Where units go that override the administrator's; unused.
    _early: Option<PathBuf>,

    /// Where units go that everything else overrides; unused.
    _late: Option<PathBuf>,

    /// The file that lists the exports.
    #[arg(long, value_name = "FILE", default_value = tab::PATH)]
    tab: PathBuf,
}

pub(crate) fn generate(args: &GenerateUnitsArgs) -> Result<()> {
    let tab = match Tab::read(&args.tab) {
        Err(error) if error.code == Code::NotFound => return Ok(()),
        tab => tab?,
    };
    let dir = args.normal.join(WANTED_BY);
    let mut failed = None;
    for line in tab.into_lines() {
        let linked = match Entry::of(&line) {
            Ok(entry) if entry.auto => want(&dir, &line.export),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = linked {
            remark(format_args!("tyche: {error}"));
            failed = Some(error);
        }
    }
    failed.map_or(Ok(()), |error| {
        Err(crate::shared::error::Error { message: String::new(), ..error })
    })
}

/// Enables an export's unit at boot.
fn want(dir: &Path, export: &str) -> Result<()> {
    let link = dir.join(format!("tyche@{}.service", escape(export)));
    let made = fs::create_dir_all(dir).and_then(|()| symlink(TEMPLATE, &link));
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.context(Code::Other, link.display()),
    }
}

/// Escapes a string for a unit's name, as `systemd-escape` does.
pub(crate) fn escape(text: &str) -> String {
    let escaped = text.bytes().enumerate().map(|(index, byte)| match byte {
        b'/' => "-".to_owned(),
        b'.' if index == 0 => format!("\\x{byte:02x}"),
        b':' | b'_' | b'.' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_systemd_does() {
        let pairs = [
            ("vm1", "vm1"),
            ("vg0/vm-1", r"vg0-vm\x2d1"),
            (".a.b:c_d", r"\x2ea.b:c_d"),
            ("ä b@", r"\xc3\xa4\x20b\x40"),
        ];
        for (plain, escaped) in pairs {
            assert_eq!(escape(plain), escaped);
        }
    }

    #[test]
    fn lines_that_make_sense_are_wanted_whatever_the_others_say() {
        let dir = tempfile::tempdir().unwrap();
        let tab = dir.path().join("tychetab");
        fs::write(&tab, "vm1 - nonsense\nvm-2 eth0\nvm3 - noauto\nvm-2\n").unwrap();
        let normal = dir.path().join("units");
        let args = || GenerateUnitsArgs {
            normal: normal.clone(),
            _early: None,
            _late: None,
            tab: tab.clone(),
        };
        assert_eq!(generate(&args()).unwrap_err().code, Code::Config);
        let entries = fs::read_dir(normal.join(WANTED_BY)).unwrap();
        let names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, [r"tyche@vm\x2d2.service"]);
        fs::remove_file(&tab).unwrap();
        generate(&args()).unwrap();
    }
}
