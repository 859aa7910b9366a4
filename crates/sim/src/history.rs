//! The checker: the contents that every sector may have, given the answers that hosts have got.
//!
//! Time is a count of steps, so that no two events coincide. A write may take effect at any step
//! between its submission and its end; if it fails, or its host dies, it may have taken effect or
//! not. For each sector the checker keeps the values that a read could return now (`live`), and
//! those that a loss of the target's cache could leave now (`durable`, which includes all live
//! ones). A value is removed when a newer one is known to have taken effect, by an acknowledgement
//! or a read. A value is newer if its operation began after the end of the other's, or if a read
//! that saw it began after the end of a read that saw the other: an overwritten value does not
//! return, for any reader ([`value`]).
//!
//! An operation that was not answered may be executed twice after the death of the target or of the
//! program that serves the device, because its outcome is forgotten. The values of all operations
//! in progress at such a moment may return until these have ended. If the target's disk is restored
//! to an earlier state, only that state is possible, and each session that lives on must be told
//! before it gets another promise.

use std::collections::{BTreeMap, BTreeSet};

use tyche_block::Errno;
use tyche_proto::OpId;
use tyche_wire::{CommandFlags, Opcode};

use crate::content::{Content, SECTOR};
use crate::disk::Disk;
use crate::plan::{DiskPlan, Promises};
use crate::queues::queue_of;

mod seen;
mod stakes;
#[cfg(test)]
mod tests;
mod value;

use stakes::Stakes;
use value::Value;

/// A step of the run.
type Step = u64;

/// A step that has not come yet.
const NEVER: Step = Step::MAX;

const IMPOSSIBLE: &str = "where it cannot be";
const OVERWRITTEN: &str = "seen on both sides of another";

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    pub(crate) session: u64,
    pub(crate) opcode: Opcode,
    pub(crate) flags: CommandFlags,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Identifies a modifying operation; zero for others.
    pub(crate) stamp: u64,
    began: Step,
    /// Of a flush: when the oldest modification that it has to cover has begun.
    stake: Option<Step>,
}

impl Submitted {
    fn sectors(&self) -> std::ops::Range<u64> {
        let first = self.offset / SECTOR as u64;
        first..first + u64::from(self.len) / SECTOR as u64
    }
}

/// The checker of one disk's content. It is told of each submission, answer, crash and loss, and
/// returns an error for a read, or an end of a flush, that no correct target could give.
pub(crate) struct History {
    sectors: Vec<Vec<Value>>,
    step: Step,
    stamps: u64,
    write_cache: bool,
    /// Whether the export is shared: then requests of an ended session may still take effect.
    shared: bool,
    promises: Promises,
    /// Operations in progress, by session and number.
    open: BTreeMap<(u64, OpId), Submitted>,
    /// Stamps of modifying operations that were answered.
    acknowledged: BTreeSet<u64>,
    /// Sectors with acknowledged writes that no flush has covered.
    unflushed: BTreeSet<u64>,
    /// Stamps of modifying operations that failed early, by session and queue: they may be executed
    /// until the queue takes operations again.
    failed: BTreeMap<(u64, usize), BTreeSet<u64>>,
    /// When the cache was last lost, and when the disk was last restored.
    lost: Step,
    restored: Step,
    /// Stamps of operations that were in progress when their effect may have been lost: they may be
    /// executed again, even after the death of their host.
    repeatable: BTreeSet<u64>,
    /// When queues of sessions have learned the current generation.
    learned: BTreeMap<(u64, usize), Step>,
    stakes: Stakes,
    /// Sessions with a modification that was answered with success.
    wrote: BTreeSet<u64>,
    /// Those of them that have not been told that the disk was restored.
    untold: BTreeSet<u64>,
    /// Sectors that were told as holes.
    holes: u64,
}

