//! The exports and the links that were added by command, which outlive the target's process.

use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::super::config::{DefinedAt, Export};
use super::leftover::Leftover;
use super::record::replace;
use super::renamed::Renamed;
use crate::shared::error::{Code, Error, Result};

/// An entry of the file of the exports: one of those, a file in a pool that is to be none, one that
/// was removed, or another name of one.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Export(&'a Export),
    Leftover(&'a Leftover),
    Removed(&'a Removed),
    Renamed(&'a Renamed),
}

/// An export that was removed for good, and whose records may be left: they are forgotten next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Removed {
    /// Its name.
    #[serde(rename = "removed")]
    pub(super) export: String,
    /// The UUID that it had, if it was permanent and its disk was there.
    pub(super) uuid: Option<Uuid>,
}

/// The content of the file of the exports.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Kept {
    pub(super) exports: Vec<Export>,
    /// Files in pools that are to be no exports.
    pub(super) leftovers: Vec<Leftover>,
    /// Exports whose records are to be forgotten.
    pub(super) removed: Vec<Removed>,
    /// Exports whose records are to follow them to another name.
    pub(super) renamed: Vec<Renamed>,
}

/// Reads what is kept with the exports in a file; nothing if there is no file.
///
/// # Errors
/// `Config` if the file can't be read: without it, exports would be gone that hosts rely on.
pub(super) fn read(path: &Path) -> Result<Kept> {
    let remedy = "it has the exports that `tyche export add` has added: mend it, or remove it and \
                  add them again";
    let entries: Vec<Value> = read_list(path, remedy)?;
    let has = |key| move |entry: &Value| entry.get(key).is_some();
    let (left, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(has("leftover"));
    let (removed, others): (Vec<_>, Vec<_>) = others.into_iter().partition(has("removed"));
    let (renamed, exports) = others.into_iter().partition(has("renamed"));
    let mut exports: Vec<Export> = parsed(exports, path, remedy)?;
    exports.iter_mut().for_each(|export| export.place = DefinedAt::Command);
    Ok(Kept {
        exports,
        leftovers: parsed(left, path, remedy)?,
        removed: parsed(removed, path, remedy)?,
        renamed: parsed(renamed, path, remedy)?,
    })
}

fn parsed<T: DeserializeOwned>(values: Vec<Value>, path: &Path, remedy: &str) -> Result<Vec<T>> {
    let parsed = serde_json::from_value(Value::Array(values));
    parsed.map_err(|error| unreadable(path, error, remedy))
}

/// Puts these on stable storage, in the place of those before.
///
/// # Errors
/// As [`keep`].
pub(super) fn keep_exports<'a>(
    path: &Path,
    exports: impl Iterator<Item = &'a Export>,
    leftovers: &[Leftover],
    (removed, renamed): (&[Removed], &[Renamed]),
) -> Result<()> {
    let exports: Vec<_> = exports.map(Entry::Export).collect();
    let leftovers = leftovers.iter().map(Entry::Leftover);
    let others = leftovers.chain(removed.iter().map(Entry::Removed));
    let others: Vec<_> = others.chain(renamed.iter().map(Entry::Renamed)).collect();
    keep(path, exports.iter().chain(&others))
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
        assert_eq!(read(&path).unwrap(), Kept::default());
        let place = DefinedAt::Command;
        let export = |text| Export { place: place.clone(), ..Export::parse(text).unwrap() };
        let added = [export("a=mem:1M"), export("b=/dev/b")];
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let left = Leftover::new(file.path(), None, &file).unwrap();
        let (left, uuid) = ([left], Some(Uuid::from_u128(7)));
        let removed = [Removed { export: "c".into(), uuid }];
        let renamed = [Renamed { from: "d".into(), to: "a".into() }];
        keep_exports(&path, added.iter(), &left, (&removed, &renamed)).unwrap();
        let kept = Kept {
            exports: added.to_vec(),
            leftovers: left.to_vec(),
            removed: removed.to_vec(),
            renamed: renamed.to_vec(),
        };
        assert_eq!(read(&path).unwrap(), kept);
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
