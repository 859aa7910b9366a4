//! A target: its exports and pools, as its control port tells them, and the commands that change
//! them. What is true is there, so each request begins by asking.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tonic::Status;

use crate::ids::{NodeId, TargetId};
use crate::tyche::{Failure, Tyche};

/// Exit code: no such export, pool or host.
const NOT_FOUND: i32 = 3;
/// Exit code: another has the name, or the key.
const EXISTS: i32 = 10;
/// Time limit of a command that only looks, or changes what is in the target's memory.
const SHORT: Duration = Duration::from_secs(60);
/// Time limit of a command that makes or deletes a disk, or copies one.
const LONG: Duration = Duration::from_secs(600);
/// Time until nothing of an evicted host is with a disk any more, in seconds.
const EVICT_S: u64 = 60;

/// A target, asked by an admin.
pub(crate) struct Target<'a> {
    tyche: &'a Tyche,
    /// File of the admin's key.
    key: &'a Path,
    pub(crate) id: &'a TargetId,
    /// The lock of the volume that is worked on.
    lock: Option<&'a File>,
}

/// Exports and pools of a target.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Inventory {
    pub(crate) exports: Vec<Export>,
    #[serde(default)]
    pub(crate) pools: Vec<Pool>,
    #[serde(default)]
    problem: Option<String>,
}

/// An export. All sizes are bytes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Export {
    #[serde(rename = "export")]
    pub(crate) name: String,
    defined_by: String,
    pub(crate) pool: Option<String>,
    pub(crate) origin: Option<Origin>,
    pub(crate) size: u64,
    read_only: bool,
    pub(crate) shared: bool,
    pub(crate) problem: Option<String>,
    /// Hosts that commands have let in.
    pub(crate) allowed: Vec<String>,
    sessions: Vec<Session>,
}

/// The disk that an export was cloned from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    pub(crate) export: String,
    /// Seconds since the beginning of 1970.
    pub(crate) time: u64,
}

/// A session of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Session {
    host_name: String,
}

/// A pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pool {
    pub(crate) pool: String,
    path: String,
    size: Option<u64>,
    used: Option<u64>,
}

impl Pool {
    /// Bytes of which the size of a disk is a multiple: the extents of LVM's groups, if nobody has
    /// chosen others, or blocks.
    pub(crate) fn granularity(&self) -> u64 {
        if self.path.starts_with("lvm-thin:") { 4 << 20 } else { 4096 }
    }

    /// Bytes that can still be written.
    pub(crate) fn free(&self) -> u64 {
        self.size.unwrap_or_default().saturating_sub(self.used.unwrap_or_default())
    }

    /// Bytes that it has, if that is known.
    pub(crate) fn size(&self) -> Option<u64> {
        self.size
    }
}

impl Export {
    /// Whether this driver, or somebody by command, has made it in a pool, to be written.
    pub(crate) fn is_volume(&self) -> bool {
        self.is_made() && !self.is_snapshot()
    }

    /// Whether it is a snapshot.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.is_made() && self.read_only && self.origin.is_some()
    }

    fn is_made(&self) -> bool {
        self.defined_by == "command"
            && self.pool.is_some()
            && !crate::ids::is_unfinished(&self.name)
    }

    /// The hosts that have it, or may: by name.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let connected = self.sessions.iter().map(|it| &it.host_name);
        let mut hosts: Vec<_> = self.allowed.iter().chain(connected).cloned().collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

impl Inventory {
    pub(crate) fn export(&self, name: &str) -> Option<&Export> {
        self.exports.iter().find(|it| it.name == name)
    }

    pub(crate) fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|it| it.pool == name)
    }
}

/// The output of `tyche export list`.
#[derive(Deserialize)]
struct Listed {
    targets: Vec<Inventory>,
}

/// The output of a command whose effect is all that counts.
#[derive(Deserialize)]
struct Done {}

/// The output of `tyche export snapshot` and `clone`.
#[derive(Deserialize)]
struct Cloned {
    size: u64,
}

impl<'a> Target<'a> {
    pub(crate) fn new(tyche: &'a Tyche, key: &'a Path, id: &'a TargetId) -> Self {
        Self { tyche, key, id, lock: None }
    }

    /// The same, with a lock that each command holds.
    pub(crate) fn holding(self, lock: &'a File) -> Self {
        Self { lock: Some(lock), ..self }
    }

    fn ask<T: serde::de::DeserializeOwned>(
        &self,
        args: &[&str],
        limit: Duration,
    ) -> Result<T, Failure> {
        let key = self.key.to_string_lossy();
        let mut all: Vec<_> = args.iter().map(|it| (*it).to_owned()).collect();
        all.push(format!("--at={}", self.id.place));
        all.push(format!("--target-key={}", self.id.key()));
        all.push(format!("--key={key}"));
        self.tyche.ask(&all, self.lock, limit)
    }

    fn change(&self, args: &[&str], limit: Duration) -> Result<(), Failure> {
        self.ask::<Done>(args, limit).map(drop)
    }

    /// Its exports and pools.
    ///
    /// # Errors
    /// `Unavailable` if it does not answer.
    pub(crate) fn inventory(&self) -> Result<Inventory, Status> {
        // Not an export is missing then: another target is there.
        let listed = self.ask(&["export", "list"], SHORT);
        let listed: Listed = listed.map_err(|it: Failure| it.or_unmet(NOT_FOUND))?;
        let found = listed.targets.into_iter().next();
        let found = found.ok_or_else(|| Status::internal("tyche export list: no target"))?;
        match &found.problem {
            Some(problem) => Err(Status::unavailable(format!("{}: {problem}", self.id.place))),
            None => Ok(found),
        }
    }

