//! The host's end of a channel: requests in flight, and the places of their data at the target.
//!
//! The host allocates the `remq` slot that names a request, and the `damq` pages that its data pass
//! through at the target. So data can be sent without asking the target first, and the target never
//! allocates. (MSST 2014, section II.B; PROTOCOL.md, "Slots, tags and placement".)

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{
    Body, Command, CommandFlags, Completion, Data, ENTRIES_MAX, Echo, Entries, Entry, EntryList,
    Event, Flags, Header, Kind, Opcode, PAGE_LEN, Position, Reject, Ring, Status, Tag, Times,
    ToHost,
};

use crate::channel::damq::Allocator;
use crate::channel::outgoing::Outgoing;
use crate::channel::received::Received;
use crate::channel::ring::Arrival;
use crate::channel::stages::{StageSample, StageSamples};
use crate::channel::turns::Turns;
use crate::channel::{Channel, ChannelConfig};
use crate::host::load::{Load, cost};
use crate::rules::{Rule, Rules};
use crate::time::Instant;

/// A request of at most 1 MiB: an operation or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Index of the operation.
    pub(crate) op: u32,
    /// Where the piece starts within the operation, in bytes.
    pub(crate) base: u32,
    pub(crate) opcode: Opcode,
    pub(crate) flags: CommandFlags,
    /// First byte on the disk.
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Piece {
    pub(crate) fn data_len(&self) -> u32 {
        if self.opcode.has_data() { self.len } else { 0 }
    }

    /// The piece of these bytes of it.
    pub(crate) fn part(&self, range: Range<u32>) -> Self {
        let (base, offset) = (self.base + range.start, self.offset + u64::from(range.start));
        Self { base, offset, len: range.end - range.start, ..*self }
    }
}

/// The content of a frame, for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Data of a read: `len` bytes from `source` in the frame's data section belong at `offset`
    /// of the operation.
    Data { op: u32, offset: u32, len: u32, source: u32 },
    /// A piece has ended; with its stage times, on channels that have them.
    Done(Piece, Status, Option<StageSample>),
    /// Something happened to the export.
    Event(Event),
    /// A reply to an echo.
    Echo(Echo),
}

struct Slot {
    generation: u16,
    piece: Option<Piece>,
    damq_page: u32,
    /// Bytes of a write that were put into frames, or bytes of a read that were received.
    moved: u32,
    /// The completion has come with success, but not yet all of the data.
    succeeded: bool,
    /// While a frame is checked that completes the request: the number of the frame, and the
    /// status.
    noted: Option<(u32, Status)>,
}

/// The host's end of one channel: its slots, its `damq` pages and the transport. It takes a request
/// only if both have room, and reports data and completions as [`Arrived`].
pub(crate) struct Initiator<R> {
    pub(crate) channel: Channel<R>,
    pub(crate) load: Load,
    slots: Box<[Slot]>,
    free: VecDeque<u16>,
    damq: Allocator,
    /// The bytes of each page that have arrived.
    received: Received,
    /// Number of the frame that is being checked, from 1 on, and its entries.
    frame: u32,
    entries: ArrayVec<ToHost, ENTRIES_MAX>,
    /// Slots without data to be sent, whose command has to be sent.
    commands: VecDeque<u16>,
    /// Slots of writes with data to be sent. The command goes with the first part.
    writes: Turns,
    /// Pages of the `damq` that the target has named, while it has no answer.
    credit: Option<u32>,
    /// Position of the newest event.
    event_at: Option<Position>,
    /// Stage times, on channels that have them.
    stage_samples: Option<StageSamples>,
    /// Whether the target answers requests for block status.
    tells_status: bool,
}

impl<R: Rules> Initiator<R> {
    pub(crate) fn new(
        config: ChannelConfig,
        queue_size: u16,
        damq_pages: u32,
        now: Instant,
    ) -> Self {
        let slot = |_| Slot {
            generation: R::GENERATION_FIRST,
            piece: None,
            damq_page: 0,
            moved: 0,
            succeeded: false,
            noted: None,
        };
        Self {
            stage_samples: config.stages.then(|| StageSamples::new(queue_size)),
            tells_status: config.block_status,
            channel: Channel::new(config, now),
            load: Load::new(now),
            slots: (0..queue_size).map(slot).collect(),
            free: (0..queue_size).collect(),
            damq: Allocator::new(damq_pages),
            received: Received::new(damq_pages),
            frame: 0,
            entries: ArrayVec::new(),
            commands: VecDeque::with_capacity(queue_size.into()),
            writes: Turns::new(queue_size.into()),
            credit: None,
            event_at: None,
        }
    }

