//! A stranger on a [hub](Cable::lay_hub): it hears every frame and can send any.

use std::time::{Duration, Instant};
use tyche_proto::Outgoing;

use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_link::{HEAD, Link, RxBatch, TxVectors};
use tyche_proto::wire::{Content, Control, ETHERTYPE, Frame, HEAD_LEN, Header, Mac};

use super::{Cable, PATIENCE, Side};

/// Frames sent or received at once.
const BATCH: usize = 64;
/// The longest payload that it hears.
const PAYLOAD_MAX: usize = 9000;

/// An interface at the host's end that also hears frames for others: a rule makes its kernel take
/// every frame as addressed to it.
pub(crate) struct Stranger {
    link: PacketLink,
    rx: RxBatch,
    tx: TxVectors,
}

impl Stranger {
    pub(crate) fn new(cable: &Cable, name: &str) -> Self {
        let rules = format!(
            "add table netdev {name}; add chain netdev {name} hear {{ type filter hook ingress \
             device {name} priority 0; }}; add rule netdev {name} hear ether type \
             {ETHERTYPE:#06x} meta pkttype set host"
        );
        cable.end(Side::Host).nft(&rules);
        let options = PacketOptions::new(name);
        let link = cable.end(Side::Host).on_thread(|| PacketLink::open(&options)).unwrap();
        Self { link, rx: RxBatch::new(BATCH, PAYLOAD_MAX), tx: TxVectors::new(BATCH, 1) }
    }

    pub(crate) fn mac(&self) -> Mac {
        Mac(self.link.mac())
    }

    /// Calls `with` for each received frame; returns their number.
    pub(crate) fn hear(&mut self, mut with: impl FnMut(Heard<'_>)) -> usize {
        let mut count = 0;
        while self.link.receive(&mut self.rx).unwrap() > 0 {
            for frame in self.rx.iter() {
                let head = frame.head.try_into().unwrap();
                if let Ok(header) = Header::parse(head) {
                    with(Heard { head, payload: frame.payload, header });
                }
                count += 1;
            }
            self.rx.clear();
        }
        count
    }

    /// Sends frames unchanged.
    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        let deadline = Instant::now() + PATIENCE;
        for chunk in frames.chunks(BATCH) {
            let mut batch = self.tx.batch();
            for frame in chunk {
                batch.push_whole(frame, HEAD);
            }
            while !batch.is_empty() {
                let sent = self.link.send(&batch).unwrap();
                batch.skip(sent);
                assert!(Instant::now() < deadline, "the frames don't go out");
            }
        }
    }

    /// Waits up to `limit` for frames.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        super::wait_readable(self.link.wait_fd(), limit)
    }
}

/// A forged frame with valid checksums; `control` is its body, if any.
pub(crate) fn forged((to, from): (Mac, Mac), header: Header, control: Option<Control>) -> Vec<u8> {
    let content = control.map_or(Content::Empty, Content::Control);
    Outgoing { destination: to, header, content, ..Outgoing::new() }.to_bytes(from, &[])
}

/// A frame on the segment.
pub(crate) struct Heard<'a> {
    pub(crate) head: &'a [u8; HEAD_LEN],
    pub(crate) payload: &'a [u8],
    pub(crate) header: Header,
}

impl<'a> Heard<'a> {
    pub(crate) fn source(&self) -> Mac {
        Mac::source(self.head)
    }

    pub(crate) fn destination(&self) -> Mac {
        Mac::destination(self.head)
    }

    pub(crate) fn parsed(&self) -> Frame<'a> {
        Frame::parse(self.head, self.payload).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&self.head[..], self.payload].concat()
    }
}
