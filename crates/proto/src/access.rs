//! The hosts that a target knows by their keys, and lets in. PROTOCOL.md, "Keys".
//!
//! A host that has proved that it owns a key is the one that the target's administrator has given a
//! name to. Its own UUID only tells apart the machines of one name: no host can pass for another by
//! claiming its UUID.

use std::collections::BTreeMap;

use tyche_crypto::{PublicKey, digest};
use tyche_wire::{Name, Uuid};

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

/// The identity of a host with a name: of the machine that has the UUID `claimed` there.
pub(crate) fn identity(name: &Name, claimed: Uuid) -> Uuid {
    let digest = digest(&[b"tyche host", name.as_str().as_bytes(), claimed.as_bytes()]);
    Uuid::from_bytes(*digest.first_chunk().expect("longer than a UUID"))
}
