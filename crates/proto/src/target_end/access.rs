//! The hosts that a target knows by their keys, and lets in. PROTOCOL.md, "Keys".
//!
//! A host that has proved that it owns a key is the one that the target's administrator has given a
//! name to. Its own UUID only tells apart the machines of one name: no host can pass for another by
//! claiming its UUID, and none without a key for one with a key.

use std::collections::{BTreeMap, BTreeSet};

use tyche_crypto::PublicKey;
use tyche_wire::{Name, Reason, Uuid};

/// The access list of a target: its hosts by their public keys, and whether a host needs a key.
/// The rights of a host at an export are in [`Allowed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether hosts without a key are refused.
    pub required: bool,
    /// The hosts, by key. One host may have several keys.
    pub hosts: BTreeMap<PublicKey, Name>,
    /// Those of the hosts that may have only exports which [name](Allowed) them.
    pub only_named: BTreeSet<Name>,
}

/// A host that has proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    pub(crate) key: PublicKey,
    /// The name that the target has for it; `None` if it has none.
    pub(crate) name: Option<Name>,
}

impl Proven {
    /// The identity of the host, on the machine that says it has that UUID. A host that the target
    /// has no name for is not let in; its name is that of none.
    pub(crate) fn identity(&self, machine: Uuid) -> Identity {
        Identity::Keyed { name: self.name.unwrap_or(Name::EMPTY), machine }
    }
}

impl Access {
    /// The host that owns a key.
    pub(crate) fn identify(&self, key: PublicKey) -> Proven {
        Proven { key, name: self.hosts.get(&key).copied() }
    }

    /// Checks whether a host may have an export that is for those hosts.
    ///
    /// # Errors
    /// The reason if not.
    pub(crate) fn check(&self, host: &Identity, allowed: &Allowed) -> Result<(), Reason> {
        match host {
            Identity::Keyed { name, .. }
                if self.only_named.contains(name) && !allowed.names_host(name) =>
            {
                Err(Reason::Denied)
            }
            _ => allowed.check(host),
        }
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

/// The identity of a host in the rules of [admission](crate::Registry): two sessions are of one
/// host if theirs are equal. What was proved and what is claimed are kept apart, so that no claim
/// equals an identity that was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The owner of a key.
    Keyed {
        /// The name that the target has for it.
        name: Name,
        /// The UUID that it says it has, which tells apart the machines of one name.
        machine: Uuid,
    },
    /// A host without a key, by the UUID that it says it has.
    Claimed(Uuid),
}

impl Identity {
    /// The UUID that the host says it has.
    pub fn uuid(&self) -> Uuid {
        match *self {
            Self::Keyed { machine, .. } => machine,
            Self::Claimed(uuid) => uuid,
        }
    }

    /// The host, as the target's administrator knows it.
    pub fn host_id(&self) -> HostId {
        match *self {
            Self::Keyed { name, .. } => HostId::Name(name),
            Self::Claimed(uuid) => HostId::Uuid(uuid),
        }
    }

    /// Whether it may be that host: a name is proved; a UUID is of whoever says so, with a key or
    /// without.
    pub fn may_be(&self, host: HostId) -> bool {
        match host {
            HostId::Name(_) => self.host_id() == host,
            HostId::Uuid(uuid) => self.uuid() == uuid,
        }
    }
}

/// The hosts that may have an export, of those that the target lets in. By default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The hosts with a key. `None`: all of them, and those without; but those that have to be
    /// [named](Access::only_named) only if they are in `also`.
    pub names: Option<BTreeSet<Name>>,
    /// Hosts with a key that it names without being for them alone.
    pub also: BTreeSet<Name>,
    /// The hosts that are shown the export, by the UUIDs that they say they have. `None`: all.
    pub uuids: Option<BTreeSet<Uuid>>,
    /// The hosts that may not have it, whatever else holds. If one with a key is among them, no
    /// host without a key may have it: it could be that one. A UUID keeps out all that say they
    /// have it, with a key or without.
    pub denied: BTreeSet<HostId>,
}

impl Allowed {
    /// True if it names that host with a key.
    pub fn names_host(&self, host: &Name) -> bool {
        let is_listed = self.names.as_ref().is_some_and(|names| names.contains(host));
        is_listed || self.also.contains(host)
    }

    /// Checks whether a host may have the export, if it need not be named.
    ///
    /// # Errors
    /// The reason if not.
    fn check(&self, host: &Identity) -> Result<(), Reason> {
        let is_denied = self.denied.iter().any(|&denied| host.may_be(denied));
        let needs_key = self.names.is_some()
            || self.denied.iter().any(|denied| matches!(denied, HostId::Name(_)));
        let is_listed = match host {
            Identity::Keyed { name, .. } => self.names.is_none() || self.names_host(name),
            Identity::Claimed(_) if needs_key => return Err(Reason::KeyRequired),
            Identity::Claimed(_) => true,
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
        let keyed = |name| Identity::Keyed { name, machine: two };
        let hosts = [keyed(alpha), keyed(beta), Identity::Claimed(one), Identity::Claimed(two)];
        let ids = hosts.map(|host| host.host_id());
        let (denied, key) = (Err(Reason::Denied), Err(Reason::KeyRequired));
        let all = Allowed::default();
        let listed = Allowed { names: Some([alpha].into()), ..Allowed::default() };
        let without = |host| Allowed { denied: [host].into(), ..Allowed::default() };
        for (allowed, expected) in [
            (all, [Ok(()); 4]),
            (listed.clone(), [Ok(()), denied, key, key]),
            (Allowed { denied: [ids[0]].into(), ..listed }, [denied, denied, key, key]),
            // It may be the denied host that shows no key.
            (without(ids[0]), [denied, Ok(()), key, key]),
            (without(ids[2]), [Ok(()), Ok(()), denied, Ok(())]),
            // A key is no way around a UUID that is denied.
            (without(ids[3]), [denied, denied, Ok(()), denied]),
        ] {
            assert_eq!(hosts.map(|host| allowed.check(&host)), expected, "{allowed:?}");
        }
    }
    #[test]
    fn a_host_that_has_to_be_named_has_only_what_names_it() {
        let (alpha, node) = (name("alpha"), name("node"));
        let machine = Uuid::from_u128(1);
        let access = Access { only_named: [node].into(), ..Access::default() };
        let hosts = [
            Identity::Keyed { name: alpha, machine },
            Identity::Keyed { name: node, machine },
            Identity::Claimed(machine),
        ];
        let (denied, key) = (Err(Reason::Denied), Err(Reason::KeyRequired));
        let also = Allowed { also: [node].into(), ..Allowed::default() };
        let listed = |name| Allowed { names: Some([name].into()), ..Allowed::default() };
        for (allowed, expected) in [
            (Allowed::default(), [Ok(()), denied, Ok(())]),
            (also.clone(), [Ok(()); 3]),
            (Allowed { denied: [HostId::Name(node)].into(), ..also }, [Ok(()), denied, key]),
            (listed(node), [denied, Ok(()), key]),
            (listed(alpha), [Ok(()), denied, key]),
            // A UUID is no name.
            (
                Allowed { uuids: Some([machine].into()), ..Allowed::default() },
                [Ok(()), denied, Ok(())],
            ),
        ] {
            assert_eq!(hosts.map(|host| access.check(&host, &allowed)), expected, "{allowed:?}");
        }
    }
}
