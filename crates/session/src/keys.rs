//! Files with keys: one secret key each, which nobody but its owner may read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;
use tyche_proto::crypto::{BadKey, SecretKey};
use zeroize::Zeroizing;

/// The file of this machine's key, unless another is given.
pub const KEY_FILE: &str = "/etc/tyche/key";
/// A file with more bytes is none with a key.
const LEN_MAX: u64 = 256;

/// Why a file gives no key.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// It cannot be opened, read or made.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It is not there.
    #[error("{path}: no such file; `tyche key generate {path}` makes a key there",
        path = .0.display())]
    Missing(PathBuf),
    /// Others may read it, or change it.
    #[error(
        "{path}: others than its owner can read or change the key in it; remove it and make \
         another with `tyche key generate {path}`, or, if nobody has seen it, run `chmod 600 \
         {path}`",
        path = .0.display()
    )]
    Open(PathBuf),
    /// It holds no key.
    #[error("{}: {why}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// The mistake in its text.
        why: BadKey,
    },
}

/// Reads a secret key.
///
/// # Errors
/// See [`KeyFileError`].
pub fn read_key(path: &Path) -> Result<SecretKey, KeyFileError> {
    let io = |error| KeyFileError::Io { path: path.to_owned(), error };
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing(path.to_owned()),
        _ => io(error),
    })?;
    let metadata = file.metadata().map_err(io)?;
    let mut text = Zeroizing::new(String::new());
    file.take(LEN_MAX).read_to_string(&mut text).map_err(io)?;
    let key = text.trim().parse();
    let key = key.map_err(|why| KeyFileError::Bad { path: path.to_owned(), why })?;
    if metadata.mode() & 0o077 != 0 {
        return Err(KeyFileError::Open(path.to_owned()));
    }
    Ok(key)
}

/// Makes a new secret key in a file that is not there yet.
///
/// # Errors
/// `Io`, also if the file is there.
pub fn make_key(path: &Path) -> Result<SecretKey, KeyFileError> {
    let io = |error| KeyFileError::Io { path: path.to_owned(), error };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(io)?;
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    let key = SecretKey::generate();
    let text = key.to_text();
    let written = writeln!(file, "{}", *text).and_then(|()| file.sync_all());
    written.map_err(io)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_read_from_the_file_that_was_made_and_from_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/key");
        let said = read_key(&path).unwrap_err().to_string();
        assert!(said.contains(&format!("tyche key generate {}", path.display())), "{said}");
        let key = make_key(&path).unwrap();
        assert_eq!(read_key(&path).unwrap(), key);
        let again = make_key(&path).unwrap_err();
        assert!(matches!(&again, KeyFileError::Io { error, .. }
            if error.kind() == io::ErrorKind::AlreadyExists));
        for mode in [0o640, 0o604, 0o620, 0o610] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let said = read_key(&path).unwrap_err().to_string();
            assert!(said.contains("chmod 600") && said.contains("new/key"), "{said}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert!(read_key(&path).is_ok());
        let said = read_key(Path::new("/etc/passwd")).unwrap_err().to_string();
        assert!(said.contains("not a key") && !said.contains("chmod"), "{said}");
        for (text, said) in [("", "43 letters"), (&key.public().to_string(), "public key")] {
            let path = dir.path().join("other");
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let error = read_key(&path).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
