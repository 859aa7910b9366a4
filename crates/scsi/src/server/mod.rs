//! The device server of a target: what it answers to each command of each initiator.
//!
//! A command ends at once, or becomes operations of the disk. Their failure is answered with
//! [`Reply::of`]. The order of checks is that of SAM-5 and SPC-4: the logical unit is there; a
//! pending unit attention, of which INQUIRY, REPORT LUNS and REQUEST SENSE take no notice; a
//! reservation; the CDB; read-only; the right to write; the range.
//!
//! One initiator at a time may write to a logical unit that is not shared: the first that does,
//! until it logs out. Others get RESERVATION CONFLICT for all that modifies, and may read.
//!
//! An answer with a unit attention may be lost. An initiator that
//! [confirms](Server::expect_confirmation) gets the attention with each command until it has.

mod grant;
mod nexus;
mod step;
mod unit;
mod visibility;

use alloc::boxed::Box;
use core::iter;

use tyche_geometry::Operation;
use uuid::Uuid;

pub use grant::Grant;
pub use nexus::{NexusId, NoRoom};
pub use step::{Step, Task, Tasks};
pub use unit::Unit;

use crate::attention::{Attentions, Pending, Telling};
use crate::bytes::Writer;
use crate::cdb::{Command, Form, LunSelect, Range, ReservationQuery, opcode};
use crate::lun::{Lun, LunSet, UNITS_MAX};
use crate::opcodes::Commands;
use crate::operation::Failure;
use crate::refusal::Refusal;
use crate::report_luns::{LUNS_LEN_MAX, emit_luns};
use crate::sense::{Code, Sense, SenseKey};
use crate::status::Status;
use crate::unmap::{UNMAP_DESCRIPTOR_LEN, UNMAP_HEAD_LEN, UnmapRanges};
use crate::vpd::TargetPort;
use nexus::{Nexus, Nexuses};
use unit::{Slot, inquiry};

/// The most bytes of an answer: that of REPORT LUNS, with all logical units.
pub const ANSWER_LEN_MAX: usize = LUNS_LEN_MAX;
/// The most bytes of a read or write.
pub const TRANSFER_LEN_MAX: u32 = 1 << 20;
/// The most bytes of a WRITE SAME, and of all ranges of an UNMAP together.
pub const WRITE_ZEROES_LEN_MAX: u32 = 1 << 30;
/// The most ranges of an UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: usize = 32;
/// The most bytes of an UNMAP's parameter list.
pub const UNMAP_LEN_MAX: usize = UNMAP_HEAD_LEN + UNMAP_DESCRIPTORS_MAX * UNMAP_DESCRIPTOR_LEN;

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its status.
    pub status: Status,
    /// The sense data of a CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Bytes of the answer: of data for the initiator.
    pub len: usize,
    /// The unit attention of which it tells, if the initiator is to [confirm](Server::confirm) it.
    pub told: Option<ToldAttention>,
}

/// A unit attention of which an initiator was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldAttention {
    nexus: NexusId,
    unit: u8,
    telling: Telling,
}

impl Reply {
    /// The command is done, and has no answer.
    pub const GOOD: Self = Self { status: Status::Good, sense: None, len: 0, told: None };
    /// Another initiator has the logical unit.
    const CONFLICT: Self = Self { status: Status::ReservationConflict, ..Self::GOOD };

    /// The end of a command that was an operation of the disk.
    pub fn of(operation: Operation, result: Result<(), Failure>) -> Self {
        result.map_or_else(|failure| Self::check(failure.sense(operation)), |()| Self::GOOD)
    }

    /// The end of a flush whose disk has lost writes that it was to make durable; `generation`:
    /// that of the disk since then. Linux sends a command again at once after a medium error, as
    /// after a unit attention, and would take the next flush's success for this one's.
    pub fn lost(generation: Option<Uuid>) -> Self {
        Self::check(Sense { generation, ..Sense::new(SenseKey::HardwareError, Code::WRITE_ERROR) })
    }

