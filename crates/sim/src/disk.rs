//! A disk that does everything a disk may do: requests take time and overtake each other, writes
//! become visible sector by sector, the cache may be lost, and a crash tears sectors that are being
//! written.
//!
//! It has two images: the one that reads see, and the one that a loss of the cache would leave.
//! Without a cache they are always the same. With one, sectors are written back at random times.
//!
//! A flush or a write with FUA may fail. Then some of the sectors to be written back never are,
//! though reads see them. As a real kernel does, the disk tells that once, to whoever asks first: a
//! flush that is in progress then may succeed. As every store does, it counts the loss.
//!
//! Unlike a real disk, it does not write zeroes for WriteZeroes and Discard, but content that
//! identifies the operation. So the checker can distinguish a late repetition from the last
//! operation, as with writes. The protocol does not look at data. Asked for the status of a range,
//! it tells such sectors, and those that were never written, as holes.

use std::collections::BTreeSet;

use tyche_block::{Errno, Geometry, StatusRun, StatusWriter};
use tyche_proto::Operation;
use tyche_wire::{CommandFlags, Opcode};

use crate::content::{Content, SECTOR, examine, fill};
use crate::plan::DiskPlan;
use crate::random::Random;

/// The simulated disk of one export: the image that reads see, and the image that a loss of the
/// cache would leave. It has no clock: its caller says when a request takes effect, and how much of
/// it.
pub(crate) struct Disk {
    plan: DiskPlan,
    /// Bytes that requests may reach, at most the plan's.
    size: u64,
    seen: Box<[u8]>,
    durable: Box<[u8]>,
    /// Sectors in which the two images may differ.
    dirty: BTreeSet<u64>,
    /// Other sectors in which they differ, because their write-back failed.
    adrift: BTreeSet<u64>,
    /// How often a flush or a write with FUA has failed.
    losses: u64,
    /// Stamps of the operations that have zeroed or discarded sectors.
    zeroing: BTreeSet<u64>,
    random: Random,
}

/// Progress of a modifying operation.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    stamp: u64,
    /// Sectors that are still to be written.
    left: Vec<u64>,
    /// The disk's count of losses when the operation began.
    losses: u64,
}

impl Progress {
    /// Sectors still to be written, with their new content.
    pub(crate) fn left(&self) -> impl Iterator<Item = (u64, Content)> {
        self.left.iter().map(|&sector| (sector, Content::Stamp(self.stamp)))
    }
}

/// The sectors of an operation.
pub(crate) fn sectors(operation: &Operation) -> std::ops::Range<u64> {
    let first = operation.offset / SECTOR as u64;
    first..first + u64::from(operation.len) / SECTOR as u64
}

impl Disk {
    pub(crate) fn new(plan: DiskPlan, random: Random) -> Self {
        let image: Box<[u8]> = vec![0; plan.size as usize].into();
        let size = plan.size;
        Self {
            durable: image.clone(),
            seen: image,
            dirty: BTreeSet::new(),
            adrift: BTreeSet::new(),
            losses: 0,
            zeroing: BTreeSet::new(),
            size,
            plan,
            random,
        }
    }

