//! The hosts that a target knows by their keys, and lets in. PROTOCOL.md, "Keys".
//!
//! A host that has proved that it owns a key is the one that the target's administrator has given a
//! name to. Its own UUID only tells apart the machines of one name: no host can pass for another by
//! claiming its UUID.

use std::collections::{BTreeMap, BTreeSet};

use tyche_crypto::{PublicKey, digest};
use tyche_wire::{Name, Reason, Uuid};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether hosts without a key are refused.
    pub required: bool,
    /// The hosts, by key. One host may have several keys.
    pub hosts: BTreeMap<PublicKey, Name>,
}

/// A host that has proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    pub(crate) key: PublicKey,
    /// The name that the target has for it; `None` if it has none.
    pub(crate) name: Option<Name>,
}

impl Access {
    /// The host that owns a key.
    pub(crate) fn identify(&self, key: PublicKey) -> Proven {
        Proven { key, name: self.hosts.get(&key).copied() }
    }
}

/// A host, as the target's administrator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostId {
    /// A host with a key, by its name at the target.
    Name(Name),
    /// A host without a key, by the UUID that it says it has.
    Uuid(Uuid),
}

/// The hosts that may have an export, of those that the target lets in. By default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The hosts with a key. `None`: all of them, and those without.
    pub names: Option<BTreeSet<Name>>,
    /// The hosts that are shown the export, by the UUIDs that they say they have. `None`: all.
    pub uuids: Option<BTreeSet<Uuid>>,
    /// The hosts that may not have it, whatever else holds. If one with a key is among them, no
    /// host without a key may have it: it could be that one.
    pub denied: BTreeSet<HostId>,
}

impl Allowed {
    /// Checks whether a host may have the export.
    ///
    /// # Errors
    /// The reason if not.
    pub(crate) fn check(&self, host: HostId) -> Result<(), Reason> {
        let is_denied = self.denied.contains(&host);
        let needs_key = self.names.is_some()
            || self.denied.iter().any(|denied| matches!(denied, HostId::Name(_)));
        let is_listed = match host {
            HostId::Name(name) => self.names.as_ref().is_none_or(|names| names.contains(&name)),
            HostId::Uuid(_) if needs_key => return Err(Reason::KeyRequired),
            HostId::Uuid(_) => true,
        };
        if is_listed && !is_denied { Ok(()) } else { Err(Reason::Denied) }
    }

    /// Whether a host that says it has this UUID is shown the export.
    pub(crate) fn shows(&self, host: Uuid) -> bool {
        self.uuids.as_ref().is_none_or(|uuids| uuids.contains(&host))
    }
}

impl std::fmt::Display for HostId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Uuid(uuid) => uuid.fmt(f),
        }
    }
}

/// The identity of a host with a name: of the machine that has the UUID `claimed` there.
pub(crate) fn identity(name: &Name, claimed: Uuid) -> Uuid {
    let digest = digest(&[b"tyche host", name.as_str().as_bytes(), claimed.as_bytes()]);
    Uuid::from_bytes(*digest.first_chunk().expect("longer than a UUID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    #[test]
    fn who_is_denied_is_out_whatever_else_holds() {
        let (alpha, beta) = (name("alpha"), name("beta"));
        let [one, two] = [1, 2].map(Uuid::from_u128);
        let hosts = [HostId::Name(alpha), HostId::Name(beta), HostId::Uuid(one), HostId::Uuid(two)];
        let (denied, key) = (Err(Reason::Denied), Err(Reason::KeyRequired));
        let all = Allowed::default();
        let listed = Allowed { names: Some([alpha].into()), ..Allowed::default() };
        let without = |host| Allowed { denied: [host].into(), ..Allowed::default() };
        for (allowed, expected) in [
            (all, [Ok(()); 4]),
            (listed.clone(), [Ok(()), denied, key, key]),
            (Allowed { denied: [hosts[0]].into(), ..listed }, [denied, denied, key, key]),
            // It may be the denied host that shows no key.
            (without(hosts[0]), [denied, Ok(()), key, key]),
            (without(hosts[2]), [Ok(()), Ok(()), denied, Ok(())]),
        ] {
            assert_eq!(hosts.map(|host| allowed.check(host)), expected, "{allowed:?}");
        }
    }
}