    /// A CHECK CONDITION with these sense data.
    pub const fn check(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(sense), ..Self::GOOD }
    }

    const fn answer(len: usize) -> Self {
        Self { len, ..Self::GOOD }
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::check(refusal.sense())
    }
}

/// The device server of a target, for all its logical units.
#[derive(Debug)]
pub struct Server {
    slots: Box<[Option<Slot>; UNITS_MAX]>,
    nexuses: Nexuses,
    /// Changes that may have ended a grant.
    changes: u64,
}

impl Server {
    /// A server without logical units, which remembers at most so many initiators.
    pub fn new(nexuses_max: u16) -> Self {
        Self { slots: Box::new([None; UNITS_MAX]), nexuses: Nexuses::new(nexuses_max), changes: 0 }
    }

    /// Adds a logical unit, or puts another in its place. Initiators are told. Commands in progress
    /// at the former one must have ended.
    ///
    /// # Panics
    /// If the geometry is not valid.
    pub fn add(&mut self, number: u8, unit: Unit) {
        assert!(unit.geometry.is_valid(), "a disk is a whole number of its blocks");
        self.changes += 1;
        self.slots[usize::from(number)] = Some(Slot::new(unit));
        // It may be another disk than the one that had the number before.
        self.nexuses.tell(number, Pending::PowerOn, None);
        self.nexuses.tell(number, Pending::InquiryChanged, None);
        self.nexuses.tell_luns_changed();
    }

    /// Removes a logical unit. Initiators are told, unless nobody sees it any more. Commands in
    /// progress at it must have ended.
    pub fn remove(&mut self, number: u8) {
        self.changes += 1;
        let is_seen = self.nexuses.see(number);
        if self.slots[usize::from(number)].take().is_some() && is_seen {
            self.nexuses.tell_luns_changed();
        }
    }

    /// The logical unit of that number.
    pub fn unit(&self, number: u8) -> Option<&Unit> {
        self.slots[usize::from(number)].as_ref().map(|slot| &slot.unit)
    }

    /// Changes the size of a logical unit, in bytes. Initiators are told.
    ///
    /// # Panics
    /// If the size is no multiple of the block size.
    pub fn resize(&mut self, number: u8, size: u64) {
        self.changes += 1;
        if let Some(slot) = &mut self.slots[usize::from(number)] {
            slot.unit.geometry.size = size;
            assert!(slot.unit.geometry.is_valid(), "a disk is a whole number of its blocks");
            self.nexuses.tell(number, Pending::CapacityChanged, None);
        }
    }

    /// Sets the generation of a logical unit. If it is another, initiators are told, so that they
    /// ask for it before they go on.
    pub fn renew(&mut self, number: u8, generation: Uuid) {
        let slot = self.slots[usize::from(number)].as_mut();
        let known = slot.and_then(|slot| slot.unit.generation.as_mut());
        if let Some(known) = known.filter(|known| **known != generation) {
            *known = generation;
            self.changes += 1;
            self.nexuses.tell(number, Pending::InquiryChanged, None);
        }
    }

    /// An initiator has reset a logical unit. The others are told; a reservation is over. No data
    /// are lost by that.
    pub fn reset(&mut self, number: u8, by: NexusId) {
        self.changes += 1;
        if let Some(slot) = &mut self.slots[usize::from(number)] {
            slot.reserved = None;
            self.nexuses.tell(number, Pending::DeviceReset, Some(by));
        }
    }

    /// Lets an initiator in at a port, known by its WWPN, to whom these logical units are visible.
    /// One that is logged in there already has lost its nexus, and all rights. At another port it
    /// has another nexus.
    ///
    /// # Errors
    /// If there is no room for another.
    pub fn login(
        &mut self,
        initiator: u64,
        port: TargetPort,
        visible: LunSet,
    ) -> Result<NexusId, NoRoom> {
        self.changes += 1;
        let nexus = self.nexuses.login((initiator, port), visible)?;
        self.release(nexus);
        Ok(nexus)
    }

