//! Exports that were renamed by command. An export has its new name from the moment on at which the
//! file of the exports says so. Its record, its note and the decisions about it, which are kept by
//! name, follow then; the file of the exports says until then that they have not, so that a target
//! that was killed in between has them follow when it starts again.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Decisions, State, file_name};
use crate::shared::error::{Code, Error, Result};

/// An export whose records may have its former name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renamed {
    /// Its former name.
    #[serde(rename = "renamed")]
    pub(super) from: String,
    /// Its name.
    pub(super) to: String,
}

impl State {
    /// Has an export be kept under another name, of which there is no record, by the next
    /// [`keep_added`](Self::keep_added), which may be the last thing that this process does. Its
    /// records are to [follow](Self::finish_renames) then.
    pub(in super::super) fn rename(&mut self, from: &str, to: &str) {
        // Of an export that had no record any more.
        let note = self.notes.join(file_name(to));
        if let Err(error) = fs::remove_file(&note)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!("{}: {error}", note.display());
        }
        self.renamed.push(Renamed { from: from.to_owned(), to: to.to_owned() });
    }

    /// Takes that back, unless it was kept.
    pub(in super::super) fn keep_name(&mut self, from: &str) {
        self.renamed.retain(|it| it.from != from);
    }

    /// Has the record of an export be written under its other name from now on, which is kept.
    pub(in super::super) fn follow(&mut self, from: &str, to: &str) {
        if let Some(mut kept) = self.exports.remove(from) {
            (kept.path, kept.note) = (self.record_of(to), self.notes.join(file_name(to)));
            self.exports.insert(to.to_owned(), kept);
        }
        if let Some(lun) = self.luns.remove(from) {
            self.luns.insert(to.to_owned(), lun);
        }
    }

    /// Whether the records of an export may not have followed it.
    pub(in super::super) fn is_renaming(&self) -> bool {
        !self.renamed.is_empty()
    }

    /// As [`finish_renames`](Self::finish_renames), for what a killed target has left.
    ///
    /// # Errors
    /// As that. Without its record, an export would be another disk to its hosts.
    pub(in super::super) fn finish_killed_renames(&mut self) -> Result<()> {
        match self.is_renaming() {
            true => self.decisions().and_then(|mut decisions| self.finish_renames(&mut decisions)),
            false => Ok(()),
        }
    }

    /// Has what is kept of renamed exports follow them.
    ///
    /// # Errors
    /// `Other` if something can't. It follows later, or when the target starts again.
    pub(in super::super) fn finish_renames(&mut self, decisions: &mut Decisions) -> Result<()> {
        while let Some(Renamed { from, to }) = self.renamed.last().cloned() {
            decisions.rename(&from, &to)?;
            let [before, now] = [&from, &to].map(|name| self.record_of(name));
            let [note, note_now] = [&from, &to].map(|name| self.notes.join(file_name(name)));
            for (before, now) in [(before, now), (note, note_now)] {
                move_file(&before, &now).map_err(|error| {
                    let what = format!("{}: {error}; it is of export {to} now", before.display());
                    Error::new(Code::Other, what)
                })?;
            }
            self.renamed.pop();
        }
        Ok(())
    }
}

/// Gives a file another name, on stable storage. One that has that already is newer.
fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    if !from.exists() {
        return Ok(());
    }
    if to.exists() {
        fs::remove_file(from)?;
    } else {
        fs::rename(from, to)?;
    }
    from.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_file_is_not_replaced_and_none_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["a", "b"].map(|name| dir.path().join(name));
        move_file(&from, &to).unwrap();
        fs::write(&from, "1").unwrap();
        move_file(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "1");
        fs::write(&from, "0").unwrap();
        move_file(&from, &to).unwrap();
        assert!(!from.exists());
        assert_eq!(fs::read_to_string(&to).unwrap(), "1");
    }
}
