//! The checker: what every sector may hold, given who was told what and when.
//!
//! Time is a count of steps, so that no two of them coincide. A write may take effect at any
//! step between its submission and its end; if it fails, or its host dies, it may have taken
//! effect or not. Of each sector the checker keeps the values that a read could return now
//! (`live`), and those that could be left if the target's cache were lost now (`durable`, which
//! includes all live ones). A value goes when a write that began after the value's own end is
//! known to have taken effect: acknowledged, or seen by a read.

use std::collections::{BTreeMap, BTreeSet};

use tyche_proto::OpId;
use tyche_wire::{CommandFlags, Opcode, Status};

use crate::content::{Content, SECTOR, examine};
use crate::disk::Disk;

#[cfg(test)]
mod tests;

/// A step of the run.
type Step = u64;

/// Not yet.
const NEVER: Step = Step::MAX;

#[derive(Clone, Copy, Debug)]
struct Value {
    content: Content,
    session: u64,
    began: Step,
    ended: Step,
    /// Acknowledged, and its session has not been told that it may be lost.
    owed: bool,
    live: bool,
    durable: bool,
    /// When it ceased to be live.
    died: Step,
}

/// An operation of a host, as the checker knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    pub(crate) session: u64,
    pub(crate) opcode: Opcode,
    pub(crate) flags: CommandFlags,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Tells it from all others if it modifies; else zero.
    pub(crate) stamp: u64,
    began: Step,
}

impl Submitted {
    fn sectors(&self) -> std::ops::Range<u64> {
        let first = self.offset / SECTOR as u64;
        first..first + u64::from(self.len) / SECTOR as u64
    }
}

/// See the module.
pub(crate) struct History {
    sectors: Vec<Vec<Value>>,
    step: Step,
    stamps: u64,
    write_cache: bool,
    /// Operations in progress, by session and name.
    open: BTreeMap<(u64, OpId), Submitted>,
    /// Stamps of operations that have ended, for their hosts.
    acknowledged: BTreeSet<u64>,
    /// Sectors with acknowledged writes that no flush has covered.
    unflushed: BTreeSet<u64>,
    /// When the cache was last lost.
    lost: Step,
}

impl History {
    pub(crate) fn new(size: u64, write_cache: bool) -> Self {
        let zero = Value {
            content: Content::Zero,
            session: 0,
            began: 0,
            ended: 0,
            owed: false,
            live: true,
            durable: true,
            died: NEVER,
        };
        Self {
            sectors: vec![vec![zero]; size as usize / SECTOR],
            step: 1,
            stamps: 0,
            write_cache,
            open: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            unflushed: BTreeSet::new(),
            lost: 0,
        }
    }

    fn tick(&mut self) -> Step {
        self.step += 1;
        self.step
    }

    /// A stamp that no operation had before.
    pub(crate) fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// Operations in progress.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether the operation of this stamp is over for its host.
    pub(crate) fn is_acknowledged(&self, stamp: u64) -> bool {
        self.acknowledged.contains(&stamp)
    }

    /// A host submits an operation.
    pub(crate) fn submit(
        &mut self,
        session: u64,
        op: OpId,
        (opcode, flags): (Opcode, CommandFlags),
        (offset, len): (u64, u32),
        stamp: u64,
    ) -> Result<(), String> {
        let began = self.tick();
        let submitted = Submitted { session, opcode, flags, offset, len, stamp, began };
        if self.open.insert((session, op), submitted).is_some() {
            return Err(format!("{op:?} was given out twice"));
        }
        if opcode.modifies() {
            let value = Value {
                content: Content::Stamp(stamp),
                session,
                began,
                ended: NEVER,
                owed: false,
                live: true,
                durable: true,
                died: NEVER,
            };
            for sector in submitted.sectors() {
                if let Some(values) = self.sectors.get_mut(sector as usize) {
                    values.push(value);
                }
            }
        }
        Ok(())
    }

