//! The key that a target has to prove: given on the command line, known to this machine, or shown
//! to the user on first contact.

use std::path::PathBuf;

use tyche_proto::TargetId;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::Name;
use tyche_session::{KnownTarget, KnownTargets};
use uuid::Uuid;

use crate::shared::changed::Replaced;
use crate::shared::error::{Code, CodedResult, Error, Result};
use crate::shared::keys::public_key;

/// The value of `--target-key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetKey {
    /// The target's key.
    Given(PublicKey),
    /// The key that this machine knows; on first contact the user is asked.
    Ask,
}

/// The origin of the key that a target has to prove, which decides whether frames are sealed and
/// whether the target becomes a known one.
#[derive(Clone, Debug, Default)]
pub(crate) enum Trust {
    /// No key: frames are in the clear.
    #[default]
    Clear,
    /// The user has given the key.
    Given(PublicKey),
    /// The key is in the list of known targets.
    KnownTarget {
        /// The list.
        file: PathBuf,
        /// Its entry.
        target: KnownTarget,
    },
    /// The user has just said that this key is the target's. It is to be kept once the target has
    /// proved that it owns it.
    Approved(Name, PublicKey),
}

impl Trust {
    /// The trust in the target of `export`, by the value of `--target-key` and by the key that the
    /// user has `approved`. `before`: UUID of the target that the device is connected to already.
    ///
    /// # Errors
    /// The list of known targets can't be read; the target must be named, or its key is not known.
    pub(super) fn find(
        (target, export): (TargetId, &str),
        said: Option<TargetKey>,
        approved: Option<PublicKey>,
        before: Option<Uuid>,
    ) -> Result<Self> {
        if let Some(TargetKey::Given(key)) = said {
            return Ok(Self::Given(key));
        }
        let known = KnownTargets::read().coded()?;
        let before = before.map(TargetId::Uuid);
        let found = match (known.find(&target).coded()?, before) {
            (Some(found), _) => Some(found),
            (None, Some(before)) => known.find(&before).coded()?,
            (None, None) if said.is_none() => known.look_up(&target).coded()?,
            (None, None) => None,
        };
        if let Some(&target) = found {
            return Ok(Self::KnownTarget { file: known.path().to_owned(), target });
        }
        match (said, target, approved) {
            (None, ..) => Ok(Self::Clear),
            (Some(_), TargetId::Name(name), Some(key)) => Ok(Self::Approved(name, key)),
            (Some(_), TargetId::Name(name), None) => Err(unknown(&name, export)),
            (Some(_), TargetId::Any | TargetId::Uuid(_), _) => Err(unnamed()),
        }
    }

    /// The key that the target has to prove; `None`: frames are in the clear.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        match self {
            Self::Clear => None,
            Self::Given(key) | Self::Approved(_, key) => Some(*key),
            Self::KnownTarget { target, .. } => Some(target.key),
        }
    }

    /// Has the target prove the key that has replaced its own, if it has.
    pub(super) fn renew(&mut self, replaced: &Replaced<String>) {
        let key = match self {
            Self::Clear => return,
            Self::Given(key) | Self::Approved(_, key) => key,
            Self::KnownTarget { target, .. } => &mut target.key,
        };
        // Another version may write keys in another way.
        let now = replaced.of(&key.to_string()).and_then(|now| now.parse().ok());
        *key = now.unwrap_or(*key);
    }

    /// The UUID that the target has to have: that of a known one. Another may have the same key.
    pub(super) fn target_uuid(&self) -> Option<Uuid> {
        match self {
            Self::KnownTarget { target, .. } => Some(target.uuid),
            Self::Clear | Self::Given(_) | Self::Approved(..) => None,
        }
    }
}

/// The error for a key that is not known where nobody can be asked.
pub(super) fn unknown(target: &Name, export: &str) -> Error {
    let message = format!(
        "the key of target `{target}` is not known to this machine: connect it once on a terminal \
         (tyche connect {export} --target-key ask), or give the key (--target-key KEY)"
    );
    Error::new(Code::Config, message)
}

/// The error for a target without a name whose key is asked for.
pub(super) fn unnamed() -> Error {
    let message = "--target-key ask keeps the key of a target by its name: tyche connect \
                   TARGET/EXPORT --target-key ask";
    Error::new(Code::Usage, message)
}

pub(super) fn target_key(text: &str) -> Result<TargetKey, String> {
    match text {
        "ask" => Ok(TargetKey::Ask),
        key => public_key(key).map(TargetKey::Given).map_err(|why| format!("{why}; or say: ask")),
    }
}
