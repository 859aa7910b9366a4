//! The hosts that targets let in by their keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DefinedBy;

/// The hosts with a key that a target knows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KnownHosts {
    /// Name of the target.
    pub target: String,
    /// Why the target does not answer, in words; null if it does.
    pub problem: Option<String>,
    /// The hosts, by name.
    pub hosts: Vec<KnownHost>,
}

/// A host with a key that a target knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KnownHost {
    /// Its name at the target.
    pub host: String,
    /// Its public keys.
    pub keys: Vec<String>,
    /// The fingerprints of these, in the same order.
    pub fingerprints: Vec<String>,
    /// The place that says that it is let in. One that was added by `command` may have only exports
    /// that name it, others all exports that are not for certain hosts.
    pub defined_by: DefinedBy,
    /// Why it is not let in at present, in words, such as that its key is that of an admin in the
    /// configuration; null if it is.
    pub problem: Option<String>,
    /// Its most requests in a second at all exports together; null: any number.
    pub iops: Option<u64>,
    /// The most bytes that it reads and writes in a second at all exports together; null: any
    /// number.
    pub bytes_per_second: Option<u64>,
    /// The exports that it has connected.
    pub connected: Vec<String>,
}

/// A change of the hosts that a target lets in by their keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HostChanged {
    /// Name of the target.
    pub target: String,
    /// Name of the host.
    pub host: String,
    /// Its public key; null if it is removed.
    pub key: Option<String>,
    /// Fingerprint of the key; null likewise.
    pub fingerprint: Option<String>,
    /// True if anything has changed; false if it was so already.
    pub changed: bool,
    /// Sessions that end.
    pub sessions_ended: u64,
}