    /// Ends the login of an initiator, and all its rights. No command of it is to follow; those in
    /// progress must have ended.
    pub fn logout(&mut self, nexus: NexusId) {
        self.changes += 1;
        self.nexuses.logout(nexus);
        self.release(nexus);
    }

    /// Has an initiator told of each attention until that is [confirmed](Server::confirm), for as
    /// long as it is logged in.
    pub fn expect_confirmation(&mut self, nexus: NexusId) {
        if let Some(nexus) = self.nexuses.get_mut(nexus) {
            nexus.confirms = true;
        }
    }

    /// An initiator does not get the answer that told of an attention: it is answered otherwise, to
    /// be told later.
    pub fn untell(&mut self, told: &ToldAttention) {
        if let Some(nexus) = self.nexuses.get_mut(told.nexus) {
            nexus.attentions[usize::from(told.unit)].untell(told.telling);
        }
    }

    /// An initiator has got the answer that told of an attention.
    pub fn confirm(&mut self, told: &ToldAttention) {
        if let Some(nexus) = self.nexuses.get_mut(told.nexus) {
            nexus.attentions[usize::from(told.unit)].confirm(told.telling);
        }
    }

    fn release(&mut self, nexus: NexusId) {
        self.slots.iter_mut().flatten().for_each(|slot| slot.release(nexus));
    }

    /// The number of changes until now that may have ended a [`Grant`].
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The right of an initiator at a logical unit, until something [changes](Self::changes).
    /// `None` if it has an attention pending, or another has reserved the logical unit.
    pub fn grant(&self, id: NexusId, lun: Lun) -> Option<Grant> {
        let nexus = self.nexuses.get(id)?;
        let number = lun.index().filter(|number| nexus.visible.has(*number))?;
        let slot = self.slots[usize::from(number)].as_ref()?;
        let is_told = nexus.attentions[usize::from(number)].is_empty();
        if !is_told || slot.reserved.is_some_and(|holder| holder != id) {
            return None;
        }
        let is_writer = slot.unit.shared || slot.writer == Some(id);
        let writes = is_writer && !slot.unit.geometry.read_only;
        Some(Grant { number, unit: slot.unit, writes })
    }

    /// Begins a command. An answer is written to `out`, which should have [`ANSWER_LEN_MAX`] bytes;
    /// what does not fit is cut off.
    ///
    /// It is for the caller to compare [`Step::data`] with the direction and length that the
    /// initiator expects.
    pub fn begin(&mut self, nexus: NexusId, lun: Lun, cdb: &[u8], out: &mut [u8]) -> Step {
        self.step(nexus, lun, cdb, out).unwrap_or_else(Step::Answer)
    }

    fn step(&mut self, id: NexusId, lun: Lun, cdb: &[u8], out: &mut [u8]) -> Result<Step, Reply> {
        let command = Command::parse(cdb);
        let nexus = self.nexuses.get_mut(id).ok_or(Refusal::LogicalUnit)?;
        if let Ok(Command::ReportLuns { select, allocation }) = command {
            let answer = report_luns(&self.slots, nexus, lun, select, allotted(out, allocation))?;
            return Ok(Step::Answer(answer));
        }
        let Some((number, slot)) = find(&mut self.slots, nexus, lun) else {
            return absent(command, out).map(Step::Answer);
        };
        attend(nexus, (id, number), &slot.unit, cdb)?;
        if slot.reserved.is_some_and(|holder| holder != id) && !passes_reservation(cdb) {
            return Err(Reply::CONFLICT);
        }
        let command = command?;
        match command {
            Command::RequestSense { descriptors, allocation } => {
                if descriptors {
                    return Err(Refusal::CdbField(1).into());
                }
                let (sense, told) = tell(nexus, (id, number), &slot.unit)
                    .unwrap_or((Sense::new(SenseKey::NoSense, Code::NONE), None));
                let answer = emit_sense(sense, allotted(out, allocation.into()));
                Ok(Step::Answer(Reply { told, ..answer }))
            }
            Command::Reserve => {
                // It would keep the one away that writes.
                admit(slot, id)?;
                self.changes += 1;
                slot.reserved = Some(id);
                Ok(Step::Answer(Reply::GOOD))
            }
            Command::Release => {
                slot.reserved = slot.reserved.filter(|holder| *holder != id);
                Ok(Step::Answer(Reply::GOOD))
            }
            _ => {
                if let Some(len) = answer((&slot.unit, nexus.port), command, out)? {
                    return Ok(Step::Answer(Reply::answer(len)));
                }
                perform(slot, id, number, command)
            }
        }
    }

