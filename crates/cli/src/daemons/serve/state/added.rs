//! The exports and the links that were added by command, which outlive the target's process.

use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::config::{DefinedAt, Export};
use super::leftover::Leftover;
use super::record::replace;
use crate::shared::error::{Code, Error, Result};

/// An entry of the file of the exports: one of those, or a file in a pool that is to be none.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Export(&'a Export),
    Leftover(&'a Leftover),
}

/// Reads the exports in a file, and the files in pools that are to be no exports; none if there is
/// no file.
///
/// # Errors
/// `Config` if the file can't be read: without it, exports would be gone that hosts rely on.
pub(super) fn read(path: &Path) -> Result<(Vec<Export>, Vec<Leftover>)> {
    let remedy = "it has the exports that `tyche export add` has added: mend it, or remove it and \
                  add them again";
    let entries: Vec<Value> = read_list(path, remedy)?;
    let (left, exports): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.get("leftover").is_some());
    let leftovers: Vec<Leftover> = parsed(left, path, remedy)?;
    let mut exports: Vec<Export> = parsed(exports, path, remedy)?;
    exports.iter_mut().for_each(|export| export.place = DefinedAt::Command);
    Ok((exports, leftovers))
}

fn parsed<T: DeserializeOwned>(values: Vec<Value>, path: &Path, remedy: &str) -> Result<Vec<T>> {
    let parsed = serde_json::from_value(Value::Array(values));
    parsed.map_err(|error| unreadable(path, error, remedy))
}

/// Puts these exports and files on stable storage, in the place of those before.
///
/// # Errors
/// As [`keep`].
pub(super) fn keep_exports<'a>(
    path: &Path,
    exports: impl Iterator<Item = &'a Export>,
    leftovers: &[Leftover],
) -> Result<()> {
    let exports: Vec<_> = exports.map(Entry::Export).collect();
    let leftovers: Vec<_> = leftovers.iter().map(Entry::Leftover).collect();
    keep(path, exports.iter().chain(&leftovers))
}

/// Reads the links in a file; none if there is no file.
///
/// # Errors
/// `Config` if the file can't be read.
pub(super) fn read_links(path: &Path) -> Result<Vec<String>> {
    let remedy = "it has the links that `tyche link add` has added: mend it, or remove it and add \
                  them again";
    read_list(path, remedy)
}

fn read_list<T: DeserializeOwned>(path: &Path, remedy: &str) -> Result<Vec<T>> {
    let text = match fs::read_to_string(path) {
        // Of the path that leads there, something is missing or no directory.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        text => text,
    };
    let read = text.map_err(|error| error.to_string());
    let read = read.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
    read.map_err(|error| unreadable(path, error, remedy))
}

fn unreadable(path: &Path, error: impl Display, remedy: &str) -> Error {
    Error::new(Code::Config, format!("{}: {error}; {remedy}", path.display()))
}

/// Puts these on stable storage, in the place of those before.
///
/// # Errors
/// `Other` if that is not possible. Those before are still there.
pub(super) fn keep<'a, T: Serialize + 'a>(
    path: &Path,
    added: impl Iterator<Item = &'a T>,
) -> Result<()> {
    let added: Vec<_> = added.collect();
    replace(path, |_| Ok(serde_json::to_string_pretty(&added)?))
        .map_err(|error| Error::new(Code::Other, format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/exports.json");
        assert_eq!(read(&path).unwrap(), (vec![], vec![]));
        let place = DefinedAt::Command;
        let export = |text| Export { place: place.clone(), ..Export::parse(text).unwrap() };
        let added = [export("a=mem:1M"), export("b=/dev/b")];
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let left = Leftover::new(file.path(), None, &file).unwrap();
        keep_exports(&path, added.iter(), std::slice::from_ref(&left)).unwrap();
        assert_eq!(read(&path).unwrap(), (added.to_vec(), vec![left]));
        fs::write(&path, "[{}]").unwrap();
        let error = read(&path).unwrap_err();
        let said = error.message.contains("exports.json") && error.message.contains("add them");
        assert!(error.code == Code::Config && said, "{error}");
    }

    #[test]
    fn links_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("links.json");
        assert_eq!(read_links(&path).unwrap(), [""; 0]);
        let added = ["eth1".to_owned(), "udp:0.0.0.0".to_owned()];
        keep(&path, added.iter()).unwrap();
        assert_eq!(read_links(&path).unwrap(), added);
        fs::write(&path, "{").unwrap();
        let error = read_links(&path).unwrap_err();
        assert!(error.code == Code::Config && error.message.contains("links.json"), "{error}");
    }
}
