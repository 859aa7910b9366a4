//! The numbers of exports as logical units (LUNs), which stay the same over restarts.
//!
//! Hosts know a disk by its LUN. A number is that of one UUID: an export that is gone from the
//! configuration keeps its own, so that no host finds another disk in its place. Only one that was
//! removed by command, of which hosts were told, leaves its number to others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use uuid::Uuid;

use super::record::replace;
use crate::shared::error::{Code, Error, Result};

/// The numbers, by UUID.
type Kept = BTreeMap<Uuid, u8>;

/// The number of an export. `used`: those of the process, of exports that do not outlive it, too.
/// `lasts`: whether this one outlives the process; others get a number that is left.
///
/// # Errors
/// `Config` if there are more exports than numbers, or the record can't be read.
pub(super) fn assign(
    path: &Path,
    used: impl Iterator<Item = u8>,
    (uuid, lasts): (Uuid, bool),
) -> Result<u8> {
    let mut kept = read(path)?;
    if let Some(number) = kept.get(&uuid) {
        return Ok(*number);
    }
    let taken: BTreeSet<u8> = used.chain(kept.values().copied()).collect();
    let number = (0..=u8::MAX).find(|number| !taken.contains(number)).ok_or_else(|| {
        wrong(path, "all 256 LUNs are taken; remove it to have the exports numbered anew")
    })?;
    if lasts {
        kept.insert(uuid, number);
        store(path, &kept);
    }
    Ok(number)
}

/// Keeps the number of an export that was not known to outlive the process when it was numbered.
pub(super) fn keep(path: &Path, uuid: Uuid, number: u8) {
    match read(path) {
        Ok(mut kept) => {
            if *kept.entry(uuid).or_insert(number) == number {
                store(path, &kept);
            }
        }
        Err(error) => tracing::warn!("{error}"),
    }
}

/// Leaves the number of an export to others.
pub(super) fn forget(path: &Path, uuid: Uuid) {
    match read(path) {
        Ok(mut kept) => {
            if kept.remove(&uuid).is_some() {
                store(path, &kept);
            }
        }
        Err(error) => tracing::warn!("{error}"),
    }
}

fn read(path: &Path) -> Result<Kept> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Kept::new()),
        Err(error) => Err(wrong(path, &error.to_string())),
        Ok(text) => serde_json::from_str(&text).map_err(|error| {
            wrong(path, &format!("{error}; remove it to have the exports numbered anew"))
        }),
    }
}

fn store(path: &Path, kept: &Kept) {
    if let Err(error) = replace(path, |_| Ok(serde_json::to_string(kept)?)) {
        tracing::warn!("{}: {error}; exports may have other LUNs next time", path.display());
    }
}

fn wrong(path: &Path, what: &str) -> Error {
    Error::new(Code::Config, format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the exports of a process, in their order.
    fn assign_all(path: &Path, exports: &[(Uuid, bool)]) -> Result<Vec<u8>> {
        let mut numbers = Vec::new();
        for export in exports {
            numbers.push(assign(path, numbers.clone().into_iter(), *export)?);
        }
        Ok(numbers)
    }

    #[test]
    fn an_export_keeps_its_number_whatever_becomes_of_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/luns.json");
        let [a, b, c, d] = [1, 2, 3, 4].map(Uuid::from_u128);
        let assign = |path: &Path, exports: &[_]| assign_all(path, exports);
        assert_eq!(assign(&path, &[(a, true), (b, false), (c, true)]).unwrap(), [0, 1, 2]);
        assert_eq!(assign(&path, &[(c, true), (d, true)]).unwrap(), [2, 1]);
        assert_eq!(assign(&path, &[(b, false), (a, true), (d, true)]).unwrap(), [3, 0, 1]);
        forget(&path, a);
        let others = [(Uuid::from_u128(5), true), (c, true)];
        assert_eq!(assign(&path, &others).unwrap(), [0, 2], "a's is free");
        fs::write(&path, "{").unwrap();
        let error = assign(&path, &[(a, true)]).unwrap_err();
        assert!(error.code == Code::Config && error.message.contains("numbered anew"), "{error}");
    }

    #[test]
    fn there_are_256_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("luns.json");
        let exports: Vec<_> = (0..257).map(|uuid| (Uuid::from_u128(uuid), true)).collect();
        assert!(assign_all(&path, &exports[..256]).unwrap().into_iter().eq(0..=255));
        assert!(assign_all(&path, &exports).unwrap_err().message.contains("256 LUNs"));
    }
}
