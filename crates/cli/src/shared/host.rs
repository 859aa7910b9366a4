//! A host that is let in by its key: what `tyche host add` gives to a target, which keeps it.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use tyche_engine::RateLimit;
use tyche_proto::crypto::PublicKey;

use crate::shared::keys::key_text;
use crate::shared::rate_limit::{bytes_per_second, iops};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddedHost {
    /// Its name at the target.
    pub(crate) name: String,
    /// Its public key.
    #[serde(with = "key_text")]
    pub(crate) key: PublicKey,
    /// The most requests in a second, at all exports together.
    #[serde(default, deserialize_with = "iops", skip_serializing_if = "Option::is_none")]
    pub(crate) iops: Option<NonZeroU64>,
    /// The most bytes that it reads and writes in a second, at all exports together.
    #[serde(
        default,
        deserialize_with = "bytes_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) bytes_per_second: Option<NonZeroU64>,
}

impl AddedHost {
    /// The limit of its requests.
    pub(crate) fn limit(&self) -> RateLimit {
        RateLimit { iops: self.iops, bytes_per_second: self.bytes_per_second }
    }
}

#[cfg(test)]
mod tests {
    use tyche_proto::crypto::SecretKey;

    use super::*;

    #[test]
    fn a_host_reads_as_it_was_written() {
        let key = SecretKey::from_random([1; 32]).public();
        let least = AddedHost { name: "node1".to_owned(), key, iops: None, bytes_per_second: None };
        let (iops, bytes_per_second) = (NonZeroU64::new(1000), NonZeroU64::new(1 << 20));
        let most = AddedHost { iops, bytes_per_second, ..least.clone() };
        for host in [&least, &most] {
            let text = serde_json::to_string(host).unwrap();
            assert_eq!(serde_json::from_str::<AddedHost>(&text).unwrap(), *host, "{text}");
        }
        let text = format!(r#"{{"name":"node1","key":"{key}"}}"#);
        assert_eq!(serde_json::to_string(&least).unwrap(), text);
        for wrong in [
            r#"{"name":"node1"}"#.to_owned(),
            text.replace(&key.to_string(), "tyche_x"),
            text.replace('}', r#","iops":9}"#),
            text.replace('}', r#","all_exports":true}"#),
        ] {
            assert!(serde_json::from_str::<AddedHost>(&wrong).is_err(), "{wrong}");
        }
    }
}