    /// Goes on with a command that has its parameter list: UNMAP or WRITE SAME. The logical unit
    /// may have changed since [`Server::begin`], so its properties, the right to write and the
    /// range are checked again. Reservations and attentions are not.
    ///
    /// # Errors
    /// The end of the command, if the list is refused.
    pub fn parameters<'a>(
        &mut self,
        id: NexusId,
        lun: Lun,
        cdb: &[u8],
        list: &'a [u8],
    ) -> Result<Tasks<'a>, Reply> {
        let command = Command::parse(cdb)?;
        let nexus = self.nexuses.get_mut(id).ok_or(Refusal::LogicalUnit)?;
        let (unit, slot) = find(&mut self.slots, nexus, lun).ok_or(Refusal::LogicalUnit)?;
        if let Step::Answer(reply) = perform(slot, id, unit, command)? {
            return Err(reply);
        }
        let block_size = slot.unit.geometry.block_size;
        match command {
            Command::Unmap { len } => {
                let list = list.get(..len.into()).ok_or(Refusal::ListLength)?;
                let ranges = UnmapRanges::parse(list, slot.unit.unmap_limits())?;
                Ok(Tasks::Unmap { ranges, unit, block_size })
            }
            Command::WriteSame { lba, blocks, unmap, .. } => {
                let block = list.get(..block_size as usize).ok_or(Refusal::ListLength)?;
                // The disk can't write anything but zeroes many times.
                if let Some(at) = block.iter().position(|byte| *byte != 0) {
                    return Err(Refusal::ListField(at as u16).into());
                }
                Ok(Tasks::One(iter::once(write_zeroes(slot, unit, lba, blocks, unmap)?)))
            }
            _ => Err(Refusal::Opcode.into()),
        }
    }
}

/// The part of the buffer that the initiator takes.
fn allotted(out: &mut [u8], allocation: u32) -> &mut [u8] {
    let len = out.len().min(allocation as usize);
    &mut out[..len]
}

/// A logical unit that is there for an initiator, and its number.
fn find<'a>(
    slots: &'a mut [Option<Slot>; UNITS_MAX],
    nexus: &Nexus,
    lun: Lun,
) -> Option<(u8, &'a mut Slot)> {
    let number = lun.index().filter(|number| nexus.visible.has(*number))?;
    slots[usize::from(number)].as_mut().map(|slot| (number, slot))
}

/// Tells an initiator of the most urgent attention, in place of the command's answer.
fn attend(nexus: &mut Nexus, place: (NexusId, u8), unit: &Unit, cdb: &[u8]) -> Result<(), Reply> {
    let is_exempt = matches!(
        cdb.first(),
        Some(&(opcode::INQUIRY | opcode::REPORT_LUNS | opcode::REQUEST_SENSE))
    );
    match if is_exempt { None } else { tell(nexus, place, unit) } {
        Some((sense, told)) => Err(Reply { told, ..Reply::check(sense) }),
        None => Ok(()),
    }
}

