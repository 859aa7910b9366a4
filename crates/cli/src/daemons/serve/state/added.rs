//! The exports and the links that were added by command, which outlive the target's process.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::config::{DefinedAt, Export};
use super::record::replace;
use crate::shared::error::{Code, Error, Result};

/// Reads the exports in a file; none if there is no file.
///
/// # Errors
/// `Config` if the file can't be read: without it, exports would be gone that hosts rely on.
pub(super) fn read(path: &Path) -> Result<Vec<Export>> {
    let remedy = "it has the exports that `tyche export add` has added: mend it, or remove it and \
                  add them again";
    let mut exports: Vec<Export> = read_list(path, remedy)?;
    exports.iter_mut().for_each(|export| export.place = DefinedAt::Command);
    Ok(exports)
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
    read.map_err(|error| Error::new(Code::Config, format!("{}: {error}; {remedy}", path.display())))
}

/// Puts these exports or links on stable storage, in the place of those before.
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
        assert_eq!(read(&path).unwrap(), []);
        let place = DefinedAt::Command;
        let export = |text| Export { place: place.clone(), ..Export::parse(text).unwrap() };
        let added = [export("a=mem:1M"), export("b=/dev/b")];
        keep(&path, added.iter()).unwrap();
        assert_eq!(read(&path).unwrap(), added);
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
