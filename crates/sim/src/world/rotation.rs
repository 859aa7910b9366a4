//! The target's key, which its administrator changes while hosts use it: first the target has the
//! next one as well and hosts are told it, and when all of them know it, the next one alone.
//!
//! Rule: a session that is connected is told within the time that its links take to come back, and
//! goes on, whatever happens meanwhile. A host that knows neither key is not let in.

use tyche_proto::crypto::PublicKey;
use tyche_proto::{Rules, TargetKeys};

use super::World;
use crate::host::Host;
use crate::keys;
use crate::trace::Happening;

/// The keys that the target has now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rotation {
    /// Number of the changes that are over.
    changes: u8,
    /// Whether the next key is told to hosts.
    is_told: bool,
}

impl Rotation {
    pub(super) fn keys(self) -> TargetKeys {
        let next = self.is_told.then(|| keys::of_target(self.changes.wrapping_add(1)));
        TargetKeys { own: keys::of_target(self.changes), next }
    }

    /// The key that hosts are to know the target by.
    pub(super) fn lasting(self) -> PublicKey {
        let TargetKeys { own, next } = self.keys();
        next.unwrap_or(own).public()
    }

    fn step(&mut self) {
        self.changes = self.changes.wrapping_add(u8::from(self.is_told));
        self.is_told = !self.is_told;
    }
}

impl<R: Rules> World<R> {
    /// Takes the next step of a change of the target's key, unless hosts are still to be told.
    pub(super) fn rotate(&mut self) -> Result<(), String> {
        if self.rotation.is_told && self.unaware().next().is_some() {
            return Ok(());
        }
        self.rotation.step();
        self.report.key_changes += u64::from(!self.rotation.is_told);
        let Rotation { changes, is_told } = self.rotation;
        let what = format!("keys of the target: {changes}, and the next one: {is_told}");
        self.note(Happening::Incident(what));
        let Some(process) = &mut self.process else { return Ok(()) };
        process.set_keys(self.now, &self.rotation.keys());
        self.drive_target()
    }

    /// The hosts that know the target by another key than the lasting one.
    fn unaware(&self) -> impl Iterator<Item = (usize, &Host<R>)> {
        let lasting = self.rotation.lasting();
        let hosts = self.hosts.iter().enumerate();
        hosts.filter(move |(_, host)| host.target_key.is_some_and(|it| it != lasting))
    }

    /// A connected host that does not know the target by its lasting key.
    pub(crate) fn untold_host(&self) -> Option<usize> {
        let is_connected = |host: &Host<R>| {
            host.running.as_ref().is_some_and(|running| running.connected && !running.closing)
        };
        self.unaware().find(|(_, host)| is_connected(host)).map(|(host, _)| host)
    }
}
