//! Decisions of commands about hosts, which outlive the target's process.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::record::replace;
use crate::shared::error::{Code, Error, Result};

/// A decision about a host at an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    /// It may have the export, though the configuration does not say so.
    Allowed,
    /// It may not have it, whatever the configuration says.
    Denied,
}

/// The decisions of commands about hosts, by export, and the file that has them. Each change is
/// written to stable storage, and counts until the target ends even if that fails.
#[derive(Clone, Debug)]
pub(crate) struct Decisions {
    path: PathBuf,
    /// By the names of export and host.
    of: BTreeMap<String, BTreeMap<String, Decision>>,
}

impl Decisions {
    /// Reads the decisions in a file; none if there is no file.
    ///
    /// # Errors
    /// `Config` if the file can't be read: without it, hosts would be let in that were denied.
    pub(crate) fn load(path: PathBuf) -> Result<Self> {
        let text = match fs::read_to_string(&path) {
            // Of the path that leads there, something is missing or no directory.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(Self { path, of: BTreeMap::new() });
            }
            text => text,
        };
        let parsed = text.map_err(|error| error.to_string());
        let parsed =
            parsed.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        match parsed {
            Ok(of) => Ok(Self { path, of }),
            Err(error) => {
                let remedy = "it has the hosts that `tyche export deny` keeps out: mend it, or \
                              remove it and deny them again";
                let message = format!("{}: {error}; {remedy}", path.display());
                Err(Error::new(Code::Config, message))
            }
        }
    }

    /// The decisions about an export, by host.
    pub(crate) fn of(&self, export: &str) -> impl Iterator<Item = (&str, Decision)> {
        let hosts = self.of.get(export).into_iter().flatten();
        hosts.map(|(host, decision)| (host.as_str(), *decision))
    }

    /// Changes the decision about a host at an export, here and on stable storage.
    ///
    /// # Errors
    /// `Other` if it can't be stored. It is changed here then.
    pub(crate) fn set(
        &mut self,
        export: &str,
        host: &str,
        decision: Option<Decision>,
    ) -> Result<()> {
        let hosts = self.of.entry(export.to_owned()).or_default();
        match decision {
            Some(decision) => hosts.insert(host.to_owned(), decision),
            None => hosts.remove(host),
        };
        self.store()
    }

    /// All decisions about an export, to be [put](Self::put) in the place of others.
    pub(crate) fn all_of(&self, export: &str) -> BTreeMap<String, Decision> {
        self.of.get(export).cloned().unwrap_or_default()
    }

    /// Has the decisions about an export be these.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub(crate) fn put(&mut self, export: &str, hosts: BTreeMap<String, Decision>) -> Result<()> {
        if self.all_of(export) == hosts {
            return Ok(());
        }
        self.of.insert(export.to_owned(), hosts);
        self.store()
    }

    /// Has the decisions about an export be those about the name that it has now. May be repeated,
    /// also if there are none any more.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        match self.of.remove(from) {
            Some(hosts) => drop(self.of.insert(to.to_owned(), hosts)),
            // An attempt before may not have been stored.
            None if self.of.contains_key(to) => {}
            None => return Ok(()),
        }
        self.store()
    }

    /// Keeps the decisions, by export and host, for which `keeps` is true.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub(crate) fn retain(&mut self, keeps: impl Fn(&str, &str, Decision) -> bool) -> Result<()> {
        let count = |it: &Self| it.of.values().map(BTreeMap::len).sum::<usize>();
        let before = count(self);
        for (export, hosts) in &mut self.of {
            hosts.retain(|host, decision| keeps(export, host, *decision));
        }
        if count(self) == before { Ok(()) } else { self.store() }
    }

    /// Stores all decisions, also those that an attempt before could not store.
    fn store(&mut self) -> Result<()> {
        self.of.retain(|_, hosts| !hosts.is_empty());
        replace(&self.path, |_| Ok(serde_json::to_string_pretty(&self.of)?)).map_err(|error| {
            let message = format!("{}: {error}", self.path.display());
            Error::new(Code::Other, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_outlive_the_process_and_are_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/access.json");
        let load = || Decisions::load(path.clone()).unwrap();
        let of = |export: &str| {
            let decisions = load();
            decisions.of(export).map(|(host, it)| (host.to_owned(), it)).collect::<Vec<_>>()
        };
        assert_eq!(of("vm1"), []);
        let mut decisions = load();
        decisions.set("vm1", "a", Some(Decision::Denied)).unwrap();
        decisions.set("vm1", "b", Some(Decision::Allowed)).unwrap();
        decisions.set("vm2", "a", Some(Decision::Denied)).unwrap();
        let [a, b] = ["a", "b"].map(str::to_owned);
        assert_eq!(of("vm1"), [(a, Decision::Denied), (b.clone(), Decision::Allowed)]);
        load().set("vm1", "a", None).unwrap();
        assert_eq!(of("vm1"), [(b, Decision::Allowed)]);
        let mut decisions = load();
        let (before, others) = (decisions.all_of("vm3"), decisions.all_of("vm2"));
        decisions.put("vm3", others).unwrap();
        assert_eq!(of("vm3"), of("vm2"));
        decisions.put("vm3", before).unwrap();
        assert_eq!(of("vm3"), [], "as before");
        load().retain(|export, _, _| export != "vm1").unwrap();
        assert_eq!((of("vm1").len(), of("vm2").len()), (0, 1));
    }

    #[test]
    fn decisions_that_cannot_be_read_let_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.json");
        for text in ["", "{", r#"{"vm1":{"a":"maybe"}}"#] {
            fs::write(&path, text).unwrap();
            let error = Decisions::load(path.clone()).unwrap_err();
            let said = error.message.contains("access.json") && error.message.contains("deny them");
            assert!(error.code == Code::Config && said, "{error}");
        }
    }

    #[test]
    fn what_cannot_be_stored_holds_here_and_is_stored_with_the_next() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("access.json");
        // In the way of the new file, also for root.
        let obstacle = dir.path().join("access.json.new");
        fs::create_dir(&obstacle).unwrap();
        let mut decisions = Decisions::load(path.clone()).unwrap();
        let error = decisions.set("vm1", "a", Some(Decision::Denied)).unwrap_err();
        assert!(error.message.contains("access.json"), "{error}");
        assert_eq!(decisions.of("vm1").count(), 1);
        fs::remove_dir(&obstacle).unwrap();
        decisions.set("vm1", "b", Some(Decision::Denied)).unwrap();
        assert_eq!(Decisions::load(path).unwrap().of("vm1").count(), 2);
    }
}
