//! Frames that ends with keys have sent, and which of them were taken.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use tyche_proto::wire::ETHERNET_LEN;

use super::adversary::header_of;

/// By the digest of all of a frame but its addresses: whether it was taken.
#[derive(Default)]
pub(crate) struct Seals(HashMap<u64, bool>);

/// The digest of a frame of a channel.
fn digest(frame: &[u8]) -> Option<u64> {
    header_of(frame).filter(|header| header.kind.on_channel())?;
    let mut hasher = DefaultHasher::new();
    frame[ETHERNET_LEN..].hash(&mut hasher);
    Some(hasher.finish())
}

impl Seals {
    pub(crate) fn send(&mut self, frame: &[u8]) {
        if let Some(digest) = digest(frame) {
            self.0.entry(digest).or_insert(false);
        }
    }

    pub(crate) fn take(&mut self, frame: &[u8]) {
        let Some(digest) = digest(frame) else { return };
        let is_taken = self.0.get_mut(&digest).expect("a frame is taken that nobody has sealed");
        assert!(!std::mem::replace(is_taken, true), "a sealed frame is taken twice");
    }
}
