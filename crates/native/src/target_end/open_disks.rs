//! The disks that the open channels of a link use.
//!
//! A loop opens a queue to a disk with the first channel for its export, and gives it up with the
//! last. So exports come and go without a word to the loops, and a loop waits only for disks that
//! it uses, and looks at those that have requests.

use std::os::fd::BorrowedFd;

use slotmap::SecondaryMap;
use tyche_block::{Arena, Completion};
use tyche_engine::Disk;
use tyche_proto::wire::Uuid;
use tyche_proto::{ExportKey, Instant, Rules};

use super::exports::Exports;

/// The access of a loop to the disk of an export.
struct OpenDisk {
    disk: Disk,
    /// The generation of the export that the loop knows.
    generation: Uuid,
    /// The losses that it accounts for; `None` if it is not known yet.
    losses: Option<u64>,
    /// Open channels of the loop for the export.
    channels: usize,
    /// Whether it is among those to look at.
    is_busy: bool,
}

impl OpenDisk {
    /// The current generation of the export. If the store has lost more than the loop knows of, it
    /// is a new one, already on stable storage.
    fn generation(&mut self, export: ExportKey, exports: &Exports) -> Uuid {
        let losses = self.disk.exported().losses();
        if self.losses != Some(losses) {
            self.generation = exports.generation(export, losses);
            self.losses = Some(losses);
        }
        self.generation
    }
}

/// The disks of a loop, by export. Methods that name an export panic if it has no channel.
#[derive(Default)]
pub(super) struct OpenDisks {
    disks: SecondaryMap<ExportKey, OpenDisk>,
    /// Those that may have requests.
    busy: Vec<ExportKey>,
}

impl OpenDisks {
    /// Adds a channel with that memory to those of an export.
    pub(super) fn open(&mut self, export: ExportKey, arena: &Arena, exports: &Exports) {
        if !self.disks.contains_key(export) {
            let (generation, losses) = (Uuid::nil(), None);
            let disk = exports.open_disk(export);
            self.disks
                .insert(export, OpenDisk { disk, generation, losses, channels: 0, is_busy: false });
        }
        let open = &mut self.disks[export];
        open.channels += 1;
        // If there is no queue, the first request says so.
        let _ = open.disk.register(arena);
    }

    /// Removes a channel, which has no request at the disk.
    pub(super) fn close<R: Rules>(&mut self, export: ExportKey, arena: &Arena, exports: &Exports) {
        let open = &mut self.disks[export];
        open.disk.unregister(arena);
        open.channels -= 1;
        if open.channels == 0 {
            self.disks.remove(export);
            self.busy.retain(|it| *it != export);
            exports.close_disk::<R>(export);
        }
    }

    /// Gives the memory of a channel back from the page `first` on, until it is used again; none of
    /// that is at the disk. A block that is registered and begins before stays as it is.
    pub(super) fn give_back(&mut self, export: ExportKey, arena: &Arena, first: usize) {
        let first = self.disks[export].disk.cut(arena, first);
        arena.forget(first);
    }

    /// The disk of an export.
    #[inline]
    pub(super) fn get_mut(&mut self, export: ExportKey) -> &mut Disk {
        let open = &mut self.disks[export];
        if !std::mem::replace(&mut open.is_busy, true) {
            self.busy.push(export);
        }
        &mut open.disk
    }

    /// The current generation of an export.
    #[inline]
    pub(super) fn generation(&mut self, export: ExportKey, exports: &Exports) -> Uuid {
        self.disks[export].generation(export, exports)
    }

    /// Advances the requests at all disks, and adds the finished ones to `done`.
    pub(super) fn work(&mut self, now: Instant, exports: &Exports, done: &mut Vec<Completion>) {
        self.busy.retain(|export| {
            let open = &mut self.disks[*export];
            let before = done.len();
            open.disk.work(done);
            open.disk.watch(now);
            if done[before..].iter().any(|completion| completion.result.is_err()) {
                // A loss is on stable storage before the failure is reported: otherwise it would be
                // forgotten if the target died now and the host flushed again.
                open.generation(*export, exports);
            }
            open.is_busy = open.disk.is_busy();
            open.is_busy
        });
    }

    fn busy(&self) -> impl Iterator<Item = &Disk> {
        self.busy.iter().map(|export| &self.disks[*export].disk)
    }

    /// The descriptors of the disks to wait for.
    pub(super) fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.busy().filter_map(Disk::wait_fd)
    }

    /// When [`work`](Self::work) has to look at the disks next, if nothing happens.
    pub(super) fn watch_at(&self) -> Option<Instant> {
        self.busy().filter_map(Disk::watch_at).min()
    }
}