    /// A host is told how an operation ended; `data` is what a read returned.
    pub(crate) fn complete(
        &mut self,
        session: u64,
        op: OpId,
        status: Status,
        data: &[u8],
        disk: &Disk,
    ) -> Result<Submitted, String> {
        let now = self.tick();
        let Some(done) = self.open.remove(&(session, op)) else {
            return Err(format!("{op:?} of session {session} was answered, but is not open"));
        };
        match done.opcode {
            Opcode::Read if status == Status::Success => self.check_read(now, &done, data)?,
            Opcode::Read => {}
            Opcode::Flush => self.flushed(now, &done, status, disk)?,
            Opcode::Write | Opcode::Discard | Opcode::WriteZeroes => {
                self.modified(now, &done, status, disk)?;
            }
        }
        Ok(done)
    }

    fn check_read(&mut self, now: Step, read: &Submitted, data: &[u8]) -> Result<(), String> {
        let began = read.began;
        for (sector, bytes) in read.sectors().zip(data.chunks_exact(SECTOR)) {
            let content = examine(bytes, sector);
            let values = &mut self.sectors[sector as usize];
            let mut possible = values
                .iter()
                .filter(|value| value.content == content && (value.live || value.died >= began));
            let Some(value) = possible.next().copied() else {
                return Err(wrong("a read returned", sector, content, values));
            };
            let unique = possible.next().is_none();
            if unique && self.lost < began {
                supersede(values, value.began, now);
            }
        }
        Ok(())
    }

    fn modified(
        &mut self,
        now: Step,
        done: &Submitted,
        status: Status,
        disk: &Disk,
    ) -> Result<(), String> {
        self.acknowledged.insert(done.stamp);
        let known = status == Status::Success && done.opcode != Opcode::Discard;
        let fua = done.flags.contains(CommandFlags::FUA);
        let reads = self.open.values().filter(|open| open.opcode == Opcode::Read);
        let oldest_read = reads.map(|read| read.began).min().unwrap_or(now);
        for sector in done.sectors() {
            let Some(values) = self.sectors.get_mut(sector as usize) else { continue };
            let own = values.iter_mut().find(|v| v.began == done.began && v.ended == NEVER);
            let own = own.ok_or("a write ended twice")?;
            own.ended = now;
            if !known {
                continue;
            }
            own.owed = self.write_cache && !fua;
            if own.owed {
                self.unflushed.insert(sector);
            }
            // A cache that was lost meanwhile may have held it: look whether it is there.
            let seen = disk.seen(sector);
            let gone = self.lost > done.began
                && values.iter().any(|v| v.content == seen && v.ended < done.began);
            if !gone {
                supersede(values, done.began, now);
            }
            if !self.write_cache || fua {
                supersede_durable(values, done.began);
                let left = disk.durable(sector);
                if !values.iter().any(|value| value.durable && value.content == left) {
                    return Err(wrong("a durable write left", sector, left, values));
                }
            }
            values.retain(|value| value.live || value.durable || value.died >= oldest_read);
        }
        Ok(())
    }

    fn flushed(
        &mut self,
        now: Step,
        flush: &Submitted,
        status: Status,
        disk: &Disk,
    ) -> Result<(), String> {
        if status != Status::Success {
            self.forgive(flush.session, now);
            return Ok(());
        }
        let mut rest = BTreeSet::new();
        for sector in std::mem::take(&mut self.unflushed) {
            let values = &mut self.sectors[sector as usize];
            let mut newest = None;
            for value in values.iter_mut().filter(|value| value.owed) {
                if value.session == flush.session && value.ended < flush.began {
                    value.owed = false;
                    newest = newest.max(Some(value.began));
                } else {
                    rest.insert(sector);
                }
            }
            let Some(began) = newest else { continue };
            supersede_durable(values, began);
            let left = disk.durable(sector);
            if !values.iter().any(|value| value.durable && value.content == left) {
                return Err(wrong("a flush succeeded and left", sector, left, values));
            }
        }
        self.unflushed = rest;
        Ok(())
    }

