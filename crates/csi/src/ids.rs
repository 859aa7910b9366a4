//! Names of volumes, snapshots and nodes.
//!
//! The driver keeps nothing, so a name says all that is needed to find what it names: a volume's is
//! `TARGET@HOST[:PORT]/KEY/EXPORT`, where the target is asked, its public key, and its export; a
//! node's is `NAME/KEY`, the host and its public key. Orchestrators take 128 bytes for a volume.

use std::fmt;

use sha2::{Digest, Sha256};
use tonic::Status;

/// The beginning of all public keys.
const KEY: &str = "tyche_";
/// Characters of a key after that.
const KEY_LEN: usize = 43;
/// Maximum length of the name of an export that the driver makes.
const EXPORT_MAX: usize = 45;
/// Maximum length of the place of a target, so that the whole has 128 bytes.
const PLACE_MAX: usize = 128 - KEY_LEN - EXPORT_MAX - 2;
/// Maximum length of the name of an export that somebody else has made.
const FOREIGN_MAX: usize = 63;
/// Maximum length of the name of a host.
const HOST_MAX: usize = 63;
/// End of the name of an export that is not finished yet.
const UNFINISHED: &str = ".new";

/// A target: the place of its control port, and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TargetId {
    /// `NAME@HOST[:PORT]`.
    pub(crate) place: String,
    /// Its public key, without what all keys begin with.
    key: String,
}

impl TargetId {
    /// Checks the parameters of a storage class: place and key.
    ///
    /// # Errors
    /// How to write them.
    pub(crate) fn new(place: &str, key: &str) -> Result<Self, String> {
        let key = key.strip_prefix(KEY).unwrap_or_default();
        if key.len() != KEY_LEN || !key.bytes().all(is_of_key) {
            return Err(format!(
                "targetKey: write the public key that `tyche key show` prints at the target: \
                 {KEY} and {KEY_LEN} letters, digits, - and _"
            ));
        }
        let (name, host) = place.split_once('@').unwrap_or_default();
        let is_fit = !host.is_empty() && place.len() <= PLACE_MAX && is_plain(name);
        if !is_fit || !host.bytes().all(|byte| is_of_name(byte) || b":[]".contains(&byte)) {
            return Err(format!(
                "target: write NAME@HOST[:PORT], the name of the target and where its control port \
                 is, {PLACE_MAX} bytes at most"
            ));
        }
        Ok(Self { place: place.to_owned(), key: key.to_owned() })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.place.split('@').next().unwrap_or_default()
    }

    /// Its public key.
    pub(crate) fn key(&self) -> String {
        format!("{KEY}{}", self.key)
    }

    /// One of its exports.
    pub(crate) fn export(&self, export: &str) -> VolumeId {
        VolumeId { target: self.clone(), export: export.to_owned() }
    }
}

/// A volume or a snapshot: an export of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VolumeId {
    pub(crate) target: TargetId,
    pub(crate) export: String,
}

impl VolumeId {
    /// Parses the id that the driver has given out; `None` if it has not.
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let mut parts = id.splitn(3, '/');
        let (place, key, export) = (parts.next()?, parts.next()?, parts.next()?);
        let target = TargetId::new(place, &format!("{KEY}{key}")).ok()?;
        let is_fit = export.len() <= FOREIGN_MAX && is_plain(export) && !is_unfinished(export);
        is_fit.then(|| target.export(export))
    }

    /// The volume of a request.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none; `NotFound` if it can't be one of this driver.
    pub(crate) fn required(id: &str) -> Result<Self, Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("the request names no volume"));
        }
        let message = || format!("`{}` is no volume of this driver", shown(id));
        Self::parse(id).ok_or_else(|| Status::not_found(message()))
    }

    /// The export as `tyche connect` takes it.
    pub(crate) fn at_host(&self) -> String {
        format!("{}/{}", self.target.name(), self.export)
    }

    /// A short name without special characters, for units and files.
    pub(crate) fn digest(&self) -> String {
        digest(&self.to_string(), 24)
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.target.place, self.target.key, self.export)
    }
}

/// A node: a host of targets, known to them by its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeId {
    pub(crate) name: String,
    /// Its public key.
    pub(crate) key: String,
}

impl NodeId {
    /// A node of that name and key; `None` if they can't be those of one.
    pub(crate) fn new(name: &str, key: &str) -> Option<Self> {
        let secret = key.strip_prefix(KEY)?;
        let is_key = secret.len() == KEY_LEN && secret.bytes().all(is_of_key);
        let is_fit = is_key && name.len() <= HOST_MAX && is_plain(name);
        is_fit.then(|| Self { name: name.to_owned(), key: key.to_owned() })
    }

