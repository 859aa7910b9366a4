//! The state that the queues of a session have agreed on, under a lock.

use tyche_crypto::PublicKey;
use tyche_wire::Uuid;

use crate::host::session::event::{ExportState, Failure};

/// Generations that are remembered, because a queue may still be in them.
const GENERATIONS_MAX: usize = 256;
/// In place of an ordinal: a flush has to cover modifications that are lost.
pub(super) const LOST: u16 = u16::MAX;
/// Number of ordinals. They are numbered from 1 on, and wrap.
const ORDINALS: u32 = LOST as u32 - 1;

/// The state that all queues share, which changes rarely.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    pub(super) export: Option<ExportState>,
    /// The generations seen, oldest first, and the ordinal of the oldest.
    pub(super) generations: Vec<Uuid>,
    pub(super) first: u16,
    /// Why the session has failed.
    pub(super) failure: Option<Failure>,
    /// The key that the target is known by, if it is another one than at first.
    pub(super) target_key: Option<PublicKey>,
    /// Queues with answers on their way that tell of a loss, and the oldest ordinal that was lost.
    pub(super) telling: Vec<(usize, u16)>,
}

impl Agreed {
    /// The ordinal of a generation, which is added if it is new.
    pub(super) fn ordinal(&mut self, generation: Uuid) -> u16 {
        let index =
            self.generations.iter().rposition(|&it| it == generation).unwrap_or_else(|| {
                if self.generations.len() == GENERATIONS_MAX {
                    self.generations.remove(0);
                    // Zero means no ordinal.
                    self.first = self.first.checked_add(1).unwrap_or(1);
                }
                self.generations.push(generation);
                self.generations.len() - 1
            });
        let number = u32::from(self.first) - 1 + index as u32;
        (number % ORDINALS) as u16 + 1
    }

    /// The index of an ordinal's generation; for a forgotten ordinal, that of the oldest.
    pub(super) fn age(&self, ordinal: u16) -> usize {
        let age = (u32::from(ordinal) + ORDINALS - u32::from(self.first)) % ORDINALS;
        if (age as usize) < self.generations.len() { age as usize } else { 0 }
    }
}
