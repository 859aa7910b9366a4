//! Whether the entries of a frame can all be taken: a frame is taken whole or not at all.
//! PROTOCOL.md, "Order of processing".
//!
//! Nothing is changed here. What the entries before have begun in the same frame is remembered on
//! the side, since they have not been taken yet.

use arrayvec::ArrayVec;
use tyche_wire::{Command, Data, ENTRIES_MAX, Entries, Entry, Opcode, PAGE_LEN, Reject, Tag};

use super::{State, TargetChannel};
use crate::received::Parts;
use crate::rules::Rules;

/// A request that the frame speaks of, as it will be after the entries looked at so far.
struct Request {
    slot: u16,
    generation: u16,
    page: u32,
    held: u32,
    /// It begins in this frame.
    begins: bool,
    opcode: Option<Opcode>,
    has_data: bool,
}

/// See the module.
pub(super) struct Check<'a, R> {
    target: &'a TargetChannel<R>,
    requests: ArrayVec<Request, ENTRIES_MAX>,
    parts: Parts,
}

impl<'a, R: Rules> Check<'a, R> {
    pub(super) fn new(target: &'a TargetChannel<R>) -> Self {
        Self { target, requests: ArrayVec::new(), parts: Parts::default() }
    }

    /// Looks at all entries of a frame.
    ///
    /// # Errors
    /// What is wrong with the first that can't be taken.
    pub(super) fn entries(&mut self, entries: &Entries<'_>) -> Result<(), Reject> {
        entries.iter().try_for_each(|entry| self.entry(&entry))
    }

    /// Looks at the next entry.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn entry(&mut self, entry: &Entry) -> Result<(), Reject> {
        match entry {
            Entry::Command(command) => self.command(command),
            Entry::Data(data) => self.data(data),
            Entry::Completion(_) | Entry::Event(_) => Err(Reject::Unexpected),
        }
    }

    fn command(&mut self, command: &Command) -> Result<(), Reject> {
        let held = if command.opcode.has_data() { command.len } else { 0 };
        let request = self.request(command.tag, command.damq_page, held)?;
        let fits = command.opcode == Opcode::Write || !request.has_data;
        if request.opcode.is_some() && R::SUPPRESS_DUPLICATES || !fits {
            return Err(Reject::Mismatch);
        }
        request.opcode = Some(command.opcode);
        Ok(())
    }

    fn data(&mut self, data: &Data) -> Result<(), Reject> {
        let target = self.target;
        let request = self.request(data.tag, data.damq_page, data.total)?;
        if request.opcode.is_some_and(|opcode| opcode != Opcode::Write) {
            return Err(Reject::Mismatch);
        }
        request.has_data = true;
        let has_come =
            !request.begins && target.received.overlaps(data.damq_page, data.offset, data.len);
        if R::TRACK_RANGES && has_come {
            return Err(Reject::Mismatch);
        }
        if R::TRACK_RANGES { self.parts.add(data.tag.slot, data.offset, data.len) } else { Ok(()) }
    }

    /// The request that an entry belongs to.
    fn request(&mut self, tag: Tag, page: u32, held: u32) -> Result<&mut Request, Reject> {
        // Entries of a request follow each other, mostly.
        let known = self.requests.iter().rposition(|request| request.slot == tag.slot);
        let index = match known {
            Some(index) => index,
            None => {
                let request = self.find(tag, page, held)?;
                self.requests.push(request);
                self.requests.len() - 1
            }
        };
        let request = &mut self.requests[index];
        if request.generation != tag.generation {
            return Err(Reject::Tag);
        }
        if (request.page, request.held) != (page, held) {
            return Err(Reject::Mismatch);
        }
        Ok(request)
    }

    /// A request that the frame has not spoken of yet: one that is being gathered, or a new one.
    fn find(&self, tag: Tag, page: u32, held: u32) -> Result<Request, Reject> {
        let target = self.target;
        let slot = target.slots.get(usize::from(tag.slot)).ok_or(Reject::Tag)?;
        let request = Request {
            slot: tag.slot,
            generation: tag.generation,
            page,
            held,
            begins: true,
            opcode: None,
            has_data: false,
        };
        if slot.state == State::Gathering && slot.generation == tag.generation {
            return Ok(Request {
                page: slot.page,
                held: slot.held,
                begins: false,
                opcode: slot.command.map(|command| command.opcode),
                has_data: slot.moved > 0,
                ..request
            });
        }
        if slot.state != State::Done || !slot.is_followed_by::<R>(tag.generation) {
            return Err(Reject::Tag);
        }
        let is_busy = |owner: u16| target.slots[usize::from(owner)].state != State::Done;
        if held > 0 && (target.owners.of(page, held)?.any(is_busy) || self.takes(page, held)) {
            return Err(Reject::Placement);
        }
        Ok(request)
    }

    /// Whether a request that begins in this frame takes any of those pages.
    fn takes(&self, page: u32, held: u32) -> bool {
        let pages = |page: u32, held: u32| {
            let (first, count) = (u64::from(page), u64::from(held.div_ceil(PAGE_LEN as u32)));
            first..first + count
        };
        let wanted = pages(page, held);
        let begun = self.requests.iter().filter(|request| request.begins && request.held > 0);
        begun
            .map(|request| pages(request.page, request.held))
            .any(|taken| taken.start < wanted.end && wanted.start < taken.end)
    }
}
