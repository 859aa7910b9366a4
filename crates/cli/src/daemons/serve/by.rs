//! The user or admin that asks a target for something, and whether it still may when its turn
//! comes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::MutexGuard;

use tyche_proto::crypto::PublicKey;

use super::Served;
use super::admins::Admins;
use super::complaints::Complaints;
use crate::shared::error::{Code, Error, Result};

/// See the [module](self).
pub(super) enum By<'a> {
    /// A user of this machine; none if the kernel does not say which.
    User(Option<u32>),
    /// An admin elsewhere.
    Admin {
        /// The name at this target.
        name: &'a str,
        /// The key that it has proved.
        key: PublicKey,
        /// The address that it asks from.
        address: SocketAddr,
    },
}

impl By<'_> {
    /// Checks that it may still change something: an admin may have been taken off the list since
    /// it asked, because others were before it.
    ///
    /// # Errors
    /// `Refused` if it may not.
    pub(super) fn check(&self, admins: &Admins) -> Result<()> {
        let Self::Admin { name, key, .. } = self else { return Ok(()) };
        let what = match admins.find(key) {
            Some(admin) if !admin.read_only => return Ok(()),
            Some(_) => "may only look by now",
            None => "is no admin any more",
        };
        Err(Error::new(Code::Refused, format!("{name} {what}: nothing is changed")))
    }

    /// Waits for its turn to change exports or links; nobody else does until that is dropped.
    ///
    /// # Errors
    /// `Refused` if it may not any more.
    pub(super) fn turn<'s>(&self, served: &'s Served) -> Result<MutexGuard<'s, ()>> {
        let turn = served.exports.change();
        self.check(&served.admins).map(|()| turn)
    }

    /// Whether there is to be a line in the log that nothing was changed; with the number of those
    /// that were left out before.
    pub(super) fn may_complain(&self, complaints: &Complaints) -> Option<u64> {
        match self {
            Self::User(_) => Some(0),
            Self::Admin { key, .. } => complaints.take(key),
        }
    }
}

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(Some(uid)) => write!(f, "user {uid} of this machine"),
            Self::User(None) => write!(f, "a user of this machine"),
            Self::Admin { name, key, address } => {
                write!(f, "admin {name} ({}) at {address}", key.fingerprint())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tyche_proto::crypto::SecretKey;

    use super::super::config;
    use super::*;

    #[test]
    fn a_right_is_withdrawn_before_the_next_list_is_taken() {
        let [ops, monitor] = [2, 3].map(|it| SecretKey::from_random([it; 32]).public());
        let of = |name: &str, key, read_only| config::Admin {
            name: name.to_owned(),
            key: vec![key],
            read_only,
        };
        let admins = Admins::new(&[of("ops", ops, false), of("monitor", monitor, true)]);
        let by = |key| By::Admin { name: "ops", key, address: "127.0.0.1:1".parse().unwrap() };
        assert!(by(ops).check(&admins).is_ok());
        assert_eq!(by(monitor).check(&admins).unwrap_err().code, Code::Refused);
        // It gives the one more than it has, which has to wait.
        admins.withdraw(&[of("ops", ops, true), of("monitor", monitor, false)]);
        for (key, said) in [(ops, "may only look by now"), (monitor, "may only look by now")] {
            let error = by(key).check(&admins).unwrap_err();
            assert!(error.message.contains(said), "{error}");
        }
        admins.withdraw(&[of("monitor", monitor, true)]);
        let error = by(ops).check(&admins).unwrap_err();
        assert!(error.message.contains("no admin any more"), "{error}");
        assert!(By::User(None).check(&admins).is_ok());
    }
}
