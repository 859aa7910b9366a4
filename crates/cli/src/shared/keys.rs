//! Keys: public ones as arguments, and secret ones in the memory of this program.

use std::path::Path;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tyche_proto::crypto::{BadKey, PublicKey, SecretKey};

use crate::shared::error::{CodedResult, Result};

/// Environment variable that allows core dumps of programs with a secret key if it is `1`.
const CORE_DUMPS_VARIABLE: &str = "TYCHE_CORE_DUMPS";

/// Parses a public key.
///
/// # Errors
/// Why it is none.
pub(crate) fn public_key(text: &str) -> Result<PublicKey, String> {
    text.parse().map_err(|error: BadKey| error.to_string())
}

/// A public key in JSON: its text.
pub(crate) mod key_text {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;
    use tyche_proto::crypto::PublicKey;

    pub(crate) fn serialize<S: Serializer>(key: &PublicKey, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(key)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PublicKey, D::Error> {
        super::public_key(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Reads a secret key. From then on the memory of this process is in no core dump, and programs of
/// the same user can't read it, unless the environment says that they may.
///
/// # Errors
/// The file can't be used: see [`read_key`](tyche_session::read_key).
pub(crate) fn read_key(path: &Path) -> Result<SecretKey> {
    let is_dumpable = std::env::var_os(CORE_DUMPS_VARIABLE).is_some_and(|value| value == "1");
    // Before the key is in memory.
    if !is_dumpable && let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "core dumps of this process would have its secret key in them");
    }
    tyche_session::read_key(path).coded()
}
