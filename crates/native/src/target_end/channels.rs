//! The memory of a link's open channels.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use tyche_block::{Arena, Extent};
use tyche_numa::Node;
use tyche_proto::wire::{ChannelId, Uuid};
use tyche_proto::{ExportKey, Part};
use tyche_store::Loan;

use super::stages::TargetStages;
use super::uses::Executing;

/// The data of a request.
#[derive(Default)]
struct Slot {
    /// Its pages of the `damq`, unless the store has them.
    extent: Option<Extent>,
    /// The data lent by the store for a read; the pages are unused then.
    loan: Option<Loan>,
    /// It is at the store.
    executing: Option<Executing>,
}

impl Slot {
    fn is_free(&self) -> bool {
        self.extent.is_none() && self.executing.is_none()
    }
}

/// The use of the memory of a channel, as far as it could be given back.
#[derive(Clone, Copy, PartialEq)]
enum Activity {
    /// None since it was given back.
    None,
    /// Some since the last look.
    Recent,
    /// Some before that.
    Past,
}

/// The memory and the state of an open channel.
pub(super) struct Channel {
    pub(super) export: ExportKey,
    /// The number of its use.
    pub(super) use_index: usize,
    /// The export's generation when the channel was opened, as its host was told.
    pub(super) generation: Uuid,
    /// The `damq`.
    pub(super) arena: Arena,
    slots: Box<[Slot]>,
    activity: Activity,
    /// Whether the peer may write to the `damq` by itself: it stays as it is then.
    is_exposed: bool,
    /// The stage times of its requests, if its host wants them.
    pub(super) stages: Option<TargetStages>,
}

impl Channel {
    pub(super) fn new(
        (export, use_index, generation): (ExportKey, usize, Uuid),
        arena: Arena,
        (queue_size, is_exposed): (u16, bool),
        stages: bool,
    ) -> Self {
        Self {
            export,
            use_index,
            generation,
            arena,
            slots: (0..queue_size).map(|_| Slot::default()).collect(),
            activity: Activity::None,
            is_exposed,
            stages: stages.then(|| TargetStages::new(queue_size)),
        }
    }

    /// Releases the slots' data; returns the `damq`.
    pub(super) fn into_arena(self) -> Arena {
        self.arena
    }

    /// Whether none of the `damq` is used, nor was since the last [look](Channels::look): then its
    /// memory is to be given back.
    pub(super) fn rest(&mut self) -> bool {
        let rests = self.activity == Activity::Past && self.slots.iter().all(Slot::is_free);
        if rests {
            self.activity = Activity::None;
        }
        rests
    }

    /// Gives pages of the `damq` to a slot.
    pub(super) fn claim(&mut self, slot: u16, page: u32, len: u32) {
        let extent = self.arena.claim(page as usize, len as usize);
        let extent = extent.expect("the protocol keeps requests' pages apart");
        self.put(slot, extent);
        if !self.is_exposed {
            self.activity = Activity::Recent;
        }
    }

    /// The request of a slot goes to the store.
    pub(super) fn begin(&mut self, slot: u16, request: Executing) {
        self.slots[usize::from(slot)].executing = Some(request);
    }

    /// The request of a slot comes back from the store.
    ///
    /// # Panics
    /// If it was not there.
    pub(super) fn ended(&mut self, slot: u16) -> Executing {
        let executing = self.slots[usize::from(slot)].executing.take();
        executing.expect("a request is answered once")
    }

    /// Takes the pages of a slot, to submit them to the store.
    pub(super) fn take(&mut self, slot: u16) -> Option<Extent> {
        self.slots[usize::from(slot)].extent.take()
    }

    /// Returns the pages to a slot.
    pub(super) fn put(&mut self, slot: u16, extent: Extent) {
        self.slots[usize::from(slot)].extent = Some(extent);
    }

    /// Sets the data that a read is answered with.
    pub(super) fn lend(&mut self, slot: u16, loan: Loan) {
        self.slots[usize::from(slot)].loan = Some(loan);
    }

    /// Releases the data of a slot.
    pub(super) fn release(&mut self, slot: u16) {
        self.slots[usize::from(slot)] = Slot::default();
    }

    /// Copies received data of a write into its slot.
    pub(super) fn place(&mut self, slot: u16, offset: u32, data: &[u8]) {
        let extent = self.slots[usize::from(slot)].extent.as_mut();
        extent.expect("claimed before data are placed")[offset as usize..][..data.len()]
            .copy_from_slice(data);
    }

    /// The data of a read for a frame.
    pub(super) fn data(&self, part: &Part) -> &[u8] {
        let Slot { extent, loan, .. } = &self.slots[part.request as usize];
        let data = loan.as_deref().or(extent.as_deref());
        &data.expect("held until released")[part.offset as usize..][..part.len as usize]
    }
}

/// The pages and requests of the open channels of a link, by index. Indexing with a channel that is
/// not open panics.
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

    /// The channel, unless it is closed or was turned away.
    pub(super) fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.0.get_mut(usize::from(id.0)).and_then(Option::as_mut)
    }

    pub(super) fn close(&mut self, id: ChannelId) -> Option<Channel> {
        self.0.get_mut(usize::from(id.0)).and_then(Option::take)
    }

    /// The NUMA nodes that the memory of the open channels is on.
    pub(super) fn memory_nodes(&self) -> Vec<Node> {
        let nodes = self.0.iter().flatten().flat_map(|channel| channel.arena.memory_nodes());
        let nodes: BTreeSet<_> = nodes.collect();
        nodes.into_iter().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Looks which channels have used no memory since the last look, but before.
    pub(super) fn look(&mut self) -> Vec<ChannelId> {
        let mut unused = Vec::new();
        for (id, channel) in (0..).map(ChannelId).zip(&mut self.0) {
            match channel.as_mut().map(|it| &mut it.activity) {
                Some(Activity::Past) => unused.push(id),
                Some(activity @ Activity::Recent) => *activity = Activity::Past,
                Some(Activity::None) | None => {}
            }
        }
        unused
    }

    /// Whether a [look](Self::look) may find some.
    pub(super) fn are_active(&self) -> bool {
        self.0.iter().flatten().any(|channel| channel.activity != Activity::None)
    }

    /// Whether any host wants stage times.
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
