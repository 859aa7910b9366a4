//! Hosts that the target's administrator evicts from their export, as a cluster manager fences a
//! node, and lets in again later.
//!
//! Rule: once an eviction is over, the disk has no request of the host, and begins none, until the
//! host is let in again. A host without a key may be the evicted one: it is out as well.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_proto::{HostId, Rules};

use super::incidents::Incident;
use super::{Event, World};
use crate::keys;
use crate::target::Job;
use crate::trace::Happening;

/// The eviction of a host.
#[derive(Clone, Copy, Debug)]
struct Eviction {
    /// Index of the export.
    export: usize,
    /// Whether the command has returned.
    is_over: bool,
}

/// The evictions of hosts that are in progress or over, and the hosts that were ever evicted: only
/// these may be refused for that.
#[derive(Default)]
pub(super) struct Evictions {
    /// By the index of the host.
    current: BTreeMap<usize, Eviction>,
    /// Hosts that were ever evicted, by their indices.
    ever: BTreeSet<usize>,
}

impl Evictions {
    /// Whether a host may have been refused.
    pub(super) fn explain(&self, host: usize) -> bool {
        self.ever.contains(&host)
    }

    /// The hosts that are kept out of an export.
    fn denied(&self, export: usize, name: impl Fn(usize) -> HostId) -> Vec<HostId> {
        let denied = self.current.iter().filter(|(_, eviction)| eviction.export == export);
        denied.map(|(&host, _)| name(host)).collect()
    }
}

impl<R: Rules> World<R> {
    /// The host, as the target knows it.
    fn host_id(&self, index: usize) -> HostId {
        HostId::Name(keys::name(self.hosts[index].uuid().as_u64_pair().1))
    }

    /// Evicts a host, for a while.
    pub(super) fn evict(&mut self, index: usize) -> Result<(), String> {
        let export = self.hosts[index].plan.export;
        self.evictions.current.insert(index, Eviction { export, is_over: false });
        self.evictions.ever.insert(index);
        self.report.evictions += 1;
        self.note(Happening::Incident(format!("host {index} is evicted")));
        self.deny_evicted(export);
        self.check_evictions()?;
        let pause = Duration::from_millis(self.random.pick(&[50, 1000, 5000]));
        self.plan_in(pause, Event::Incident(Incident::LetIn(index)));
        self.drive_target()
    }

    /// Lets an evicted host in again.
    pub(super) fn let_in(&mut self, index: usize) {
        if let Some(Eviction { export, .. }) = self.evictions.current.remove(&index) {
            self.note(Happening::Incident(format!("host {index} is let in again")));
            self.deny_evicted(export);
        }
    }

    /// Lets all evicted hosts in again.
    pub(super) fn let_all_in(&mut self) {
        for index in 0..self.hosts.len() {
            self.let_in(index);
        }
    }

    /// Has the target keep out the hosts that are evicted from an export.
    pub(super) fn deny_evicted(&mut self, export: usize) {
        let denied = self.evictions.denied(export, |host| self.host_id(host));
        if let Some(process) = &self.process {
            process.deny(export, denied);
        }
    }

    /// Has another run of the target keep out who is evicted.
    pub(super) fn deny_all_evicted(&mut self) {
        (0..self.volumes.len()).for_each(|export| self.deny_evicted(export));
    }

    /// Takes note of evictions that are over, and checks that they are.
    pub(super) fn check_evictions(&mut self) -> Result<(), String> {
        let all: Vec<_> = self.evictions.current.iter().map(|(&host, it)| (host, *it)).collect();
        for (index, eviction) in all.into_iter().filter(|(_, eviction)| !eviction.is_over) {
            let Some(process) = &self.process else { return Ok(()) };
            let host = self.host_id(index);
            if !process.registry().is_drained::<R>(process.key(eviction.export), host) {
                continue;
            }
            let may_be = |it: HostId| it == host || matches!(it, HostId::Uuid(_));
            let is_left = |it: &&Job| it.export == eviction.export && may_be(it.host);
            if let Some(job) = process.jobs.values().find(is_left) {
                let operation = job.operation;
                return Err(format!("host {index} was evicted while {operation:?} is executed"));
            }
            self.evictions.current.insert(index, Eviction { is_over: true, ..eviction });
            self.note(Happening::Incident(format!("nothing of host {index} is left")));
        }
        Ok(())
    }

    /// Checks that a request that the disk begins is of no host whose eviction is over.
    pub(super) fn check_not_evicted(&self, export: usize, host: HostId) -> Result<(), String> {
        let mut evicted = self.evictions.current.iter();
        let is_of = |&(&index, it): &(&usize, &Eviction)| {
            let may_be = self.host_id(index) == host || matches!(host, HostId::Uuid(_));
            it.is_over && it.export == export && may_be
        };
        match evicted.find(is_of) {
            Some((index, _)) => Err(format!("a request of host {index} begins, which was evicted")),
            None => Ok(()),
        }
    }
}