    /// Requests in flight.
    pub(crate) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Requests in flight, in the order of their slots.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Tag, Piece)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let tag = Tag { slot: index, generation: slot.generation };
            Some((tag, slot.piece?))
        })
    }

    /// The rest of a request in flight, for another channel, as pieces: a read goes on with
    /// what has not arrived, so that it ends however often channels are lost. A block status begins
    /// anew: its answer depends on where it begins.
    pub(crate) fn rest(&self, Tag { slot, .. }: Tag, piece: Piece) -> Vec<Piece> {
        if piece.opcode != Opcode::Read {
            return vec![piece];
        }
        let missing = self.received.missing(self.slots[usize::from(slot)].damq_page, piece.len);
        missing.into_iter().map(|range| piece.part(range)).collect()
    }

    /// The piece in a slot.
    pub(crate) fn piece(&self, slot: u16) -> Option<Piece> {
        self.slots.get(usize::from(slot))?.piece
    }

    /// Bytes of a request at most that has room when nothing else is in flight.
    pub(crate) fn request_len_max(&self) -> u32 {
        self.damq.request_len_max()
    }

    /// Whether a request with `data_len` bytes of data can be taken now, or if that is too long,
    /// the [longest](Self::request_len_max) part of it.
    pub(crate) fn has_room(&self, data_len: u32) -> bool {
        let len = data_len.min(self.request_len_max());
        !self.free.is_empty() && (len == 0 || self.damq.has_room(len))
    }

    /// Since when requests are in flight and nothing was heard.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        Some(self.load.busy_since()?.max(self.channel.heard_at()))
    }

    /// How long requests have been in flight and nothing was heard.
    pub(crate) fn silent_for(&self, now: Instant) -> Duration {
        self.silent_since().map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Whether the target answers requests for block status on this channel.
    pub(crate) fn tells_status(&self) -> bool {
        self.tells_status
    }

    /// Takes a request; false if there is no slot or no `damq` room for it now.
    pub(crate) fn submit(&mut self, now: Instant, piece: Piece) -> bool {
        let Some(&slot) = self.free.front() else { return false };
        let damq_page = match piece.data_len() {
            0 => 0,
            len => match self.damq.take(len) {
                Some(page) => page,
                None => return false,
            },
        };
        if piece.opcode.returns_data() {
            self.received.clear(damq_page, piece.len);
        }
        self.free.pop_front();
        self.load.begin(now, cost(piece.data_len()));
        if piece.opcode == Opcode::Write {
            self.writes.push(slot, piece.len);
        } else {
            self.commands.push_back(slot);
        }
        if let Some(stage_samples) = &mut self.stage_samples {
            stage_samples.issued(slot, now);
        }
        let slot = &mut self.slots[usize::from(slot)];
        slot.generation = slot.generation.wrapping_add(1);
        (slot.piece, slot.damq_page) = (Some(piece), damq_page);
        (slot.moved, slot.succeeded, slot.noted) = (0, false, None);
        true
    }

    /// Queues an echo request of `frame_len` bytes; false if it or its replies would be too long,
    /// or too many echoes wait.
    pub(crate) fn echo(&mut self, echo: Echo, frame_len: usize) -> bool {
        let fits = self.channel.capacity.frame_len() >= frame_len.max(echo.reply_len as usize);
        fits && self.channel.echoes.ask(echo, frame_len)
    }

    /// Takes a frame of this channel whose payload has been checked, whole or not at all.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        header: &Header,
        body: &Body<'_>,
        mut arrived: impl FnMut(Arrived),
    ) -> Result<(), Reject> {
        let arrival = self.channel.check(header, body)?;
        let ignored = arrival == Arrival::Duplicate && R::keeps(Rule::SuppressDuplicates);
        if !ignored {
            self.check(header, body)?;
        }
        self.channel.receive(now, header, body, arrival);
        if ignored {
            return Ok(());
        }
        match body {
            Body::Empty | Body::Control(_) => {}
            Body::Echo { echo, .. } => {
                self.channel.echoes.answered();
                arrived(Arrived::Echo(*echo));
            }
            Body::Entries { data, .. } => self.take(now, header, data.is_none(), &mut arrived),
        }
        Ok(())
    }

    /// Checks the payload of a frame.
    fn check(&mut self, header: &Header, body: &Body<'_>) -> Result<(), Reject> {
        let is_reply = header.flags.contains(Flags::REPLY);
        match body {
            Body::Empty => Ok(()),
            Body::Control(_) if matches!(header.kind, Kind::Ack | Kind::Fenced) => Ok(()),
            Body::Echo { .. } if is_reply && self.channel.echoes.are_awaited() => Ok(()),
            Body::Control(_) | Body::Echo { .. } => Err(Reject::Unexpected),
            Body::Entries { entries, .. } => self.check_entries(entries),
        }
    }

    /// Checks all entries of a frame in order. What an entry means to later ones of the same frame
    /// is noted with the number of the frame.
    fn check_entries(&mut self, entries: &Entries<'_>) -> Result<(), Reject> {
        self.frame = self.frame.wrapping_add(1);
        if self.frame == 0 {
            // Notes from 2³² frames ago must not be taken for those of this one.
            self.slots.iter_mut().for_each(|slot| slot.noted = None);
        }
        self.entries.clear();
        for entry in entries.iter() {
            match self.check_entry(entry) {
                Ok(entry) => self.entries.push(entry),
                Err(reject) => {
                    self.undo_check();
                    return Err(reject);
                }
            }
        }
        Ok(())
    }

    fn check_entry(&mut self, entry: Entry) -> Result<ToHost, Reject> {
        let entry = ToHost::try_from(entry)?;
        match &entry {
            ToHost::Event(_) => {}
            ToHost::Credit(pages) => self.check_credit(*pages)?,
            ToHost::Data(data) => self.check_data(data)?,
            ToHost::Completion(completion) => self.check_completion(completion)?,
        }
        Ok(entry)
    }

    /// A target names another number of pages when it has the answer to the last one.
    fn check_credit(&self, pages: u32) -> Result<(), Reject> {
        let is_second = self.entries.iter().any(|entry| matches!(entry, ToHost::Credit(_)));
        if self.credit.is_some() || is_second {
            return Err(Reject::Unexpected);
        }
        if pages as usize <= self.damq.pages() { Ok(()) } else { Err(Reject::Placement) }
    }

    fn check_data(&mut self, data: &Data) -> Result<(), Reject> {
        let frame = self.frame;
        let (slot, piece) = self.slot_of(data.tag)?;
        if !piece.opcode.returns_data() || data.total != piece.len || data.damq_page != 0 {
            return Err(Reject::Mismatch);
        }
        let noted = slot.noted.filter(|(number, _)| *number == frame);
        if noted.is_some_and(|(_, status)| status != Status::Success) {
            return Err(Reject::Tag);
        }
        // Marked during the check, to notice parts of the same frame that overlap. If the frame is
        // rejected, the marks are removed.
        let page = slot.damq_page;
        let fresh = self.received.mark(page, data.offset, data.len);
        if fresh { Ok(()) } else { Err(Reject::Mismatch) }
    }

    fn check_completion(&mut self, completion: &Completion) -> Result<(), Reject> {
        let (frame, is_timed) = (self.frame, self.stage_samples.is_some());
        let (slot, piece) = self.slot_of(completion.tag)?;
        if slot.succeeded || slot.noted.is_some_and(|(number, _)| number == frame) {
            return Err(Reject::Mismatch);
        }
        if !is_timed && completion.times != Times::ZERO {
            return Err(Reject::Unexpected);
        }
        // A write cannot succeed before all of its data were sent.
        let wrote = piece.opcode == Opcode::Write && completion.status == Status::Success;
        if wrote && slot.moved < piece.len {
            return Err(Reject::Mismatch);
        }
        slot.noted = Some((frame, completion.status));
        Ok(())
    }

    /// Removes the marks of the entries before the wrong one.
    fn undo_check(&mut self) {
        for entry in std::mem::take(&mut self.entries) {
            let slot = match &entry {
                ToHost::Data(Data { tag, .. }) | ToHost::Completion(Completion { tag, .. }) => {
                    &mut self.slots[usize::from(tag.slot)]
                }
                ToHost::Event(_) | ToHost::Credit(_) => continue,
            };
            slot.noted = None;
            if let ToHost::Data(data) = entry {
                self.received.unmark(slot.damq_page, data.offset, data.len);
            }
        }
    }

    /// Finds the request of a tag.
    fn slot_of(&mut self, tag: Tag) -> Result<(&mut Slot, Piece), Reject> {
        let slot = self.slots.get_mut(usize::from(tag.slot)).ok_or(Reject::Tag)?;
        match slot.piece {
            Some(piece) if slot.generation == tag.generation => Ok((slot, piece)),
            _ => Err(Reject::Tag),
        }
    }

    /// Takes the checked entries. Their data are in the frame, or in the pages of their requests.
    fn take(
        &mut self,
        now: Instant,
        header: &Header,
        are_placed: bool,
        arrived: &mut impl FnMut(Arrived),
    ) {
        let mut source = 0;
        for index in 0..self.entries.len() {
            match self.entries[index] {
                ToHost::Completion(completion) => self.take_completion(now, completion, arrived),
                ToHost::Data(data) => {
                    if are_placed {
                        let page = self.slots[usize::from(data.tag.slot)].damq_page;
                        source = page * PAGE_LEN as u32 + data.offset;
                    }
                    self.take_data(now, &data, source, arrived);
                    source += data.len;
                }
                ToHost::Credit(pages) => {
                    self.damq.set_limit(pages);
                    self.credit = Some(pages);
                }
                ToHost::Event(event) => {
                    // Frames may overtake each other: an older event is ignored.
                    let older = |at: Position| header.position.ahead_of(at) < 0;
                    if !self.event_at.is_some_and(older) {
                        self.event_at = Some(header.position);
                        arrived(Arrived::Event(event));
                    }
                }
            }
        }
    }

    fn take_data(
        &mut self,
        now: Instant,
        data: &Data,
        source: u32,
        arrived: &mut impl FnMut(Arrived),
    ) {
        let slot = &mut self.slots[usize::from(data.tag.slot)];
        let piece = slot.piece.expect("checked before");
        let Data { offset, len, .. } = *data;
        slot.moved += len;
        let is_over = slot.succeeded && slot.moved == piece.len;
        arrived(Arrived::Data { op: piece.op, offset: piece.base + offset, len, source });
        if is_over {
            self.finish(now, data.tag.slot, Status::Success, arrived);
        }
    }

    fn take_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        arrived: &mut impl FnMut(Arrived),
    ) {
        let Completion { tag, status, times } = completion;
        let slot = &mut self.slots[usize::from(tag.slot)];
        let piece = slot.piece.expect("checked before");
        // A completion may overtake data.
        let lacks_data = status == Status::Success && slot.moved < piece.len;
        let is_early = piece.opcode.returns_data() && lacks_data;
        slot.succeeded |= is_early;
        if let Some(stage_samples) = &mut self.stage_samples {
            stage_samples.answered(tag.slot, times);
        }
        if !is_early {
            self.finish(now, tag.slot, status, arrived);
        }
    }

    fn finish(
        &mut self,
        now: Instant,
        index: u16,
        status: Status,
        arrived: &mut impl FnMut(Arrived),
    ) {
        let slot = &mut self.slots[usize::from(index)];
        let piece = slot.piece.take().expect("a request ends once");
        if piece.data_len() > 0 {
            self.damq.give_back(slot.damq_page, piece.data_len());
        }
        self.load.end(now, cost(piece.data_len()));
        self.channel.batching.ended(now, self.outstanding());
        self.free.push_back(index);
        if piece.opcode == Opcode::Write && status != Status::Success {
            self.writes.remove(index);
        }
        let stage_sample = self.stage_samples.as_ref().map(|stage_samples| stage_samples.of(index));
        arrived(Arrived::Done(piece, status, stage_sample));
    }

    /// Composes the next frame; false if there is none to send now.
    pub(crate) fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        let slots = &self.slots;
        let wanted = |entry: &Entry| match entry {
            Entry::Command(Command { tag, .. }) | Entry::Data(Data { tag, .. }) => {
                let slot = &slots[usize::from(tag.slot)];
                slot.piece.is_some() && slot.generation == tag.generation
            }
            Entry::Credit(_) => R::keeps(Rule::RepeatCredit),
            Entry::Completion(_) | Entry::Event(_) => false,
        };
        let entries = out.content.begin_entries();
        let header = match self.channel.resend(now, entries, wanted) {
            Some(header) => header,
            None => match self.compose(now, entries) {
                Some((ring, data)) => self.channel.send(now, ring, entries, data),
                None => return self.channel.poll_upkeep(now, out),
            },
        };
        self.channel.address_entries(out, header, |data| {
            let piece = self.slots[usize::from(data.tag.slot)].piece;
            let piece = piece.expect("data are sent while their request is in progress");
            (piece.op, piece.base, data.damq_page)
        });
        true
    }

    /// Fills a new frame's entries: data of writes as far as they fit, then commands. Returns its
    /// ring and the bytes of its data.
    fn compose(&mut self, now: Instant, entries: &mut EntryList) -> Option<(Ring, usize)> {
        if self.is_held(now) {
            return None;
        }
        let mut data = 0;
        // Or it would wait for as long as there are writes.
        if self.is_credit_due() && self.channel.may_send(now, Ring::Command) {
            entries.extend(self.credit.take().map(Entry::Credit));
        } else if !self.writes.is_empty() && self.channel.may_send(now, Ring::Data) {
            while let Some(slot) = self.writes.next() {
                let Some(len) = self.compose_write(slot, entries, data) else { break };
                data += len as usize;
                self.sent(slot, now);
                if !self.channel.batching.shares() {
                    return Some((Ring::Data, data));
                }
            }
        }
        let is_small = !self.commands.is_empty();
        if entries.is_empty() && !(is_small && self.channel.may_send(now, Ring::Command)) {
            return None;
        }
        while self.channel.capacity.fits_entry(entries.len(), data) {
            let Some(slot) = self.commands.pop_front() else { break };
            entries.push(Entry::Command(self.command(slot)));
            self.sent(slot, now);
            if !self.channel.batching.shares() {
                break;
            }
        }
        Some((if data > 0 { Ring::Data } else { Ring::Command }, data))
    }

    /// Whether the target is to be told that no pages are used but those that it has named.
    fn is_credit_due(&self) -> bool {
        let is_within = self.damq.is_within_limit() || !R::keeps(Rule::DrainBeforeCredit);
        self.credit.is_some() && is_within
    }

    /// Notes that a frame of a request was composed: the last one counts.
    fn sent(&mut self, slot: u16, now: Instant) {
        if let Some(stage_samples) = &mut self.stage_samples {
            stage_samples.sent(slot, now);
        }
    }

    /// Whether the next frame waits for more entries.
    fn is_held(&mut self, now: Instant) -> bool {
        let ready = self.commands.len() + self.writes.len();
        let urgent = self.writes.has_large() || self.is_credit_due();
        self.channel.batching.holds(now, ready, self.outstanding() - ready, urgent)
    }

    /// Adds the next part of a write's data, with its command if it is the first part.
    fn compose_write(&mut self, index: u16, entries: &mut EntryList, data: usize) -> Option<u32> {
        let command = self.command(index);
        let slot = &mut self.slots[usize::from(index)];
        let first = slot.moved == 0;
        let before = entries.len() + usize::from(first);
        let others = !self.commands.is_empty();
        let left = command.len - slot.moved;
        let len = self.channel.capacity.chunk_beside(others, before, data, left)?;
        if first {
            entries.push(Entry::Command(command));
        }
        let Command { tag, len: total, damq_page, .. } = command;
        entries.push(Entry::Data(Data { tag, offset: slot.moved, len, total, damq_page }));
        slot.moved += len;
        self.writes.served(slot.moved == total);
        Some(len)
    }

    fn command(&self, index: u16) -> Command {
        let slot = &self.slots[usize::from(index)];
        let piece = slot.piece.expect("queued slots carry a piece");
        Command {
            opcode: piece.opcode,
            flags: piece.flags,
            tag: Tag { slot: index, generation: slot.generation },
            offset: piece.offset,
            len: piece.len,
            damq_page: slot.damq_page,
        }
    }
}
