//! Memory of ours in which peers place data, and what each of them was told of it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_block::{Arena, PAGE};

use super::pair::QueuePair;
use super::window::PeerRegion;
use crate::{Mac, Placement};

/// The most regions of a peer.
pub const REGIONS_MAX: usize = 64;

/// The memory that the connections of a link have their peers write to. `R` is the permission to
/// do that.
pub struct Exposures<R> {
    /// Whether it has to be memory that another process can map.
    in_files: bool,
    entries: Mutex<Vec<Exposure<R>>>,
    /// Changes so far that a connection has to take note of.
    changes: AtomicU32,
}

/// Memory that one peer writes to.
struct Exposure<R> {
    peer: Mac,
    region: u16,
    memory: Arena,
    file: Option<OwnedFd>,
    state: State<R>,
}

enum State<R> {
    /// The connection does not know of it yet.
    New,
    /// Its card may write there, as long as this lives.
    Registered { _permission: R },
    /// It can't be registered: data come in frames.
    Refused,
}

impl<R> Exposures<R> {
    /// None. `in_files`: all of it has to be memory that another process can map.
    pub fn new(in_files: bool) -> Self {
        Self { in_files, entries: Mutex::default(), changes: AtomicU32::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Exposure<R>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

impl<R: Send> Placement for Exposures<R> {
    fn expose(&self, peer: Mac, region: u16, memory: Arena) -> io::Result<Arena> {
        let (memory, file) = match self.in_files {
            false => (memory, None),
            true => {
                let (memory, file) = Arena::in_file(memory.pages())?;
                (memory, Some(file))
            }
        };
        let mut entries = self.lock();
        entries.retain(|it| (it.peer, it.region) != (peer, region));
        if entries.iter().filter(|it| it.peer == peer).count() < REGIONS_MAX {
            let (memory, state) = (memory.clone(), State::New);
            entries.push(Exposure { peer, region, memory, file, state });
            self.changed();
        }
        Ok(memory)
    }

    fn retract(&self, peer: Mac, region: u16) {
        // With the entry, the permission ends.
        self.lock().retain(|it| (it.peer, it.region) != (peer, region));
        self.changed();
    }
}

/// A connection's part of the exposures: those of its peer. They end with it.
pub(super) struct Told<R> {
    exposures: Arc<Exposures<R>>,
    peer: Mac,
    /// The changes that it knows of.
    seen: u32,
    /// The regions that the peer may write to.
    regions: Vec<u16>,
}

impl<R> Told<R> {
    pub(super) fn new(exposures: Arc<Exposures<R>>, peer: Mac) -> Self {
        Self { exposures, peer, seen: 0, regions: Vec::new() }
    }

    /// Whether the peer may write to that region.
    pub(super) fn has(&self, region: u16) -> bool {
        self.regions.contains(&region)
    }

    /// Takes note of changes: registers what is new with the pair. Calls `tell` with what the peer
    /// has to know.
    pub(super) fn update(
        &mut self,
        pair: &mut impl QueuePair<Registration = R>,
        mut tell: impl FnMut(PeerRegion),
    ) {
        let changes = self.exposures.changes.load(Ordering::Acquire);
        if self.seen == changes {
            return;
        }
        self.seen = changes;
        let Self { exposures, peer, regions, .. } = self;
        let mut entries = exposures.lock();
        let mut entries: Vec<_> = entries.iter_mut().filter(|it| it.peer == *peer).collect();
        regions.retain(|&number| {
            let is_known = entries
                .iter()
                .any(|it| it.region == number && matches!(it.state, State::Registered { .. }));
            if !is_known {
                tell(PeerRegion { number, key: 0, address: 0, len: 0 });
            }
            is_known
        });
        for entry in entries.iter_mut().filter(|it| matches!(it.state, State::New)) {
            entry.state = match pair.register(&entry.memory, entry.file.as_ref()) {
                Ok((permission, key, address)) => {
                    let (number, len) = (entry.region, (entry.memory.pages() * PAGE) as u64);
                    regions.push(number);
                    tell(PeerRegion { number, key, address, len });
                    State::Registered { _permission: permission }
                }
                // The connection itself says so if it has ended.
                Err(_) => State::Refused,
            };
        }
    }
}

impl<R> Drop for Told<R> {
    fn drop(&mut self) {
        self.exposures.lock().retain(|it| it.peer != self.peer);
    }
}
