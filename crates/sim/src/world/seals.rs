//! The record of sealed frames. No two of a key have the same number, and an end takes only frames
//! that the other has sent, each once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use tyche_proto::Rules;
use tyche_wire::{Checksum, ENTRY_LEN, ETHERNET_LEN, HEAD_LEN, Header, TAG_LEN};

use super::World;
use crate::network::Delivery;

/// A frame that was sent.
struct Sent {
    digest: u64,
    is_taken: bool,
}

/// The checker of sealed frames: a digest of each that was sent, by the cookie of its direction and
/// its packet number, and whether it was taken.
#[derive(Default)]
pub(super) struct Seals {
    /// The cookies of channels whose frames are sealed: each direction has a cookie and a key.
    cookies: HashSet<u64>,
    /// By cookie and packet number.
    sent: HashMap<(u64, u64), Sent>,
}

/// A digest of all of a frame but its addresses and the checksum of its header.
fn digest(frame: &[u8]) -> u64 {
    let (head, payload) = frame.split_at(HEAD_LEN);
    let head = Checksum::of(&head[ETHERNET_LEN..HEAD_LEN - 4]);
    u64::from(head) << 32 | u64::from(Checksum::of(payload))
}

/// Whether a frame is longer than what it says of itself, by a tag.
pub(super) fn is_sealed(header: &Header, frame: &[u8]) -> bool {
    let clear = HEAD_LEN + header.data_len as usize + usize::from(header.entries) * ENTRY_LEN;
    header.kind.on_channel() && frame.len() == clear + TAG_LEN
}

impl Seals {
    /// Records a sealed frame that is sent.
    fn send(&mut self, header: &Header, frame: &[u8]) -> Result<(), String> {
        let (cookie, packet) = (header.cookie.0, header.packet.0);
        self.cookies.insert(cookie);
        let digest = digest(frame);
        match self.sent.entry((cookie, packet)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Sent { digest, is_taken: false });
                Ok(())
            }
            Entry::Occupied(sent) if sent.get().digest == digest => Ok(()),
            Entry::Occupied(_) => Err(format!("two frames are sealed with number {packet}")),
        }
    }

    /// Records a frame that is taken.
    fn take(&mut self, header: &Header, frame: &[u8]) -> Result<(), String> {
        if !header.kind.on_channel() || !self.cookies.contains(&header.cookie.0) {
            return Ok(());
        }
        let sent = self.sent.get_mut(&(header.cookie.0, header.packet.0));
        match sent.filter(|sent| sent.digest == digest(frame)) {
            None => Err(format!("a forged frame is taken: {header}")),
            Some(sent) if sent.is_taken => Err(format!("a frame is taken twice: {header}")),
            Some(sent) => {
                sent.is_taken = true;
                Ok(())
            }
        }
    }
}

impl<R: Rules> World<R> {
    /// Checks the number of a frame that is sent, if it is sealed.
    pub(super) fn seal(&mut self, header: &Header, frame: &[u8]) -> Result<(), String> {
        if self.plan.keyed && is_sealed(header, frame) {
            return self.others.seals.send(header, frame);
        }
        Ok(())
    }

    /// Checks a frame that an end of a channel has taken without error.
    pub(super) fn unseal(&mut self, delivery: &Delivery) -> Result<(), String> {
        match Header::parse(delivery.head()) {
            Ok(header) if self.plan.keyed => self.others.seals.take(&header, &delivery.frame),
            _ => Ok(()),
        }
    }
}
