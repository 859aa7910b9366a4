//! Links of a loop to the simulated network.
//!
//! A link has two ends: the loop's, which is a [`Link`] like that of a real interface, and the
//! world's, the [`Wire`], which takes the frames that the loop has sent and gives it those that
//! arrive. A link over UDP divides its frames into trains as the real one does.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_engine::{Batches, Port};
use tyche_link::udp::{TRAIN_MAX, train};
use tyche_link::{Interface, Link, RxBatch, TxBatch};
use tyche_numa::NumaAffinity;
use tyche_wire::{ENTRIES_MAX, HEAD_LEN, Mac};

/// Batches of a few frames, because a run has many ports, and the memory of a batch is allocated as
/// a whole.
const BATCHES: Batches = Batches { frames: 4, head_len: HEAD_LEN, pieces_max: ENTRIES_MAX };
/// The same for short frames over UDP, of which trains are made.
const BATCHES_OF_TRAINS: Batches = Batches { frames: 16, ..BATCHES };
/// The longest of these frames.
const SHORT_MAX: usize = 9000;

/// The medium of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Each by itself.
    Ethernet,
    /// Datagrams to one peer.
    UdpClient,
    /// Datagrams to any peers.
    UdpServer,
}

/// Frames that leave together.
pub(crate) type Train = Vec<Vec<u8>>;

/// The loop's end.
struct SimulatedLink {
    name: String,
    mac: Mac,
    frame_len_max: usize,
    carrier: Carrier,
    lanes: Arc<Mutex<Lanes>>,
}

/// The world's end.
pub(crate) struct Wire(Arc<Mutex<Lanes>>);

#[derive(Default)]
struct Lanes {
    /// Frames, and whether the network has marked them.
    arrived: VecDeque<(Vec<u8>, bool)>,
    sent: VecDeque<Train>,
    /// The next call for frames fails: the interface is down.
    is_down: bool,
    /// The longest frame that the interface takes, if that is shorter than it was.
    narrowed: Option<usize>,
    /// It has refused a frame in this round: all others of the round are lost. The world looks at
    /// frames after the round, when the loop has given up their channel already.
    refuses: bool,
    /// Addresses that it takes frames to, besides its own.
    joined: BTreeSet<[u8; 6]>,
}

/// The port of a link called `name` with its address, for frames of up to `frame_len_max` bytes.
pub(crate) fn port(
    name: String,
    (mac, carrier): (Mac, Carrier),
    frame_len_max: usize,
) -> (Port, Wire) {
    let in_trains = carrier != Carrier::Ethernet && frame_len_max <= SHORT_MAX;
    let batches = if in_trains { BATCHES_OF_TRAINS } else { BATCHES };
    open(SimulatedLink { name, mac, frame_len_max, carrier, lanes: Arc::default() }, batches)
}

/// The same on Ethernet, for frames with heads of another length.
pub(crate) fn port_with_heads(
    (name, mac): (String, Mac),
    frame_len_max: usize,
    head_len: usize,
) -> (Port, Wire) {
    let (carrier, lanes) = (Carrier::Ethernet, Arc::default());
    let link = SimulatedLink { name, mac, frame_len_max, carrier, lanes };
    open(link, Batches { head_len, ..BATCHES })
}

fn open(link: SimulatedLink, batches: Batches) -> (Port, Wire) {
    let wire = Wire(Arc::clone(&link.lanes));
    (Port::new(Box::new(link), NumaAffinity::default(), batches), wire)
}

/// Divides frames, each with the most bytes that may leave at once with it, into trains.
fn divide(mut frames: Vec<(Vec<u8>, usize)>, carrier: Carrier) -> Vec<Train> {
    let to = |frame: &[u8]| {
        let is_routed = carrier == Carrier::UdpServer;
        is_routed.then(|| Mac::destination(frame.first_chunk().expect("a head")).0)
    };
    frames.sort_by_key(|(frame, _)| to(frame));
    let mut trains = Vec::new();
    while let Some((first, _)) = frames.first() {
        let first = to(first);
        let alike = frames.iter().take_while(|(frame, _)| to(frame) == first);
        let lengths = alike.map(|(frame, burst)| (frame.len(), (*burst).min(TRAIN_MAX)));
        let count = match carrier {
            Carrier::Ethernet => 1,
            _ => train::next(lengths).expect("there is a frame").frames,
        };
        trains.push(frames.drain(..count).map(|(frame, _)| frame).collect());
    }
    trains
}

fn lock(lanes: &Mutex<Lanes>) -> MutexGuard<'_, Lanes> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// A frame arrives.
    pub(crate) fn arrive(&self, frame: &[u8], is_congested: bool) {
        lock(&self.0).arrived.push_back((frame.to_vec(), is_congested));
    }

    /// Whether the loop has read all frames that have arrived.
    pub(crate) fn is_read(&self) -> bool {
        lock(&self.0).arrived.is_empty()
    }

    /// A round of the loop begins, in which the interface refuses frames longer than `len`.
    pub(crate) fn begin_round(&self, len: usize) {
        let mut lanes = lock(&self.0);
        (lanes.narrowed, lanes.refuses) = (Some(len), false);
    }

    /// Whether frames to a group, or to an address of a protocol, are taken.
    pub(crate) fn has_joined(&self, address: [u8; 6]) -> bool {
        lock(&self.0).joined.contains(&address)
    }

    /// The next frames that the loop has sent together.
    pub(crate) fn take(&self) -> Option<Train> {
        let mut lanes = lock(&self.0);
        if lanes.refuses {
            lanes.sent.clear();
        }
        lanes.sent.pop_front()
    }

    /// The interface goes down for a moment: the loop's next call for frames fails.
    pub(crate) fn go_down(&self) {
        let mut lanes = lock(&self.0);
        lanes.arrived.clear();
        lanes.is_down = true;
    }
}

impl Link for SimulatedLink {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: self.mac.0 }
    }

    fn frame_len_max(&self) -> usize {
        lock(&self.lanes).narrowed.map_or(self.frame_len_max, |len| len.min(self.frame_len_max))
    }

    fn receive_capacity(&self, _frame_len: usize) -> usize {
        usize::MAX
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        batch.clear();
        let mut lanes = lock(&self.lanes);
        if std::mem::take(&mut lanes.is_down) {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        while batch.len() < batch.capacity() {
            let Some((frame, is_congested)) = lanes.arrived.pop_front() else { break };
            // A frame that does not fit is lost, as on a socket.
            if batch.push([frame.as_slice()]).is_ok() && is_congested {
                batch.mark_congested();
            }
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let frame_len_max = self.frame_len_max();
        let taken = batch.frames().take_while(|frame| frame.len() <= frame_len_max).count();
        if taken == 0 && !batch.is_empty() {
            lock(&self.lanes).refuses = true;
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let frames = batch.frames().take(taken).map(|frame| {
            let mut bytes = Vec::new();
            frame.append_to(&mut bytes);
            (bytes, frame.burst())
        });
        let trains = divide(frames.collect(), self.carrier);
        lock(&self.lanes).sent.extend(trains);
        Ok(taken)
    }

    fn join(&mut self, address: [u8; 6]) -> io::Result<()> {
        lock(&self.lanes).joined.insert(address);
        Ok(())
    }

    fn leave(&mut self, address: [u8; 6]) -> io::Result<()> {
        lock(&self.lanes).joined.remove(&address);
        Ok(())
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        unreachable!("nobody waits in simulated time")
    }
}
