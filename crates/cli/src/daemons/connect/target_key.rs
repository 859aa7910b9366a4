//! The key that the target of a session is known by, as it changes while the session runs.
//!
//! A session that is connected is told the next key by its target. One that is not learns it from
//! the list of known targets, where another session of this host may have kept it.

use tyche_proto::crypto::PublicKey;
use tyche_proto::{NextKey, TargetId};
use tyche_session::KnownTargets;
use uuid::Uuid;

use super::trust::Trust;
use crate::shared::changed::Replaced;

/// See the [module](self).
pub(super) struct TargetKey {
    target: Uuid,
    now: Option<PublicKey>,
    /// Whether it is in the list of known targets.
    is_listed: bool,
}

impl TargetKey {
    /// The key of the target with that UUID, as the session begins with it.
    pub(super) fn new(trust: &Trust, target: Uuid) -> Self {
        let is_listed = matches!(trust, Trust::KnownTarget { .. } | Trust::Approved(..));
        Self { target, now: trust.key(), is_listed }
    }

    /// The target is known by its next key from now on. Returns what the next daemon needs to know.
    pub(super) fn renewed(
        &mut self,
        said: &NextKey,
        before: Option<Replaced<String>>,
    ) -> Option<Replaced<String>> {
        self.now = Some(said.next);
        Replaced::again(before, said.former.to_string(), said.next.to_string())
    }

    /// The next key, if the list of known targets has another one by now. Of a list that can't be
    /// read, or says nothing, the key stays.
    pub(super) fn read_again(&self) -> Option<NextKey> {
        let former = self.now.filter(|_| self.is_listed)?;
        let known = KnownTargets::read().ok()?;
        let next = known.find(&TargetId::Uuid(self.target)).ok()??.key;
        (next != former).then_some(NextKey { target: self.target, former, next })
    }
}
