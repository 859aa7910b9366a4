//! Checks that all entries of a frame can be taken: a frame is taken whole or not at all.
//! PROTOCOL.md, "Order of processing".
//!
//! A check changes only notes. They hold what earlier entries of the same frame have begun, with
//! the number of the frame, so that notes of former frames need not be erased.

use tyche_wire::{Command, Data, Entry, Opcode, Reject, Tag, ToTarget};

use super::{Slot, State, TargetChannel};
use crate::channel::damq::Owners;
use crate::rules::{Rule, Rules};

/// The request of a slot, as it will be after the entries of the frame that were checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// Number of the frame.
    frame: u32,
    generation: u16,
    page: u32,
    held: u32,
    opcode: Option<Opcode>,
    has_data: bool,
}

impl Noted {
    /// No note: frames are numbered from 1 on.
    pub(super) const NONE: Self =
        Self { frame: 0, generation: 0, page: 0, held: 0, opcode: None, has_data: false };
}

impl<R: Rules> TargetChannel<R> {
    /// Begins the check of another frame.
    pub(super) fn begin_check(&mut self) {
        self.frame = self.frame.wrapping_add(1);
        if self.frame == 0 {
            // Notes from 2³² frames ago must not be taken for those of this one.
            self.slots.iter_mut().for_each(|slot| slot.noted = Noted::NONE);
            self.owners.forget_claims();
            self.frame = 1;
        }
    }

    /// Checks the next entry.
    ///
    /// # Errors
    /// Why the entry is rejected.
    pub(super) fn check_entry(&mut self, entry: Entry) -> Result<ToTarget, Reject> {
        let entry = ToTarget::try_from(entry)?;
        match &entry {
            ToTarget::Command(command) => self.check_command(command)?,
            ToTarget::Data(data) => self.check_data(data)?,
            ToTarget::Credit(pages) => self.check_credit(*pages)?,
        }
        Ok(entry)
    }

    fn check_command(&mut self, command: &Command) -> Result<(), Reject> {
        if command.opcode == Opcode::BlockStatus && !self.tells_status {
            return Err(Reject::Unexpected);
        }
        let held = if command.opcode.has_data() { command.len } else { 0 };
        let noted = self.note(command.tag, command.damq_page, held)?;
        let fits = command.opcode == Opcode::Write || !noted.has_data;
        if noted.opcode.is_some() && R::keeps(Rule::SuppressDuplicates) || !fits {
            return Err(Reject::Mismatch);
        }
        noted.opcode = Some(command.opcode);
        Ok(())
    }

    /// An answer is the first entry of its frame, and no request in progress uses more pages.
    fn check_credit(&self, pages: u32) -> Result<(), Reject> {
        if !self.entries.is_empty() {
            return Err(Reject::Unexpected);
        }
        self.credit.check(pages)?;
        let is_beyond = |slot: &Slot| {
            slot.state != State::Done && Owners::run(slot.page, slot.held).end > pages
        };
        let is_used = self.slots.iter().any(is_beyond);
        if is_used && R::keeps(Rule::DrainBeforeCredit) { Err(Reject::Placement) } else { Ok(()) }
    }

    fn check_data(&mut self, data: &Data) -> Result<(), Reject> {
        let Data { tag, offset, len, total, damq_page } = *data;
        let noted = self.note(tag, damq_page, total)?;
        if noted.opcode.is_some_and(|opcode| opcode != Opcode::Write) {
            return Err(Reject::Mismatch);
        }
        if !std::mem::replace(&mut noted.has_data, true) {
            self.received.clear(damq_page, total);
        }
        // Marked during the check, to notice parts of the same frame that overlap. If the frame is
        // rejected, the marks are removed.
        if R::keeps(Rule::TrackRanges) && !self.received.mark(damq_page, offset, len) {
            return Err(Reject::Mismatch);
        }
        Ok(())
    }

    /// The note on the request that an entry belongs to.
    fn note(&mut self, tag: Tag, page: u32, held: u32) -> Result<&mut Noted, Reject> {
        let index = usize::from(tag.slot);
        let slot = self.slots.get(index).ok_or(Reject::Tag)?;
        if slot.noted.frame != self.frame {
            let noted = self.look_up(tag, page, held)?;
            self.slots[index].noted = noted;
        }
        let noted = &mut self.slots[index].noted;
        if noted.generation != tag.generation {
            return Err(Reject::Tag);
        }
        if (noted.page, noted.held) != (page, held) {
            return Err(Reject::Mismatch);
        }
        Ok(noted)
    }

    /// The note on a request that the frame has not named yet: one that is being gathered, or a new
    /// one.
    fn look_up(&mut self, tag: Tag, page: u32, held: u32) -> Result<Noted, Reject> {
        let slot = &self.slots[usize::from(tag.slot)];
        let (frame, generation) = (self.frame, tag.generation);
        if slot.state == State::Gathering && slot.generation == generation {
            let opcode = slot.command.map(|command| command.opcode);
            let has_data = slot.moved > 0;
            let (page, held) = (slot.page, slot.held);
            return Ok(Noted { frame, generation, page, held, opcode, has_data });
        }
        if slot.state != State::Done || !slot.is_followed_by::<R>(generation) {
            return Err(Reject::Tag);
        }
        if held > 0 {
            let slots = &self.slots;
            let is_busy = |owner: u16| slots[usize::from(owner)].state != State::Done;
            // The answer to a credit counts for what is behind it in the frame.
            if let Some(ToTarget::Credit(pages)) = self.entries.first()
                && Owners::run(page, held).end > *pages
            {
                return Err(Reject::Placement);
            }
            self.owners.claim(page, held, frame, is_busy)?;
        }
        Ok(Noted { frame, generation, page, held, opcode: None, has_data: false })
    }

    /// Removes the marks of checked entries.
    pub(super) fn undo_check<'a>(&mut self, entries: impl Iterator<Item = &'a ToTarget>) {
        for entry in entries {
            if let ToTarget::Data(data) = entry {
                self.received.unmark(data.damq_page, data.offset, data.len);
            }
        }
    }
}
