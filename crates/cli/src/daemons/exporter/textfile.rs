//! Metrics in a file, for node_exporter's textfile collector.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Readable for everybody: another user's process reads it.
const MODE: u32 = 0o644;

/// Writes the file: readers see all of the text, or what was there before.
///
/// # Errors
/// Those of the file system.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    // Not `.prom`: it is not to be read yet.
    let mut aside = OsString::from(".");
    aside.push(name);
    aside.push(format!(".{}.new", std::process::id()));
    let aside = path.with_file_name(aside);
    let put = || {
        // Neither a file nor a link that others have put there.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&aside)?;
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    put().inspect_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&aside);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tyche.prom");
        for text in ["a 1\n", "b 2\n"] {
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        fs::create_dir(dir.path().join("d")).unwrap();
        assert!(write(&dir.path().join("d"), "c 3\n").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(write(&dir.path().join("none/tyche.prom"), "").is_err());
    }
}
