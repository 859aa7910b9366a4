//! The configuration file, read while somebody may be writing it.
//!
//! A file that is half-written must not count: a host would be shut out whose lines are still to
//! come, or an export be everybody's whose `allow` is. A file that is written under another name
//! and renamed is always whole. Of the others, a moment in which they are not is recognized where
//! that is possible, and waited for.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::config::Config;
use crate::shared::error::{Code, Error, Result};

/// Pause before a file is read again that may be half-written.
const AGAIN: Duration = Duration::from_millis(100);
/// The most attempts. Fewer: an editor that takes its time is refused. More: a mistake is told
/// late.
const ATTEMPTS: u32 = 10;

/// Reads a file whose content is to take the place of another: `was_empty` says whether that had
/// none. One with a mistake may be half-written, too, and is read again.
///
/// # Errors
/// `Config` if it has a mistake, or may be half-written, after the last attempt.
pub(super) fn read(path: &Path, was_empty: bool) -> Result<(Config, String)> {
    again_and_again(|| {
        let text = text(path, was_empty)?;
        Ok((Config::parse(&text, path)?, text))
    })
}

/// Reads a file when the target starts. One without a newline at its end is waited for, and taken:
/// there is nothing that could be served instead.
///
/// # Errors
/// As [`read`]; a mistake is told at once.
pub(crate) fn read_at_start(path: &Path) -> Result<Config> {
    fs::metadata(path).map_err(|error| wrong(path, &error.to_string()))?;
    let text = again_and_again(|| text(path, true)).or_else(|doubt| {
        let text = fs::read_to_string(path).map_err(|error| wrong(path, &error.to_string()))?;
        tracing::warn!("{doubt}");
        Ok::<_, Error>(text)
    })?;
    Config::parse(&text, path)
}

fn again_and_again<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match attempt() {
            Err(error) if left == 0 => return Err(error),
            Err(_) => thread::sleep(AGAIN),
            done => return done,
        }
    }
}

fn wrong(path: &Path, what: &str) -> Error {
    Error::new(Code::Config, format!("{}: {what}", path.display()))
}

/// The text of a file.
///
/// # Errors
/// It can't be read, or it may be half-written: it has changed meanwhile, does not end with a
/// newline, or is empty and was not. Of a pipe that is not known.
fn text(path: &Path, was_empty: bool) -> Result<String> {
    let failed = |error: std::io::Error| wrong(path, &error.to_string());
    let mut file = File::open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    if !before.is_file() {
        return Ok(text);
    }
    // By its path: it may be another file by now.
    let after = fs::metadata(path).map_err(failed)?;
    let doubt = if version(&before) != version(&after) || text.len() as u64 != before.len() {
        "it is being written; nothing of it is taken until it is whole"
    } else if text.is_empty() && !was_empty {
        "it is empty, and was not: it may be half-written; a line with a comment says that it is \
         meant to be like that"
    } else if !text.is_empty() && !text.ends_with('\n') {
        "it does not end with a newline: it may be half-written"
    } else {
        return Ok(text);
    };
    Err(wrong(path, doubt))
}

/// The version of a file: another if it was written, or is another file.
fn version(file: &Metadata) -> impl PartialEq {
    (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const WHOLE: &str = "name = \"a\"\n[[export]]\nname = \"b\"\npath = \"mem:1M\"\n";

    #[test]
    fn a_half_written_file_is_refused_in_bounded_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("target.toml");
        for (text, said) in [
            ("", "it is empty, and was not"),
            ("name = \"a\"", "does not end with a newline"),
            (&WHOLE[..WHOLE.len() - 1], "does not end with a newline"),
            ("name = \"a\"\n[[export]]\nname = \"b\"\n", "missing field `path`"),
            ("link = [\n", "line 1"),
        ] {
            fs::write(&path, text).unwrap();
            let began = Instant::now();
            let error = read(&path, false).unwrap_err();
            assert!(error.code == Code::Config && error.message.contains(said), "{error}");
            assert!(error.message.contains("target.toml"), "{error}");
            assert!(began.elapsed() >= AGAIN * (ATTEMPTS - 1), "it was read again");
        }
        fs::write(&path, "").unwrap();
        assert!(read(&path, true).is_ok(), "nothing was in it before");
        fs::write(&path, "# nothing\n").unwrap();
        assert!(read(&path, false).is_ok(), "so it is meant");
    }

    #[test]
    fn a_file_that_becomes_whole_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("target.toml");
        fs::write(&path, &WHOLE[..20]).unwrap();
        let mut attempts = 0;
        let taken = again_and_again(|| {
            attempts += 1;
            if attempts == 3 {
                let next = dir.path().join("next");
                fs::write(&next, WHOLE).unwrap();
                fs::rename(&next, &path).unwrap();
            }
            text(&path, false)
        });
        assert_eq!((taken.unwrap().as_str(), attempts), (WHOLE, 3));
        assert_eq!(read(&path, false).unwrap().0.export.len(), 1);
    }

    #[test]
    fn a_file_without_a_newline_is_taken_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("target.toml");
        fs::write(&path, "name = \"a\"").unwrap();
        assert_eq!(read_at_start(&path).unwrap().name.as_deref(), Some("a"));
        fs::remove_file(&path).unwrap();
        assert_eq!(read_at_start(&path).unwrap_err().code, Code::Config);
    }
}