impl History {
    /// The history of a new disk, with stamps above `stamps`.
    pub(crate) fn new(disk: &DiskPlan, promises: Promises, stamps: u64, shared: bool) -> Self {
        let zero = Value::found(Content::Zero, 0);
        Self {
            sectors: vec![vec![zero]; disk.size as usize / SECTOR],
            step: 1,
            stamps,
            write_cache: disk.write_cache,
            shared,
            promises,
            open: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            unflushed: BTreeSet::new(),
            failed: BTreeMap::new(),
            lost: 0,
            restored: 0,
            repeatable: BTreeSet::new(),
            learned: BTreeMap::new(),
            stakes: Stakes::default(),
            wrote: BTreeSet::new(),
            untold: BTreeSet::new(),
            holes: 0,
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

    /// Records the submission of an operation.
    pub(crate) fn submit(
        &mut self,
        session: u64,
        op: OpId,
        (opcode, flags): (Opcode, CommandFlags),
        (offset, len): (u64, u32),
        stamp: u64,
    ) -> Result<(), String> {
        let began = self.tick();
        let stake = self.stakes.oldest(session);
        let submitted = Submitted { session, opcode, flags, offset, len, stamp, began, stake };
        if self.open.insert((session, op), submitted).is_some() {
            return Err(format!("{op:?} was given out twice"));
        }
        if opcode.modifies() {
            let repeats = !self.promises.outcomes;
            let mut value = Value::new(Content::Stamp(stamp), session, began, repeats);
            value.zeroes = opcode != Opcode::Write;
            for sector in submitted.sectors() {
                if let Some(values) = self.sectors.get_mut(sector as usize) {
                    values.push(value);
                }
            }
        }
        Ok(())
    }

    /// Checks and records the answer to an operation. `data`: the data of a read, or a status.
    pub(crate) fn complete(
        &mut self,
        session: u64,
        op: OpId,
        result: Result<(), Errno>,
        data: &[u8],
        disk: &Disk,
    ) -> Result<Submitted, String> {
        let now = self.tick();
        let Some(done) = self.open.remove(&(session, op)) else {
            return Err(format!("{op:?} of session {session} was answered, but is not open"));
        };
        match done.opcode {
            Opcode::Read if result.is_ok() => self.check_read(now, &done, data)?,
            Opcode::BlockStatus if result.is_ok() => self.check_status(&done, data)?,
            Opcode::Read | Opcode::BlockStatus => {}
            Opcode::Flush => self.flushed(now, &done, result, disk)?,
            Opcode::Write | Opcode::Discard | Opcode::WriteZeroes => {
                self.modified(now, (op, &done), result, disk)?;
            }
        }
        Ok(done)
    }

    fn modified(
        &mut self,
        now: Step,
        (op, done): (OpId, &Submitted),
        result: Result<(), Errno>,
        disk: &Disk,
    ) -> Result<(), String> {
        self.acknowledged.insert(done.stamp);
        if !done.flags.contains(CommandFlags::FUA) {
            self.stakes.add(done.session, done.began, now);
        }
        let known = result.is_ok() && done.opcode != Opcode::Discard;
        let fua = done.flags.contains(CommandFlags::FUA);
        if known {
            self.wrote.insert(done.session);
            if !self.write_cache {
                self.check_told(done)?;
            }
        }
        let reads = self.open.values().filter(|open| open.opcode.returns_data());
        let oldest_read = reads.map(|read| read.began).min().unwrap_or(now);
        // The answer may be from before the loss. But if the queue knows of the loss, it has
        // repeated the lost part before it answers.
        let queue = (done.session, queue_of(op));
        let knows = self.learned.get(&queue).is_some_and(|&at| at > self.lost);
        let may_be_gone = self.lost > done.began && !(knows && self.restored <= done.began);
        for sector in done.sectors() {
            let Some(values) = self.sectors.get_mut(sector as usize) else { continue };
            // From the end: there may be hundreds of values that no flush has covered.
            let own = values.iter().rposition(|v| v.began == done.began && v.is_open());
            let own = own.ok_or("a write ended twice")?;
            // The value may have been lost with the cache meanwhile: the disk shows whether it was.
            let is_left = |content| {
                let left = |it: &Value| it.content == content && it.is_without(done.began);
                values.iter().any(left)
            };
            let gone = may_be_gone && is_left(disk.seen(sector));
            values[own].ended = now;
            values[own].close(now, known && !gone);
            if !known {
                continue;
            }
            values[own].owed = self.write_cache && !fua;
            if values[own].owed {
                self.unflushed.insert(sector);
            }
            if !gone {
                let content = values[own].content;
                take_effect(values, own, now)
                    .map_err(|why| wrong("a write left", (content, sector), why, values))?;
            }
            if !self.write_cache || fua {
                last(values, own);
                check_durable("a durable write left", sector, values, disk)?;
            }
            values.retain(|value| value.matters(oldest_read));
        }
        Ok(())
    }

    fn flushed(
        &mut self,
        now: Step,
        flush: &Submitted,
        result: Result<(), Errno>,
        disk: &Disk,
    ) -> Result<(), String> {
        let session = flush.session;
        if result.is_err() {
            self.untold.remove(&session);
            if !self.promises.told_once {
                self.forgive(session, now);
                return Ok(());
            }
            let told = self.stakes.tell((session, now), flush.began, flush.stake)?;
            self.forgive(session, told);
            return Ok(());
        }
        self.check_told(flush)?;
        self.stakes.cover(session, flush.began);
        let mut rest = BTreeSet::new();
        for sector in std::mem::take(&mut self.unflushed) {
            let values = &mut self.sectors[sector as usize];
            let mut covered = false;
            for index in 0..values.len() {
                let value = &mut values[index];
                if !value.owed {
                    continue;
                }
                if value.session == flush.session && value.ended < flush.began {
                    value.owed = false;
                    covered = true;
                    last(values, index);
                } else {
                    rest.insert(sector);
                }
            }
            if covered {
                check_durable("a flush succeeded and left", sector, values, disk)?;
            }
        }
        self.unflushed = rest;
        Ok(())
    }

    /// Checks that a session that gets a promise of durability knows of a restored disk. Answers to
    /// operations from before the loss are exempt: they may have been on their way.
    fn check_told(&self, done: &Submitted) -> Result<(), String> {
        let Submitted { session, opcode, offset, len, began, .. } = done;
        if !self.untold.contains(session) || *began < self.lost {
            return Ok(());
        }
        Err(format!(
            "{opcode:?} {offset}+{len} succeeded for session {session}, which has not been \
                     told that the target was restored from a snapshot"
        ))
    }

    /// The session was told that its writes may be lost, or has ended: their loss is no violation
    /// any more.
    fn forgive(&mut self, session: u64, before: Step) {
        for &sector in &self.unflushed {
            for value in &mut self.sectors[sector as usize] {
                value.owed &= value.session != session || value.ended >= before;
            }
        }
    }

    /// Records that an ended session has failed an operation, which may still take effect until the
    /// target has closed the session's channels.
    pub(crate) fn abandon(&mut self, session: u64, op: OpId) -> Result<Submitted, String> {
        let now = self.tick();
        let Some(gone) = self.open.remove(&(session, op)) else {
            return Err(format!("{op:?} of session {session} was failed, but is not open"));
        };
        self.end_unknown(&gone, now);
        Ok(gone)
    }

    /// Records that an operation has failed though its session goes on. It may still take effect
    /// until the session takes others.
    pub(crate) fn fail_early(&mut self, session: u64, op: OpId) -> Result<(), String> {
        let gone = self.abandon(session, op)?;
        if gone.opcode.modifies() {
            self.failed.entry((session, queue_of(op))).or_default().insert(gone.stamp);
        }
        Ok(())
    }

    /// A queue takes operations again. Returns the stamps of those that have failed, and from now
    /// on take no effect any more.
    pub(crate) fn resume(&mut self, session: u64, queue: usize) -> BTreeSet<u64> {
        let failed = self.failed.remove(&(session, queue)).unwrap_or_default();
        self.acknowledged.extend(&failed);
        failed
    }

    fn end_unknown(&mut self, gone: &Submitted, now: Step) {
        if !gone.opcode.modifies() {
            return;
        }
        for sector in gone.sectors() {
            let mut values = self.sectors.get_mut(sector as usize).into_iter().flatten();
            if let Some(value) = values.rfind(|value| value.began == gone.began) {
                if self.shared { value.linger() } else { value.ended = now }
            }
        }
    }

    /// Whether the operation with that stamp may be executed again.
    pub(crate) fn is_repeatable(&self, stamp: u64) -> bool {
        self.repeatable.contains(&stamp)
    }

    /// The export gets another generation: operations in progress may be executed again.
    pub(crate) fn renew(&mut self) {
        self.repeatable.extend(self.open.values().map(|open| open.stamp));
    }

    /// A session takes over a device: promises to the former session are promises to the new one.
    pub(crate) fn succeed(&mut self, former: u64, session: u64) {
        let now = self.tick();
        self.stakes.succeed(former, session, now);
        if self.wrote.contains(&former) {
            self.wrote.insert(session);
        }
        if self.untold.remove(&former) {
            self.untold.insert(session);
        }
        for value in self.sectors.iter_mut().flatten().filter(|it| it.session == former) {
            value.session = session;
            value.lose_memory(now, false);
        }
    }

    /// An unanswered operation is submitted again, by another session under another number. It
    /// keeps its age.
    pub(crate) fn reissue(&mut self, former: (u64, OpId), new: (u64, OpId)) -> Result<(), String> {
        let Some(open) = self.open.remove(&former) else {
            return Err(format!("{former:?} is issued again, but not open"));
        };
        let stake = self.stakes.oldest(new.0);
        if self.open.insert(new, Submitted { session: new.0, stake, ..open }).is_some() {
            return Err(format!("{new:?} was given out twice"));
        }
        Ok(())
    }

    /// The host of the session is dead. Returns the number of its operations in progress.
    pub(crate) fn vanish(&mut self, session: u64) -> usize {
        let now = self.tick();
        self.forgive(session, now);
        self.untold.remove(&session);
        self.stakes.vanish(session);
        let keys: Vec<_> =
            self.open.range((session, OpId(0))..=(session, OpId(u32::MAX))).map(|x| *x.0).collect();
        for key in &keys {
            let Some(gone) = self.open.remove(key) else { continue };
            self.end_unknown(&gone, now);
        }
        keys.len()
    }

    /// A queue of a session has learned the current generation.
    pub(crate) fn learn(&mut self, session: u64, queue: usize) {
        let now = self.tick();
        self.learned.insert((session, queue), now);
    }

    /// A session has learned that writes of its own are lost.
    pub(crate) fn learn_loss(&mut self, session: u64) {
        let now = self.tick();
        self.stakes.learn(session, now);
    }

    /// A loss of the disk is noticed: a flush, or a write with FUA, has failed there.
    pub(crate) fn notice_loss(&mut self) {
        let now = self.tick();
        self.stakes.notice(now);
    }

    /// The target has forgotten the outcomes of the operations in progress.
    pub(crate) fn forget_outcomes(&mut self) {
        let now = self.tick();
        self.sectors.iter_mut().flatten().for_each(|value| value.lose_memory(now, false));
    }

    /// A session is told of a lost cache, possibly by a living target: its operations in progress
    /// may be executed again.
    pub(crate) fn tell(&mut self, session: u64) {
        self.forget_outcomes();
        let open = self.open.values().filter(|open| open.session == session);
        self.repeatable.extend(open.map(|open| open.stamp));
    }

    /// The target has died; `with_cache`: the cache of its disk is lost.
    pub(crate) fn lose_target(&mut self, with_cache: bool) {
        let now = self.tick();
        for value in self.sectors.iter_mut().flatten() {
            if with_cache {
                value.lose_cache(now);
            } else {
                value.lose_memory(now, true);
            }
        }
        if with_cache {
            self.lost = now;
            self.stakes.notice(now);
            self.renew();
        }
    }

    /// The target has died, and its disk was restored to an earlier state; `sessions` live on.
    pub(crate) fn restore(&mut self, disk: &Disk, sessions: impl Iterator<Item = u64>) {
        let now = self.tick();
        (self.lost, self.restored) = (now, now);
        self.stakes.notice(now);
        self.renew();
        self.untold.extend(sessions.filter(|session| self.wrote.contains(session)));
        self.unflushed.clear();
        for (sector, values) in (0..).zip(&mut self.sectors) {
            let content = disk.seen(sector);
            values.retain(|value| value.content != content || value.is_open());
            values.iter_mut().for_each(|value| value.lose_disk(now));
            if values.iter().all(|value| value.content != content) {
                let mut found = Value::found(content, now);
                found.zeroes = disk.is_hole(content);
                values.push(found);
            }
        }
    }

    /// The machine goes down while a value is being written: the sector has neither the new nor the
    /// old content. Returns the stamp of its content.
    pub(crate) fn tear(&mut self, sector: u64, content: Content) -> Option<u64> {
        let (now, stamp) = (self.tick(), self.stamp());
        let values = &mut self.sectors[sector as usize];
        let whole = values[find(values, content, now).ok()?];
        let torn = Value::torn(Content::Stamp(stamp), &whole, now);
        replace(values, torn, now);
        Some(stamp)
    }

    /// The content of a sector has changed by itself. Returns the stamp of the new one.
    pub(crate) fn rot(&mut self, sector: u64) -> u64 {
        let (now, stamp) = (self.tick(), self.stamp());
        let rotten = Value::found(Content::Stamp(stamp), now);
        replace(&mut self.sectors[sector as usize], rotten, now);
        stamp
    }

    /// Checks at the end that both images of the disk are possible.
    pub(crate) fn check_disk(&mut self, disk: &Disk) -> Result<(), String> {
        let now = self.tick();
        for (sector, values) in (0..).zip(&mut self.sectors) {
            let seen = disk.seen(sector);
            observe(values, seen, now, now)
                .map_err(|why| wrong("at the end the disk holds", (seen, sector), why, values))?;
            check_durable("at the end the medium holds", sector, values, disk)?;
        }
        Ok(())
    }
}

/// The index of the value with that content, if a read that began at `began` may return it.
fn find(values: &[Value], content: Content, began: Step) -> Result<usize, &'static str> {
    let possible = |value: &Value| value.content == content && value.is_possible(began);
    values.iter().position(possible).ok_or(IMPOSSIBLE)
}

/// Records that a read that began at `began` and ends now has seen a value.
fn observe(
    values: &mut [Value],
    content: Content,
    began: Step,
    now: Step,
) -> Result<(), &'static str> {
    let index = find(values, content, began)?;
    values[index].see(began, now);
    take_effect(values, index, now)
}

