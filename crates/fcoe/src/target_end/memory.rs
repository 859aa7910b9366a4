//! The memory for the data of commands, which initiators share.

use tyche_block::{Arena, Extent, PAGE};
use tyche_fc::target_end::Share;
use tyche_fc::wire::Wwn;

/// The memory of one target port for data: an arena, and the pages that each initiator holds. A
/// command gets memory only within the share of its initiator; otherwise it is refused.
pub(super) struct Memory {
    arena: Arena,
    /// Its pages.
    share: Share,
    /// The pages that each initiator holds.
    held: Vec<(Wwn, u32)>,
}

/// The pages of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    initiator: Wwn,
    pages: u32,
}

impl Memory {
    /// Memory of so many pages.
    pub(super) fn new(arena: Arena) -> Self {
        let pages = u32::try_from(arena.pages()).expect("its pages have numbers");
        Self { arena, share: Share::new(pages), held: Vec::new() }
    }

    /// All of it, for the stores.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Takes memory for so many bytes of an initiator's command; `None` if it has its share, or if
    /// there is no run of free pages as long.
    pub(super) fn claim(&mut self, initiator: Wwn, len: u32) -> Option<(Extent, Claim)> {
        let pages = len.div_ceil(PAGE as u32);
        let index = self.held.iter().position(|it| it.0 == initiator).unwrap_or_else(|| {
            self.held.push((initiator, 0));
            self.held.len() - 1
        });
        let (_, held) = &mut self.held[index];
        let extent =
            if pages <= self.share.room(*held) { self.arena.alloc(len as usize) } else { None };
        let extent = extent?;
        *held += pages;
        self.share.take(pages);
        Some((extent, Claim { initiator, pages }))
    }

    /// Takes back what a command had, whose memory is not lent any more.
    pub(super) fn give_back(&mut self, claim: Claim) {
        let Claim { initiator, pages } = claim;
        self.share.give(pages);
        let held = self.held.iter_mut().find(|it| it.0 == initiator);
        held.expect("it has claimed").1 -= pages;
    }

    /// Forgets an initiator whose commands have ended.
    pub(super) fn forget(&mut self, initiator: Wwn) {
        self.held.retain(|it| it.0 != initiator || it.1 > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Wwn = Wwn(1);
    const OTHER: Wwn = Wwn(2);

    #[test]
    fn an_initiator_leaves_memory_for_others() {
        let mut memory = Memory::new(Arena::new(64));
        let mut claims = Vec::new();
        while let Some(claim) = memory.claim(ONE, 8 * PAGE as u32) {
            claims.push(claim);
        }
        assert_eq!(claims.len(), 4, "half of it");
        let (extent, claim) = memory.claim(OTHER, 3 * PAGE as u32 + 1).expect("there is room");
        drop(extent);
        memory.give_back(claim);
        for (extent, claim) in claims {
            drop(extent);
            memory.give_back(claim);
        }
        memory.forget(ONE);
        assert_eq!(memory.held, [(OTHER, 0)]);
        assert_eq!(memory.share.free(), 64);
    }
}
