//! The memory of a link's open channels.

use std::ops::{Index, IndexMut};

use tyche_block::{Arena, Extent};
use tyche_proto::wire::{ChannelId, Data};

use crate::stages::TargetStages;

/// What an open channel needs here.
pub(super) struct Channel {
    pub(super) export: usize,
    pub(super) writer: bool,
    /// The `damq`.
    pub(super) arena: Arena,
    /// What each slot holds of it, unless the store has it at the moment.
    slots: Box<[Option<Extent>]>,
    /// Where the time of its requests goes, if its host wants to know.
    pub(super) stages: Option<TargetStages>,
}

impl Channel {
    pub(super) fn new(
        export: usize,
        writer: bool,
        damq_pages: u32,
        queue_size: u16,
        stages: bool,
    ) -> Self {
        Self {
            export,
            writer,
            arena: Arena::new(damq_pages as usize),
            slots: (0..queue_size).map(|_| None).collect(),
            stages: stages.then(|| TargetStages::new(queue_size)),
        }
    }

    /// Frees what the slots hold.
    pub(super) fn into_arena(self) -> Arena {
        self.arena
    }

    /// Gives pages of the `damq` to a slot.
    pub(super) fn claim(&mut self, slot: u16, page: u32, len: u32) {
        let extent = self.arena.claim(page as usize, len as usize);
        let extent = extent.expect("the protocol keeps requests' pages apart");
        self.put(slot, Some(extent));
    }

    /// Takes what a slot holds: it goes to the store.
    pub(super) fn take(&mut self, slot: u16) -> Option<Extent> {
        self.slots[usize::from(slot)].take()
    }

    /// Gives it back, or frees what the slot holds.
    pub(super) fn put(&mut self, slot: u16, extent: Option<Extent>) {
        self.slots[usize::from(slot)] = extent;
    }

    /// Data of a write have come.
    pub(super) fn place(&mut self, slot: u16, offset: u32, data: &[u8]) {
        let extent = self.slots[usize::from(slot)].as_mut();
        extent.expect("claimed before data are placed")[offset as usize..][..data.len()]
            .copy_from_slice(data);
    }

    /// Data of a read that are to be sent.
    pub(super) fn data(&self, part: &Data) -> &[u8] {
        let extent = self.slots[usize::from(part.tag.slot)].as_ref();
        &extent.expect("held until released")[part.offset as usize..][..part.len as usize]
    }
}

/// See the module. By index; indexing with a channel that is not open panics.
#[derive(Default)]
pub(super) struct Channels(Vec<Option<Channel>>);

impl Channels {
    pub(super) fn open(&mut self, id: ChannelId, channel: Channel) {
        let index = usize::from(id.0);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(channel);
    }

    pub(super) fn close(&mut self, id: ChannelId) -> Channel {
        self.0[usize::from(id.0)].take().expect("closed once")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Whether any host wants to know where time goes.
    pub(super) fn are_timed(&self) -> bool {
        self.0.iter().flatten().any(|channel| channel.stages.is_some())
    }
}

impl Index<ChannelId> for Channels {
    type Output = Channel;

    fn index(&self, id: ChannelId) -> &Channel {
        self.0[usize::from(id.0)].as_ref().expect("a channel outlives its requests")
    }
}

impl IndexMut<ChannelId> for Channels {
    fn index_mut(&mut self, id: ChannelId) -> &mut Channel {
        self.0[usize::from(id.0)].as_mut().expect("a channel outlives its requests")
    }
}
