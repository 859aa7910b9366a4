//! Keys of a target: the one that it has, and the one that it will have. PROTOCOL.md, "Keys".

use tyche_crypto::{PublicKey, SecretKey};

/// The keys of a target. While it has two, hosts may connect with either, and each host that
/// connects is told to know the target by the next one from then on.
#[derive(Clone, Debug)]
pub struct TargetKeys {
    /// The target's key.
    pub own: SecretKey,
    /// The key that it will have, if its key is being changed.
    pub next: Option<SecretKey>,
}

/// [`TargetKeys`] with their public parts.
pub(super) struct Keyring {
    own: (SecretKey, PublicKey),
    next: Option<(SecretKey, PublicKey)>,
}

impl From<SecretKey> for TargetKeys {
    fn from(own: SecretKey) -> Self {
        Self { own, next: None }
    }
}

impl Keyring {
    pub(super) fn new(TargetKeys { own, next }: TargetKeys) -> Self {
        let both = |key: SecretKey| {
            let public = key.public();
            (key, public)
        };
        Self { own: both(own), next: next.map(both) }
    }

    fn all(&self) -> impl Iterator<Item = &(SecretKey, PublicKey)> {
        std::iter::once(&self.own).chain(&self.next)
    }

    /// The public key that Offers show.
    pub(super) fn shown(&self) -> PublicKey {
        self.own.1
    }

    /// The public key that hosts have to know the target by from now on.
    pub(super) fn lasting(&self) -> PublicKey {
        self.next.as_ref().unwrap_or(&self.own).1
    }

    /// The public key for which `is_it` is true.
    pub(super) fn find(&self, is_it: impl Fn(&PublicKey) -> bool) -> Option<PublicKey> {
        self.all().map(|(_, public)| *public).find(is_it)
    }

    /// The secret part of a key; `None` if the target has that key no more.
    pub(super) fn secret(&self, public: PublicKey) -> Option<&SecretKey> {
        self.all().find(|(_, it)| *it == public).map(|(secret, _)| secret)
    }
}