    /// Makes a disk; the same again changes nothing.
    ///
    /// # Errors
    /// `AlreadyExists` if another has the name.
    pub(crate) fn add(
        &self,
        export: &str,
        (pool, size): (&str, u64),
        options: &[String],
    ) -> Result<(), Status> {
        let size = size.to_string();
        let mut args = vec!["export", "add", export, "--pool", pool, "--size", &size];
        args.extend(options.iter().map(String::as_str));
        Ok(self.change(&args, LONG)?)
    }

    /// Copies the disk of an export, to be written or as a snapshot; returns its size.
    ///
    /// # Errors
    /// `NotFound` if there is no such export.
    pub(crate) fn copy(&self, of: &str, copy: &str, is_snapshot: bool) -> Result<u64, Status> {
        let command = if is_snapshot { "snapshot" } else { "clone" };
        let done: Cloned = self.ask(&["export", command, of, copy], LONG)?;
        Ok(done.size)
    }

    /// Deletes an export and its disk; one that is not there is no error.
    ///
    /// # Errors
    /// `FailedPrecondition` while a host has it connected.
    pub(crate) fn delete(&self, export: &str) -> Result<(), Status> {
        match self.change(&["export", "remove", export, "--delete"], LONG) {
            Err(failure) if failure.is(NOT_FOUND) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Gives an export another name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), Status> {
        Ok(self.change(&["export", "rename", from, to], SHORT)?)
    }

    /// Changes properties: `KEY=VALUE`.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that makes no sense.
    pub(crate) fn set(&self, export: &str, settings: &[String]) -> Result<(), Status> {
        if settings.is_empty() {
            return Ok(());
        }
        let mut args = vec!["export", "set", export];
        args.extend(settings.iter().map(String::as_str));
        Ok(self.change(&args, SHORT)?)
    }

    /// Makes a disk larger.
    pub(crate) fn resize(&self, export: &str, size: u64) -> Result<(), Status> {
        Ok(self.change(&["export", "resize", export, &size.to_string()], LONG)?)
    }

    /// Forgets which hosts commands have let in or kept out.
    pub(crate) fn revert(&self, export: &str) -> Result<(), Status> {
        Ok(self.change(&["export", "revert", export], SHORT)?)
    }

    /// Makes a node a host of the target, by its key; the same again changes nothing.
    ///
    /// # Errors
    /// `FailedPrecondition` if a host of that name has another key.
    fn add_host(&self, node: &NodeId) -> Result<(), Status> {
        let added = self.change(&["host", "add", &node.name, &node.key], SHORT);
        added.map_err(|it| it.or_unmet(EXISTS))
    }

    /// Lets a node have an export.
    ///
    /// # Errors
    /// As [`add_host`](Self::add_host).
    pub(crate) fn allow(&self, export: &str, node: &NodeId) -> Result<(), Status> {
        self.add_host(node)?;
        Ok(self.change(&["export", "allow", export, &node.name], SHORT)?)
    }

    /// Keeps a host out of an export. When this returns, nothing of it is with the disk any more,
    /// and nothing of it gets there.
    ///
    /// # Errors
    /// All but exit code 0: the host may still write.
    pub(crate) fn evict(&self, export: &str, host: &str) -> Result<(), Failure> {
        let limit = format!("--timeout={EVICT_S}");
        let args = ["export", "evict", export, host, &limit];
        self.change(&args, 2 * Duration::from_secs(EVICT_S) + SHORT)
    }

    /// The same for a node that may be no host any more: what it had begun before may still be with
    /// the disk, so it becomes one again.
    ///
    /// # Errors
    /// As [`evict`](Self::evict).
    pub(crate) fn evict_node(&self, export: &str, node: &NodeId) -> Result<(), Status> {
        match self.evict(export, &node.name) {
            Err(failure) if failure.is(NOT_FOUND) => {
                self.add_host(node)?;
                Ok(self.evict(export, &node.name)?)
            }
            done => Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_told_from_snapshots_and_from_what_others_export() {
        let export = |text: &str| serde_json::from_str::<Export>(text).unwrap();
        let made = r#""defined_by":"command","pool":"fast","origin":{"export":"a","time":7}"#;
        let volume = export(&format!(r#"{{"export":"a",{made},"later":1}}"#));
        assert!(volume.is_volume() && !volume.is_snapshot());
        let snapshot = export(&format!(r#"{{"export":"s",{made},"read_only":true}}"#));
        assert!(snapshot.is_snapshot() && !snapshot.is_volume());
        for other in [
            r#"{"export":"a","defined_by":"file","pool":"fast"}"#,
            r#"{"export":"a","defined_by":"command","pool":null}"#,
            r#"{"export":"a.new","defined_by":"command","pool":"fast"}"#,
        ] {
            assert!(!export(other).is_volume() && !export(other).is_snapshot(), "{other}");
        }
    }

    #[test]
    fn hosts_are_those_that_may_have_it_and_those_that_have() {
        let export: Export = serde_json::from_str(
            r#"{"allowed":["b","a"],"sessions":[{"host_name":"c"},{"host_name":"a"}]}"#,
        )
        .unwrap();
        assert_eq!(export.hosts(), ["a", "b", "c"]);
    }

    #[test]
    fn pools_know_what_is_free_and_in_which_steps() {
        let pool = |path: &str| Pool {
            path: path.into(),
            size: Some(10),
            used: Some(4),
            ..Pool::default()
        };
        assert_eq!((pool("dir:/x").free(), pool("dir:/x").granularity()), (6, 4096));
        assert_eq!(pool("lvm-thin:vg0/pool0").granularity(), 4 << 20);
    }
}
