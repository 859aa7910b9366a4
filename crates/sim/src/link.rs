//! Links of a loop to the simulated network.
//!
//! A link has two ends: the loop's, which is a [`Link`] like that of a real interface, and the
//! world's, the [`Wire`], which takes the frames that the loop has sent and gives it those that
//! arrive.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_engine::{Batches, Port};
use tyche_link::{Interface, Link, RxBatch, TxBatch};
use tyche_numa::Home;
use tyche_wire::{ENTRIES_MAX, HEAD_LEN, Mac};

/// Batches of a few frames, because a run has many ports, and the memory of a batch is allocated as
/// a whole.
const BATCHES: Batches = Batches { frames: 4, head_len: HEAD_LEN, pieces_max: ENTRIES_MAX };

/// The loop's end.
struct SimulatedLink {
    name: String,
    mac: Mac,
    frame_len_max: usize,
    lanes: Arc<Mutex<Lanes>>,
}

/// The world's end.
pub(crate) struct Wire(Arc<Mutex<Lanes>>);

#[derive(Default)]
struct Lanes {
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    /// The next call for frames fails: the interface is down.
    is_down: bool,
}

/// The port of a link called `name` with its address, for frames of up to `frame_len_max` bytes.
pub(crate) fn port(name: String, mac: Mac, frame_len_max: usize) -> (Port, Wire) {
    let lanes = Arc::default();
    let wire = Wire(Arc::clone(&lanes));
    let link = Box::new(SimulatedLink { name, mac, frame_len_max, lanes });
    (Port::new(link, Home::default(), BATCHES), wire)
}

fn lock(lanes: &Mutex<Lanes>) -> MutexGuard<'_, Lanes> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// A frame arrives.
    pub(crate) fn arrive(&self, frame: &[u8]) {
        lock(&self.0).arrived.push_back(frame.to_vec());
    }

    /// The next frame that the loop has sent.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        lock(&self.0).sent.pop_front()
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
        self.frame_len_max
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
            let Some(frame) = lanes.arrived.pop_front() else { break };
            // A frame that does not fit is lost, as on a socket.
            let _ = batch.push([frame.as_slice()]);
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let frames = batch.frames().map(|frame| {
            let mut bytes = Vec::new();
            frame.append_to(&mut bytes);
            bytes
        });
        lock(&self.lanes).sent.extend(frames);
        Ok(batch.len())
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        unreachable!("nobody waits in simulated time")
    }
}