/// Records that a value has taken effect: older ones are not live any more.
fn take_effect(values: &mut [Value], index: usize, now: Step) -> Result<(), &'static str> {
    let newest = values[index];
    for (other, value) in values.iter_mut().enumerate() {
        if other == index {
            continue;
        }
        if value.contradicts(&newest) {
            return Err(OVERWRITTEN);
        }
        value.give_way(&newest, now);
    }
    Ok(())
}

/// Records a value that no operation has written, in place of all others.
fn replace(values: &mut Vec<Value>, value: Value, now: Step) {
    values.iter_mut().for_each(|older| older.give_way(&value, now));
    values.push(value);
}

/// Records that a value is on the medium: older ones are not durable any more.
fn last(values: &mut [Value], index: usize) {
    let newest = values[index];
    for (other, value) in values.iter_mut().enumerate() {
        if other != index {
            value.give_way_for_good(&newest);
        }
    }
}

fn check_durable(who: &str, sector: u64, values: &[Value], disk: &Disk) -> Result<(), String> {
    let left = disk.durable(sector);
    if values.iter().any(|value| value.durable && value.content == left) {
        return Ok(());
    }
    Err(wrong(who, (left, sector), IMPOSSIBLE, values))
}

fn wrong(what: &str, (content, sector): (Content, u64), why: &str, values: &[Value]) -> String {
    use std::fmt::Write;
    let mut text = format!("{what} {content:?} in sector {sector}, {why}; there were");
    for value in values {
        let _ = write!(text, " {value}");
    }
    text
}
