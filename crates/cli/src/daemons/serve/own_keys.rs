//! The target's own keys: one, or two while its key is being changed.
//!
//! `key = "A"` becomes `key = ["A", "B"]`, which hosts may connect by, and B is the key that they
//! are told to know the target by; later, when all of them have been connected once, `key = "B"`.

use std::sync::{Mutex, PoisonError};

use tyche_native::Target;
use tyche_proto::TargetKeys;
use tyche_proto::crypto::{PublicKey, SecretKey};

use super::config::Config;
use crate::shared::error::{Code, Error, Result};
use crate::shared::keys::read_key;

/// The keys of a running target.
#[derive(Default)]
pub(super) struct OwnKeys(Mutex<Vec<SecretKey>>);

impl OwnKeys {
    /// Reads the files of keys that a configuration names.
    ///
    /// # Errors
    /// They can't be read, or there are more than two.
    pub(super) fn read(config: &Config) -> Result<Self> {
        if config.key.len() > 2 {
            let message = "`key`: a target has one key, or two while it is being changed: the \
                           present one, and the next";
            return Err(Error::new(Code::Config, message));
        }
        config
            .key
            .iter()
            .map(|path| read_key(path))
            .collect::<Result<_>>()
            .map(Mutex::new)
            .map(Self)
    }

    /// The secret keys.
    pub(super) fn all(&self) -> Vec<SecretKey> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The public keys.
    pub(super) fn public(&self) -> Vec<PublicKey> {
        self.all().iter().map(SecretKey::public).collect()
    }

    /// The keys as the target takes them; `None` if it has none.
    pub(super) fn for_target(&self) -> Option<TargetKeys> {
        let mut keys = self.all().into_iter();
        keys.next().map(|own| TargetKeys { own, next: keys.next() })
    }

    /// The keys of a running target when its configuration has changed. Whether it has any takes a
    /// restart, and so does another key in the same file, which may be a pipe.
    ///
    /// # Errors
    /// They can't be read; `Config` if hosts that are connected would know none of them.
    pub(super) fn after(&self, current: &Config, wanted: &Config) -> Result<Self> {
        let may_change = !wanted.key.is_empty() && !self.all().is_empty();
        if !may_change || current.key == wanted.key {
            return Ok(Self(Mutex::new(self.all())));
        }
        let now = Self::read(wanted)?;
        self.check_change(&now)?;
        Ok(now)
    }

    /// Checks that no host is left behind that was told a key.
    fn check_change(&self, now: &Self) -> Result<()> {
        let Some(known) = self.public().pop().filter(|known| !now.public().contains(known)) else {
            return Ok(());
        };
        let message = format!(
            "`key`: hosts know this target by the key {}, which is none of these: give both \
             first, key = [\"PRESENT\", \"NEXT\"], and the next one alone when every host has been \
             connected meanwhile; if the present one was stolen, restart the target with the new \
             one, and give that to the hosts",
            known.fingerprint()
        );
        Err(Error::new(Code::Config, message))
    }

    /// Has the running target go on with the keys `now`, which are [those](Self::after) of its
    /// configuration.
    pub(super) fn change(&self, now: &Self, target: &Target) {
        if self.all() == now.all() {
            return;
        }
        let Some(keys) = now.for_target() else { return };
        let own = keys.own.public().fingerprint();
        match &keys.next {
            Some(next) => {
                let next = next.public().fingerprint();
                tracing::info!(key = own, next, "hosts are told the next key from now on");
            }
            None => tracing::info!(key = own, "this key alone is the target's from now on"),
        }
        target.set_keys(&keys);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now.all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: &[u8]) -> OwnKeys {
        let keys = numbers.iter().map(|number| SecretKey::from_random([*number; 32]));
        OwnKeys(Mutex::new(keys.collect()))
    }

    #[test]
    fn no_change_leaves_hosts_behind_that_were_told_a_key() {
        let may = |before: &[u8], after: &[u8]| keys(before).check_change(&keys(after)).is_ok();
        assert!(may(&[1], &[1]) && may(&[1], &[1, 2]) && may(&[1, 2], &[2]));
        assert!(may(&[1, 2], &[2, 1]) && may(&[2, 1], &[1]));
        assert!(!may(&[1], &[2]) && !may(&[1, 2], &[1]) && !may(&[1, 2], &[1, 3]));
    }
}
