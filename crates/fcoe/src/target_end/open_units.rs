//! The logical units that a thread uses: each from the first command on, until it is removed.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::Completion;
use tyche_engine::{Disk, Limiter, Line, Step};
use tyche_time::Instant;

use super::units::{LogicalUnit, Units};

/// Time after which a thread whose commands wait looks whether their limit has changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The access of a thread to a logical unit.
pub(super) struct OpenUnit {
    number: u8,
    pub(super) unit: Arc<LogicalUnit>,
    pub(super) disk: Disk,
    /// Commands that wait at its limit, by exchange.
    line: Line<u16>,
    /// When the limit was last looked at.
    looked_at: Instant,
    /// The losses of the disk that its generation accounts for, as this thread knows.
    losses: u64,
}

impl OpenUnit {
    fn new(unit: Arc<LogicalUnit>, units: &Units) -> Self {
        let disk = Disk::new(Arc::clone(&unit.unit.exported));
        let losses = disk.exported().losses();
        units.renew(&unit);
        let (number, line, looked_at) = (unit.unit.number, Line::default(), Instant(0));
        Self { number, unit, disk, line, looked_at, losses }
    }

    fn limiter(&self) -> &Limiter {
        self.unit.unit.exported.limiter()
    }

    /// Has a command wait that moves `len` bytes, if there is a limit. Whether it waits.
    pub(super) fn waits(&mut self, now: Instant, exchange: u16, len: u32) -> bool {
        let waits = self.limiter().is_limited() || !self.line.is_empty();
        if waits {
            self.line.push(now, exchange, len);
        }
        waits
    }

    /// When a command may go on. Another limit is noticed in [`LOOK_EVERY`].
    fn next_at(&self) -> Option<Instant> {
        self.line.next_at().map(|at| at.min(self.looked_at + LOOK_EVERY))
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

    /// The next command whose turn at its limit has come.
    pub(super) fn next(&mut self, now: Instant) -> Option<u16> {
        for open in &mut self.0 {
            let OpenUnit { unit, line, .. } = open;
            loop {
                match line.step(now, std::iter::once(&**unit.unit.exported.limiter())) {
                    Step::Waits => break,
                    Step::Pays => {}
                    Step::Passes(exchange, _) => return Some(exchange),
                }
            }
            open.looked_at = now;
        }
        None
    }

    /// Removes a command that waits and `is_ending`; it is not executed.
    pub(super) fn take_ending(&mut self, is_ending: impl Fn(u16) -> bool) -> Option<u16> {
        let mut taken = None;
        for open in self.0.iter_mut().filter(|open| !open.line.is_empty()) {
            open.line.retain(|exchange| {
                let stays = taken.is_some() || !is_ending(*exchange);
                if !stays {
                    taken = Some(*exchange);
                }
                stays
            });
        }
        taken
    }

    /// When a command may go on that waits.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.0.iter().filter_map(OpenUnit::next_at).min()
    }

    /// The descriptors of the disks to wait for.
    pub(super) fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().filter_map(|open| open.disk.wait_fd())
    }
}