    /// The session is told that what it wrote may not last, or it is over and nobody is left to
    /// be told.
    fn forgive(&mut self, session: u64, before: Step) {
        for &sector in &self.unflushed {
            for value in &mut self.sectors[sector as usize] {
                value.owed &= value.session != session || value.ended >= before;
            }
        }
    }

    /// The session is over, and says so of each operation: it may still take effect until the
    /// target has closed its channels.
    pub(crate) fn abandon(&mut self, session: u64, op: OpId) -> Result<Submitted, String> {
        let now = self.tick();
        let Some(gone) = self.open.remove(&(session, op)) else {
            return Err(format!("{op:?} of session {session} was failed, but is not open"));
        };
        self.end_unknown(&gone, now);
        Ok(gone)
    }

    fn end_unknown(&mut self, gone: &Submitted, now: Step) {
        if !gone.opcode.modifies() {
            return;
        }
        for sector in gone.sectors() {
            let values = self.sectors.get_mut(sector as usize).into_iter().flatten();
            for value in values.filter(|value| value.began == gone.began) {
                value.ended = now;
            }
        }
    }

    /// A session takes the place of another of its host: what that one is owed, it is owed.
    pub(crate) fn succeed(&mut self, former: u64, session: u64) {
        for value in self.sectors.iter_mut().flatten().filter(|it| it.session == former) {
            value.session = session;
        }
    }

    /// An operation that was not answered is in progress under another name, as old as it is.
    pub(crate) fn reissue(&mut self, former: (u64, OpId), new: (u64, OpId)) -> Result<(), String> {
        let Some(open) = self.open.remove(&former) else {
            return Err(format!("{former:?} is issued again, but not open"));
        };
        if self.open.insert(new, Submitted { session: new.0, ..open }).is_some() {
            return Err(format!("{new:?} was given out twice"));
        }
        Ok(())
    }

    /// The host of the session is gone with all that it had in progress.
    pub(crate) fn vanish(&mut self, session: u64) -> usize {
        let now = self.tick();
        self.forgive(session, now);
        let keys: Vec<_> =
            self.open.range((session, OpId(0))..=(session, OpId(u32::MAX))).map(|x| *x.0).collect();
        for key in &keys {
            let Some(gone) = self.open.remove(key) else { continue };
            self.end_unknown(&gone, now);
        }
        keys.len()
    }

    /// The target's cache was lost.
    pub(crate) fn lose_cache(&mut self) {
        let now = self.tick();
        self.lost = now;
        for value in self.sectors.iter_mut().flatten() {
            if value.durable && !value.live {
                (value.live, value.died) = (true, NEVER);
            }
        }
    }

    /// At the end: what the disk holds must be possible everywhere.
    pub(crate) fn check_disk(&self, disk: &Disk) -> Result<(), String> {
        for (sector, values) in (0..).zip(&self.sectors) {
            let seen = disk.seen(sector);
            if !values.iter().any(|value| value.live && value.content == seen) {
                return Err(wrong("at the end the disk holds", sector, seen, values));
            }
        }
        Ok(())
    }
}

/// A write that began at `began` took effect: what had ended before is no more.
fn supersede(values: &mut [Value], began: Step, now: Step) {
    for value in values.iter_mut().filter(|value| value.live && value.ended < began) {
        (value.live, value.died) = (false, now);
    }
}

/// A write that began at `began` lasts: what had ended before will not come back.
fn supersede_durable(values: &mut [Value], began: Step) {
    for value in values.iter_mut().filter(|value| value.ended < began) {
        value.durable = false;
    }
}

fn wrong(what: &str, sector: u64, content: Content, values: &[Value]) -> String {
    use std::fmt::Write;
    let mut text = format!("{what} {content:?} in sector {sector}; possible were");
    for value in values {
        let Value { content, session, began, ended, .. } = value;
        let (live, durable) = (value.live, value.durable);
        let _ = write!(text, " [{content:?} of session {session} in {began}..{ended}");
        let _ = write!(text, " live={live} durable={durable}]");
    }
    text
}
