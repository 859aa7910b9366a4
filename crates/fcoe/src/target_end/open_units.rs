//! The logical units that a thread uses: each from the first command on, until it is removed.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tyche_block::Completion;
use tyche_engine::Disk;
use tyche_time::Instant;

use super::units::{LogicalUnit, Units};

/// The access of a thread to a logical unit.
pub(super) struct OpenUnit {
    number: u8,
    pub(super) unit: Arc<LogicalUnit>,
    pub(super) disk: Disk,
    /// The losses of the disk that its generation accounts for, as this thread knows.
    losses: u64,
}

impl OpenUnit {
    fn new(unit: Arc<LogicalUnit>, units: &Units) -> Self {
        let disk = Disk::new(Arc::clone(&unit.unit.exported));
        let losses = disk.exported().losses();
        units.renew(&unit);
        Self { number: unit.unit.number, unit, disk, losses }
    }

    /// Looks whether the disk has lost writes that were done. Then it has a new generation before
    /// anything else is begun or answered.
    pub(super) fn notice(&mut self, units: &Units) {
        let losses = self.disk.exported().losses();
        if std::mem::replace(&mut self.losses, losses) != losses {
            units.renew(&self.unit);
        }
    }
}

/// The logical units that a thread has open. A number is looked up in a list: there are few.
#[derive(Default)]
pub(super) struct OpenUnits(Vec<OpenUnit>);

impl OpenUnits {
    /// Opens a unit if there is one of that number, and looks whether it has lost writes.
    pub(super) fn open(&mut self, number: u8, units: &Units) {
        match self.0.iter_mut().find(|it| it.number == number) {
            Some(open) => open.notice(units),
            None => self.0.extend(units.get(number).map(|unit| OpenUnit::new(unit, units))),
        }
    }

    /// Gives up a unit, of which no command is left.
    pub(super) fn close(&mut self, number: u8) {
        self.0.retain(|it| it.number != number);
    }

    /// The unit of a command that the device server has begun.
    pub(super) fn get_mut(&mut self, number: u8) -> &mut OpenUnit {
        let open = self.0.iter_mut().find(|it| it.number == number);
        open.expect("it is opened before its first command, and closed after the last")
    }

    /// Advances the operations at the disks, and adds the finished ones to `done`.
    pub(super) fn work(&mut self, now: Instant, units: &Units, done: &mut Vec<Completion>) {
        for open in &mut self.0 {
            open.disk.work(done);
            open.disk.watch(now);
        }
        if done.iter().any(|completion| completion.result.is_err()) {
            self.0.iter_mut().for_each(|open| open.notice(units));
        }
    }

    /// The descriptors of the disks to wait for.
    pub(super) fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().filter_map(|open| open.disk.wait_fd())
    }
}