/// The most urgent attention of an initiator at a logical unit.
fn tell(
    nexus: &mut Nexus,
    (id, number): (NexusId, u8),
    unit: &Unit,
) -> Option<(Sense, Option<ToldAttention>)> {
    let attentions: &mut Attentions = &mut nexus.attentions[usize::from(number)];
    let (mut sense, told) = if nexus.confirms {
        let (sense, telling) = attentions.tell()?;
        (sense, Some(ToldAttention { nexus: id, unit: number, telling }))
    } else {
        (attentions.take()?, None)
    };
    if sense.code == Code::INQUIRY_CHANGED {
        sense.generation = unit.generation;
    }
    Some((sense, told))
}

/// Whether a command is executed though another initiator has reserved the logical unit.
fn passes_reservation(cdb: &[u8]) -> bool {
    matches!(cdb.first(), Some(&(opcode::INQUIRY | opcode::REQUEST_SENSE | opcode::RELEASE_6)))
}

/// The list of the logical units that an initiator may know of. LUN 0 has it even if it is absent.
fn report_luns(
    slots: &[Option<Slot>; UNITS_MAX],
    nexus: &mut Nexus,
    lun: Lun,
    select: LunSelect,
    out: &mut [u8],
) -> Result<Reply, Refusal> {
    let visible = nexus.visible;
    let is_there = |number: u8| visible.has(number) && slots[usize::from(number)].is_some();
    if lun.number() != Some(0) && !lun.index().is_some_and(is_there) {
        return Err(Refusal::LogicalUnit);
    }
    // An initiator that reads the list needs no attention that it has changed.
    nexus.attentions.iter_mut().for_each(|it| it.remove(Pending::LunsChanged));
    let luns = (0..=u8::MAX).filter(|number| select != LunSelect::WellKnown && is_there(*number));
    Ok(Reply::answer(emit_luns(luns.map(Lun::peripheral), out)))
}

/// The answer of a LUN without a logical unit.
fn absent(command: Result<Command, Refusal>, out: &mut [u8]) -> Result<Reply, Reply> {
    match command {
        Ok(Command::Inquiry { page: None, allocation }) => {
            Ok(Reply::answer(inquiry().absent().emit(allotted(out, allocation.into()))))
        }
        Ok(Command::RequestSense { allocation, descriptors: false }) => {
            let out = allotted(out, allocation.into());
            Ok(emit_sense(Refusal::LogicalUnit.sense(), out))
        }
        _ => Err(Refusal::LogicalUnit.into()),
    }
}

fn emit_sense(sense: Sense, out: &mut [u8]) -> Reply {
    Reply::answer(Writer::new(out).bytes(&sense.emit()).kept())
}

/// Writes the answer to a question; returns its length, or `None` if the command is no question.
fn answer(
    (unit, port): (&Unit, TargetPort),
    command: Command,
    out: &mut [u8],
) -> Result<Option<usize>, Refusal> {
    let len = match command {
        Command::Inquiry { page: None, allocation } => {
            inquiry().emit(allotted(out, allocation.into()))
        }
        Command::Inquiry { page: Some(page), allocation } => {
            unit.emit_page(page, port, allotted(out, allocation.into()))?
        }
        Command::ModeSense { query, allocation } => {
            unit.mode().emit(&query, allotted(out, allocation.into()))?
        }
        Command::ReadCapacity10 => {
            unit.check_medium()?;
            unit.capacity().emit_10(out)
        }
        Command::ReadCapacity16 { allocation } => {
            unit.check_medium()?;
            unit.capacity().emit_16(allotted(out, allocation))
        }
        Command::ReportOpcodes { query, timeouts, allocation } => {
            let commands = Commands { unmap: unit.geometry.discard };
            commands.emit(query, timeouts, allotted(out, allocation))?
        }
        Command::PersistentReserveIn { query, allocation } => {
            // Generation 0 and an empty list, or the capability of nothing.
            let is_capabilities = query == ReservationQuery::Capabilities;
            let answer = [0, if is_capabilities { 8 } else { 0 }, 0, 0, 0, 0, 0, 0];
            Writer::new(allotted(out, allocation.into())).bytes(&answer).kept()
        }
        Command::TestUnitReady => {
            unit.check_medium()?;
            0
        }
        Command::StartStopUnit { start: true, .. } => 0,
        // The disk does not stop for all initiators because one is done with it.
        Command::StartStopUnit { start: false, .. } => return Err(Refusal::CdbField(4)),
        _ => return Ok(None),
    };
    Ok(Some(len))
}