    /// Parses the id that a node has said; `None` if it can't be one.
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let (name, key) = id.split_once('/')?;
        Self::new(name, key)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.key)
    }
}

/// The export for a volume or snapshot that an orchestrator calls by that name: the name itself, or
/// if that is too long or has special characters, one that is computed from it.
pub(crate) fn export_name(name: &str) -> String {
    match name.len() <= EXPORT_MAX && is_plain(name) && !is_unfinished(name) {
        true => name.to_owned(),
        false => format!("csi-{}", digest(name, 40)),
    }
}

/// The name that an export has until it is finished.
pub(crate) fn unfinished(export: &str) -> String {
    format!("{export}{UNFINISHED}")
}

/// Whether an export of that name is not finished: for the driver it is not there.
pub(crate) fn is_unfinished(export: &str) -> bool {
    export.ends_with(UNFINISHED)
}

/// The first characters of a text from outside, for messages.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(128).filter(|it| !it.is_control()).collect()
}

/// The first `digits` of the SHA-256 of a text, in hexadecimal.
fn digest(text: &str, digits: usize) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    hex[..digits].to_owned()
}

/// Whether a name is a file name and an argument of a program, whatever is in it.
fn is_plain(name: &str) -> bool {
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && name.bytes().all(is_of_name)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> String {
        format!("tyche_{}", "k".repeat(KEY_LEN))
    }

    #[test]
    fn a_volume_is_found_by_its_name_alone() {
        let target = TargetId::new("store1@storage1.example.org:8652", &key()).unwrap();
        let id = target.export(&export_name(&"x".repeat(128)));
        let text = id.to_string();
        assert!(text.len() <= 128, "{text}");
        assert_eq!(VolumeId::parse(&text), Some(id.clone()));
        assert_eq!((target.name(), target.key()), ("store1", key()));
        assert!(id.at_host().starts_with("store1/csi-"));
        assert_eq!(id.digest().len(), 24);
        let longest = format!("s@{}", "h".repeat(PLACE_MAX - 2));
        let target = TargetId::new(&longest, &key()).unwrap();
        assert_eq!(target.export(&"x".repeat(EXPORT_MAX)).to_string().len(), 128);
    }

    #[test]
    fn other_names_are_no_volumes() {
        let key = "k".repeat(KEY_LEN);
        let good = format!("s@h/{key}/pvc-1");
        assert!(VolumeId::parse(&good).is_some());
        let long = "x".repeat(FOREIGN_MAX + 1);
        let (export, place) = (format!("s@h/{key}/{long}"), format!("s@{long}/{key}/pvc-1"));
        for text in [
            "",
            "fake-vol-id",
            "s@h/pvc-1",
            &format!("s@h/{key}/"),
            &format!("s@h/{key}/a/b"),
            &format!("s@h/{key}/../b"),
            &format!("s@h/{key}/-b"),
            &format!("s@h/{key}/pvc-1.new"),
            &format!("h/{key}/pvc-1"),
            &format!("-s@h/{key}/pvc-1"),
            &format!("@h/{key}/pvc-1"),
            &format!("s@h/{key}x/pvc-1"),
            &format!("s@h/{}é/pvc-1", &key[2..]),
            &export,
            &place,
        ] {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
        let code = |id: &str| VolumeId::required(id).unwrap_err().code();
        assert_eq!(code(""), tonic::Code::InvalidArgument);
        assert_eq!(code("fake-vol-id"), tonic::Code::NotFound);
    }

    #[test]
    fn a_node_is_a_host_with_a_key() {
        let node = NodeId::parse(&format!("node-1.example.org/{}", key())).unwrap();
        assert_eq!((node.name.as_str(), node.key.clone()), ("node-1.example.org", key()));
        assert_eq!(NodeId::parse(&node.to_string()), Some(node));
        for text in ["", "fake-node-id", "node/", "node/tyche_x", &format!("-n/{}", key())] {
            assert_eq!(NodeId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_that_are_no_file_names_are_computed() {
        assert_eq!(export_name("pvc-7f1c2c1e-0001"), "pvc-7f1c2c1e-0001");
        for name in ["a/b", "..", "ä", "-x", "", "x.new", &"x".repeat(EXPORT_MAX + 1)] {
            let made = export_name(name);
            assert!(made.starts_with("csi-") && made.len() == 44, "{name}: {made}");
            assert_eq!(made, export_name(name));
        }
        assert_ne!(export_name("a/b"), export_name("a/c"));
        assert!(is_unfinished(&unfinished("pvc-1")) && !is_unfinished("pvc-1"));
    }
}
