//! The memory of the channels of a simulated target. Simulated links place no data; until when
//! hosts could do that is checked all the same, as if all of them might.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_block::Arena;
use tyche_native::ChannelMemory;
use tyche_wire::{ChannelId, Mac};

/// The channels of a link to whose memory a host may write.
#[derive(Clone, Default)]
pub(crate) struct Writable(Arc<Mutex<BTreeSet<ChannelId>>>);

impl Writable {
    pub(crate) fn channels(&self) -> MutexGuard<'_, BTreeSet<ChannelId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of up to so many pages for each channel.
pub(crate) struct Memory {
    pub(crate) pages_max: usize,
    pub(crate) writable: Writable,
}

impl ChannelMemory for Memory {
    fn places(&self) -> bool {
        false
    }

    fn open(&mut self, channel: ChannelId, pages: usize, _: Option<Mac>) -> io::Result<Arena> {
        assert!(pages <= self.pages_max, "a channel has {pages} pages");
        self.writable.channels().insert(channel);
        Arena::untouched(pages)
    }

    fn is_exposed(&self, _: ChannelId) -> bool {
        false
    }

    fn close(&mut self, channel: ChannelId) {
        self.writable.channels().remove(&channel);
    }
}
