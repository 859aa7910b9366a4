//! Memory of channels, in which the peer may place data.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tyche_block::{Arena, Extent, PAGE};
use tyche_engine::{Port, placed};
use tyche_link::Placement;
use tyche_numa::NumaAffinity;
use tyche_proto::PlaceableChannel;
use tyche_proto::wire::{ChannelId, Mac};

/// The most pages of an image: 8 MiB. Pages of a `damq` are used from the first one on, so it takes
/// much in flight to need more; data for those come in frames. Lower: less memory of each queue of
/// a host. Higher: more data are placed.
const IMAGE_PAGES_MAX: usize = 2048;

/// The memory for the channels of a link.
pub trait ChannelMemory: Send {
    /// Whether peers may place data.
    fn places(&self) -> bool;

    /// Allocates so many pages for a channel. `places`: the peer, if it may place data there.
    ///
    /// # Errors
    /// If there is no memory.
    fn open(&mut self, channel: ChannelId, pages: usize, places: Option<Mac>) -> io::Result<Arena>;

    /// Whether the peer can write to the memory of a channel.
    fn is_exposed(&self, channel: ChannelId) -> bool;

    /// Notes that a channel is closed: when this returns, the peer can't write to its memory any
    /// more.
    fn close(&mut self, channel: ChannelId);
}

/// Memory near a link, in which its peers place data if that kind of link can have them do so.
pub(crate) struct LinkMemory {
    home: NumaAffinity,
    placement: Option<Arc<dyn Placement>>,
    /// The peers that place data, by their channels.
    peers: BTreeMap<ChannelId, Mac>,
}

impl LinkMemory {
    pub(crate) fn of(port: &Port) -> Self {
        let (home, placement) = (port.home().clone(), port.link().placement());
        Self { home, placement, peers: BTreeMap::new() }
    }
}

impl ChannelMemory for LinkMemory {
    fn places(&self) -> bool {
        self.placement.is_some()
    }

    fn open(&mut self, channel: ChannelId, pages: usize, places: Option<Mac>) -> io::Result<Arena> {
        let memory = placed::channel_arena(&self.home, pages)?;
        let (Some(placement), Some(peer)) = (&self.placement, places) else { return Ok(memory) };
        let memory = placement.expose(peer.0, channel.0, memory)?;
        self.peers.insert(channel, peer);
        Ok(memory)
    }

    fn is_exposed(&self, channel: ChannelId) -> bool {
        self.peers.contains_key(&channel)
    }

    fn close(&mut self, channel: ChannelId) {
        if let (Some(placement), Some(peer)) = (&self.placement, self.peers.remove(&channel)) {
            placement.retract(peer.0, channel.0);
        }
    }
}

/// Images of the targets' `damq`s, in which targets place the data of reads: the data of a request
/// are where its pages are. From there they are copied into the request's own memory, which nobody
/// else ever writes to, however late.
#[derive(Default)]
pub(crate) struct Images {
    /// By port, unless its link can't have data placed.
    ports: BTreeMap<usize, LinkMemory>,
    open: Vec<Image>,
}

struct Image {
    channel: PlaceableChannel,
    pages: Extent,
}

impl Images {
    /// Takes note of a port.
    pub(crate) fn add_port(&mut self, index: usize, port: &Port) {
        let memory = LinkMemory::of(port);
        if memory.places() {
            self.ports.insert(index, memory);
        }
    }

    /// Takes note of the channels that are live now: others have no image any more. Without memory
    /// for one, data come in frames.
    pub(crate) fn update(&mut self, live: impl Iterator<Item = PlaceableChannel>) {
        let Self { ports, open } = self;
        let live: Vec<_> = live.filter(|it| ports.contains_key(&it.port)).collect();
        let ended = open.extract_if(.., |it| !live.contains(&it.channel));
        for Image { channel, .. } in ended {
            if let Some(memory) = ports.get_mut(&channel.port) {
                memory.close(channel.channel);
            }
        }
        for channel in live {
            if open.iter().any(|it| it.channel == channel) {
                continue;
            }
            let PlaceableChannel { port, peer, damq_pages, .. } = channel;
            let pages = (damq_pages as usize).min(IMAGE_PAGES_MAX);
            let memory = ports.get_mut(&port).expect("only channels of those are left");
            if let Ok(arena) = memory.open(channel.channel, pages, Some(peer)) {
                let pages = arena.claim(0, pages * PAGE).expect("all of its pages are free");
                open.push(Image { channel, pages });
            }
        }
    }

    /// The data that were placed for a channel, all of them; `None` if it has no image.
    pub(crate) fn of(&self, channel: ChannelId) -> Option<&[u8]> {
        let image = self.open.iter().find(|it| it.channel.channel == channel)?;
        Some(&image.pages)
    }
}