    pub(crate) fn plan(&self) -> &DiskPlan {
        &self.plan
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn resize(&mut self, size: u64) {
        self.size = size.min(self.plan.size);
    }

    /// The disk as its store describes it.
    pub(crate) fn geometry(&self) -> Geometry {
        let DiskPlan { block_size, write_cache, .. } = self.plan;
        Geometry { write_cache, discard: true, ..Geometry::new(self.size, block_size) }
    }

    /// How often completed writes may have been lost by a flush or a write with FUA that failed.
    pub(crate) fn losses(&self) -> u64 {
        self.losses
    }

    /// The content of the medium.
    pub(crate) fn image(&self) -> Box<[u8]> {
        self.durable.clone()
    }

    /// Sets the content of the medium, with an empty cache.
    pub(crate) fn restore(&mut self, image: Box<[u8]>) {
        (self.seen, self.durable) = (image.clone(), image);
        (self.dirty, self.adrift) = (BTreeSet::new(), BTreeSet::new());
    }

    fn range(sector: u64) -> std::ops::Range<usize> {
        let first = sector as usize * SECTOR;
        first..first + SECTOR
    }

    /// The content that reads of the sector see.
    pub(crate) fn seen(&self, sector: u64) -> Content {
        examine(&self.seen[Self::range(sector)], sector)
    }

    /// The content of the sector if the cache is lost.
    pub(crate) fn durable(&self, sector: u64) -> Content {
        examine(&self.durable[Self::range(sector)], sector)
    }

    /// Begins an operation; `stamp`: that of one that modifies.
    pub(crate) fn begin(&self, operation: &Operation, stamp: u64) -> Progress {
        let modifies = operation.opcode.modifies();
        let left = if modifies { sectors(operation).collect() } else { Vec::new() };
        Progress { stamp, left, losses: self.losses }
    }

    /// Writes some of the remaining sectors, from the data as they are now.
    pub(crate) fn advance(&mut self, operation: &Operation, progress: &mut Progress, data: &[u8]) {
        for sector in std::mem::take(&mut progress.left) {
            if self.random.chance(0.5) {
                self.put(operation, progress.stamp, sector, data);
            } else {
                progress.left.push(sector);
            }
        }
    }

    /// Finishes an operation other than a read; a flush or FUA begins to fail only if `faulty`.
    pub(crate) fn finish(
        &mut self,
        operation: &Operation,
        progress: Progress,
        data: &[u8],
        faulty: bool,
    ) -> Result<(), Errno> {
        for sector in progress.left {
            self.put(operation, progress.stamp, sector, data);
        }
        let fua = operation.flags.contains(CommandFlags::FUA);
        let flush = operation.opcode == Opcode::Flush && !self.plan.flush_lies;
        if !fua && !flush {
            return Ok(());
        }
        if faulty && self.random.hits(self.plan.sync_errors) {
            self.fail_write_back();
            return Err(Errno::IO);
        }
        if fua {
            if self.losses != progress.losses {
                return Err(Errno::IO);
            }
            sectors(operation).for_each(|sector| self.write_back(sector));
        } else {
            std::mem::take(&mut self.dirty).into_iter().for_each(|it| self.write_back(it));
        }
        Ok(())
    }

    pub(crate) fn set_sync_errors(&mut self, probability: f64) {
        self.plan.sync_errors = probability;
    }

    fn fail_write_back(&mut self) {
        // Without a cache, only the operation itself has failed.
        let is_loss = self.plan.write_cache && !self.plan.errors_forgotten;
        self.losses += u64::from(is_loss);
        for sector in std::mem::take(&mut self.dirty) {
            let kept = self.random.chance(0.5);
            if kept { &mut self.dirty } else { &mut self.adrift }.insert(sector);
        }
    }

    /// Executes a read.
    pub(crate) fn read(&self, operation: &Operation, data: &mut [u8]) {
        let first = operation.offset as usize;
        data.copy_from_slice(&self.seen[first..first + data.len()]);
    }

    /// Whether a sector with that content is one that was never written, zeroed or discarded.
    pub(crate) fn is_hole(&self, content: Content) -> bool {
        match content {
            Content::Zero => true,
            Content::Stamp(stamp) => self.zeroing.contains(&stamp),
            Content::Garbage => false,
        }
    }

    /// Tells which sectors are holes, from the offset of the operation on.
    ///
    /// # Errors
    /// If the disk has been cut off before that since the request was checked.
    pub(crate) fn status(&self, operation: &Operation, data: &mut [u8]) -> Result<(), Errno> {
        if operation.offset >= self.size {
            return Err(Errno::IO);
        }
        let mut status = StatusWriter::new(data);
        let first = operation.offset / SECTOR as u64;
        for sector in first..self.size / SECTOR as u64 {
            let lies = self.plan.status_lies;
            let content = if lies { self.durable(sector) } else { self.seen(sector) };
            let run = if self.is_hole(content) { StatusRun::hole } else { StatusRun::data };
            if !status.push(run(SECTOR as u64)) {
                break;
            }
        }
        Ok(())
    }

    fn put(&mut self, operation: &Operation, stamp: u64, sector: u64, data: &[u8]) {
        let range = Self::range(sector);
        match operation.opcode {
            Opcode::Write => {
                let at = range.start - operation.offset as usize;
                self.seen[range].copy_from_slice(&data[at..at + SECTOR]);
            }
            // A discarded sector may keep its content or get any other; this disk does either.
            Opcode::Discard if self.random.chance(0.5) => return,
            _ => {
                self.zeroing.insert(stamp);
                fill(&mut self.seen[range], stamp, sector);
            }
        }
        self.dirty.insert(sector);
        self.adrift.remove(&sector);
        if !self.plan.write_cache || self.random.chance(0.1) {
            self.write_back(sector);
        }
    }

    fn write_back(&mut self, sector: u64) {
        let range = Self::range(sector);
        self.durable[range.clone()].copy_from_slice(&self.seen[range]);
        self.dirty.remove(&sector);
        self.adrift.remove(&sector);
    }

    /// Loses the cache: each of its sectors may have been written back. Returns those that are
    /// torn.
    pub(crate) fn lose_cache(&mut self) -> Vec<u64> {
        let mut torn = Vec::new();
        for sector in std::mem::take(&mut self.dirty) {
            if self.random.chance(0.3) {
                self.write_back(sector);
                if self.tears() {
                    torn.push(sector);
                }
            } else {
                self.revert(sector);
            }
        }
        std::mem::take(&mut self.adrift).into_iter().for_each(|sector| self.revert(sector));
        torn
    }

    fn revert(&mut self, sector: u64) {
        let range = Self::range(sector);
        self.seen[range.clone()].copy_from_slice(&self.durable[range]);
    }

    /// Draws whether a sector that is being written is torn when the machine goes down.
    pub(crate) fn tears(&mut self) -> bool {
        self.random.hits(self.plan.tears)
    }

    /// Replaces the content of a sector, also on the medium.
    pub(crate) fn spoil(&mut self, sector: u64, stamp: u64) {
        fill(&mut self.seen[Self::range(sector)], stamp, sector);
        self.write_back(sector);
    }
}