/// The operation of a command that is one, or the length of its parameter list.
fn perform(slot: &mut Slot, id: NexusId, number: u8, command: Command) -> Result<Step, Reply> {
    let task = |operation, (offset, len)| {
        // A transfer of no blocks is done.
        if len == 0 {
            return Step::Answer(Reply::GOOD);
        }
        Step::Perform(Task { unit: number, operation, offset, len })
    };
    match command {
        Command::Read { range, fua } => {
            let step = task(Operation::Read, slot.unit.check(range, TRANSFER_LEN_MAX)?);
            let is_cached = fua && slot.unit.geometry.write_cache;
            Ok(if is_cached { stable(step, true) } else { step })
        }
        Command::Verify(range) => {
            Ok(stable(task(Operation::Read, slot.unit.check(range, TRANSFER_LEN_MAX)?), false))
        }
        Command::Write { range, fua } => {
            admit(slot, id)?;
            let range = slot.unit.check(range, TRANSFER_LEN_MAX)?;
            slot.writer = Some(id);
            Ok(task(Operation::Write { fua }, range))
        }
        Command::SynchronizeCache { range, .. } => {
            // Of the range only its begin and end are checked: the whole cache is flushed.
            slot.unit.check_end(range)?;
            let operation = Operation::Flush;
            Ok(Step::Perform(Task { unit: number, operation, offset: 0, len: 0 }))
        }
        Command::WriteSame { lba, blocks, unmap, no_data } => {
            admit(slot, id)?;
            let task = write_zeroes(slot, number, lba, blocks, unmap)?;
            slot.writer = Some(id);
            let len = slot.unit.geometry.block_size;
            Ok(if no_data { Step::Perform(task) } else { Step::Collect { len } })
        }
        Command::Unmap { len } => {
            if !slot.unit.geometry.discard {
                return Err(Refusal::Opcode.into());
            }
            admit(slot, id)?;
            match usize::from(len) {
                0 => Ok(Step::Answer(Reply::GOOD)),
                1..=UNMAP_LEN_MAX => {
                    slot.writer = Some(id);
                    Ok(Step::Collect { len: len.into() })
                }
                _ => Err(Refusal::ListLength.into()),
            }
        }
        _ => Err(Refusal::Opcode.into()),
    }
}

/// The same read of what is on stable storage.
fn stable(step: Step, is_sent: bool) -> Step {
    match step {
        Step::Perform(task) => Step::PerformStable { task, is_sent },
        step => step,
    }
}

/// The operation of a WRITE SAME of zeroes.
fn write_zeroes(
    slot: &Slot,
    unit: u8,
    lba: u64,
    blocks: u32,
    may_unmap: bool,
) -> Result<Task, Refusal> {
    if may_unmap && !slot.unit.geometry.discard {
        return Err(Refusal::CdbField(1));
    }
    // WSNZ: zero does not mean up to the end of the disk.
    if blocks == 0 {
        return Err(Refusal::CdbField(Form::Sixteen.blocks_at()));
    }
    let range = Range { form: Form::Sixteen, lba, blocks };
    let (offset, len) = slot.unit.check(range, WRITE_ZEROES_LEN_MAX)?;
    Ok(Task { unit, operation: Operation::WriteZeroes { fua: false, may_unmap }, offset, len })
}

/// Admits a command that modifies: the disk is not read-only, and no other initiator writes to it.
fn admit(slot: &Slot, nexus: NexusId) -> Result<(), Reply> {
    if slot.unit.geometry.read_only {
        return Err(Refusal::WriteProtected.into());
    }
    let is_free = slot.unit.shared || slot.writer.is_none_or(|writer| writer == nexus);
    if is_free { Ok(()) } else { Err(Reply::CONFLICT) }
}
