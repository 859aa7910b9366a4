//! The target's end of a channel: gathers requests and their data, has them executed, and answers.
//!
//! The host chooses slots and pages. The target checks that they exist and that no two requests in
//! progress share one. (MSST 2014, section II.B; PROTOCOL.md, "Slots, tags and placement".)

mod amounts;
mod check;
mod credit;
mod outcomes;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use tyche_wire::{
    Body, Command, Completion, Data, ENTRIES_MAX, Entries, Entry, EntryList, Event, Fate, Flags,
    Header, Kind, Opcode, Reject, Ring, Status, Tag, Times, ToTarget,
};

use crate::channel::damq::Owners;
use crate::channel::outgoing::Outgoing;
use crate::channel::received::Received;
use crate::channel::ring::Arrival;
use crate::channel::stages::KeptTimesBySlot;
use crate::channel::turns::Turns;
use crate::channel::{Channel, ChannelConfig};
use crate::rules::{Rule, Rules};
use crate::time::Instant;
pub use amounts::Amounts;
use check::Noted;
use credit::Credit;
pub(crate) use credit::CreditNews;
pub(crate) use outcomes::Outcomes;

/// Work for the owner of memory and disk, to be done in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The slot's pages are free: its data are not needed any more.
    Release {
        /// The slot.
        slot: u16,
    },
    /// The slot owns these pages of the `damq` from now on.
    Claim {
        /// The slot.
        slot: u16,
        /// First page.
        page: u32,
        /// Bytes.
        len: u32,
    },
    /// Data of a write have come.
    Place {
        /// The slot.
        slot: u16,
        /// First byte within the slot's data.
        offset: u32,
        /// Bytes.
        len: u32,
        /// First byte within the frame's data section.
        source: u32,
    },
    /// The host uses no more than so many pages from now on, until it is told another number: if it
    /// could use more before, the memory of these is not needed.
    Credit {
        /// Pages, from the first one on.
        pages: u32,
    },
    /// The request has all of its data: execute it, then call
    /// [`Listener::complete`](crate::Listener::complete). Only a successful read keeps its pages
    /// after that, until a `Release`; the pages of all others are free.
    Execute {
        /// The request, with the slot in its tag.
        command: Command,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never used, or answered.
    Done,
    /// Waiting for the command or for data.
    Gathering,
    /// At the disk.
    Executing,
    /// Handed out for execution, and not at the disk yet.
    Held,
    /// The data of a read are being sent.
    Sending,
    /// Its completion waits to be sent.
    Answering,
}

struct Slot {
    state: State,
    generation: u16,
    command: Option<Command>,
    page: u32,
    /// Bytes in the slot's pages; zero if it has none.
    held: u32,
    /// Bytes of a write that were received, or bytes of a read that were put into frames.
    moved: u32,
    /// The status of the last request that has ended.
    status: Status,
    /// The note of the frame that is being checked.
    noted: Noted,
}

impl Slot {
    /// Whether `generation` is newer than the slot's last use.
    fn is_followed_by<R: Rules>(&self, generation: u16) -> bool {
        let newer = generation.wrapping_sub(self.generation);
        let forgets = !R::keeps(Rule::SuppressDuplicates) || !R::keeps(Rule::RememberExecuted);
        (1..0x8000).contains(&newer) || forgets
    }
}

/// The target's end of one channel: its slots, the owners of its pages, and the transport. It holds
/// no data: it returns [`Action`]s, and its user moves the data and executes the requests.
pub(crate) struct TargetChannel<R> {
    pub(crate) channel: Channel<R>,
    slots: Box<[Slot]>,
    owners: Owners,
    credit: Credit,
    /// The bytes of each page that have arrived.
    received: Received,
    /// Number of the frame that is being checked, from 1 on.
    frame: u32,
    /// Entries of that frame.
    entries: ArrayVec<ToTarget, ENTRIES_MAX>,
    /// The host may write.
    writer: bool,
    /// The host may ask for block status.
    tells_status: bool,
    /// Reads whose data are being sent.
    sending: Turns,
    completions: VecDeque<(Tag, Status)>,
    /// The newest size that the host has not been told, and whether the export is gone.
    resized: Option<u64>,
    removed: bool,
    /// The export is removed: requests are not executed any more.
    is_ended: bool,
    executing: usize,
    /// Requests that are held back from the disk.
    held: usize,
    /// The amounts that the disk has done.
    amounts: Amounts,
    /// Stage times, on channels that have them.
    answers: Option<KeptTimesBySlot>,
    /// A Disconnect, or the answer to one, to be sent before the channel is removed.
    pub(crate) farewell: Option<Header>,
}

impl<R: Rules> TargetChannel<R> {
    pub(crate) fn new(
        config: ChannelConfig,
        (queue_size, damq_pages): (u16, u32),
        writer: bool,
        now: Instant,
    ) -> Self {
        let slot = |_| Slot {
            state: State::Done,
            generation: R::GENERATION_FIRST,
            status: Status::Success,
            noted: Noted::NONE,
            command: None,
            page: 0,
            held: 0,
            moved: 0,
        };
        let slots = usize::from(queue_size);
        Self {
            answers: config.stages.then(|| KeptTimesBySlot::new(queue_size)),
            channel: Channel::new(config, now),
            slots: (0..queue_size).map(slot).collect(),
            owners: Owners::new(damq_pages),
            credit: Credit::new(damq_pages),
            received: Received::new(damq_pages),
            frame: 0,
            entries: ArrayVec::new(),
            writer,
            tells_status: config.block_status,
            sending: Turns::new(slots),
            completions: VecDeque::with_capacity(slots),
            resized: None,
            removed: false,
            is_ended: false,
            executing: 0,
            held: 0,
            amounts: Amounts::default(),
            farewell: None,
        }
    }

    /// Requests at the disk.
    pub(crate) fn executing(&self) -> usize {
        self.executing
    }

    /// Takes a frame of this channel whose payload has been checked, whole or not at all. Calls
    /// `act` with each action.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        header: &Header,
        body: &Body<'_>,
        mut act: impl FnMut(Action),
    ) -> Result<(), Reject> {
        let arrival = self.channel.check(header, body)?;
        let repeated = arrival == Arrival::Duplicate && R::keeps(Rule::SuppressDuplicates);
        let ignored = repeated && (R::keeps(Rule::RememberExecuted) || !self.has_answered(body));
        let checked = if ignored { Ok(()) } else { self.check(header, body) };
        if R::keeps(Rule::TakeFramesWhole) {
            checked?;
        }
        self.channel.receive(now, header, body, arrival);
        if ignored {
            return Ok(());
        }
        match body {
            Body::Empty | Body::Control(_) => {}
            Body::Echo { echo, .. } => self.channel.echoes.answer(*echo),
            Body::Entries { data, .. } => self.take(data.is_none(), &mut act),
        }
        checked
    }

    /// Checks the payload of a frame.
    fn check(&mut self, header: &Header, body: &Body<'_>) -> Result<(), Reject> {
        match body {
            // A target awaits no answer to its farewell.
            Body::Empty if header.kind == Kind::Disconnect && header.flags == Flags::REPLY => {
                Err(Reject::Unexpected)
            }
            Body::Empty => Ok(()),
            Body::Control(_) if matches!(header.kind, Kind::Ack | Kind::Fence) => Ok(()),
            Body::Echo { echo, .. } if !header.flags.contains(Flags::REPLY) => {
                let fits = echo.reply_len as usize <= self.channel.capacity.frame_len();
                if fits { Ok(()) } else { Err(Reject::Range) }
            }
            Body::Control(_) | Body::Echo { .. } => Err(Reject::Unexpected),
            Body::Entries { entries, .. } => self.check_entries(entries),
        }
    }

    /// Checks all entries of a frame. A build without the rule takes the valid entries only.
    fn check_entries(&mut self, entries: &Entries<'_>) -> Result<(), Reject> {
        self.begin_check();
        self.entries.clear();
        let mut result = Ok(());
        for entry in entries.iter() {
            match self.check_entry(entry) {
                Ok(entry) => self.entries.push(entry),
                Err(reject) if R::keeps(Rule::TakeFramesWhole) => {
                    let checked = std::mem::take(&mut self.entries);
                    self.undo_check(checked.iter());
                    return Err(reject);
                }
                Err(reject) => result = Err(reject),
            }
        }
        result
    }

    /// Takes the checked entries, whose data are in their pages already, or are to be placed there.
    fn take(&mut self, are_placed: bool, act: &mut impl FnMut(Action)) {
        let mut source = 0;
        for index in 0..self.entries.len() {
            match self.entries[index] {
                ToTarget::Credit(pages) => self.take_credit(pages, act),
                ToTarget::Command(command) => self.take_command(command, act),
                ToTarget::Data(data) => {
                    self.take_data(&data, (!are_placed).then_some(source), act);
                    source += data.len;
                }
            }
        }
    }

    /// Whether a frame has all data of its requests, and none of their slots is busy. A build
    /// without the rule executes such a duplicate again.
    fn has_answered(&self, body: &Body<'_>) -> bool {
        let Body::Entries { entries, .. } = body else { return false };
        let is_done = |tag: Tag| {
            let slot = self.slots.get(usize::from(tag.slot));
            slot.is_some_and(|slot| slot.state == State::Done)
        };
        entries.iter().all(|entry| match entry {
            Entry::Command(command) => is_done(command.tag),
            Entry::Data(data) => data.len == data.total && is_done(data.tag),
            Entry::Completion(_) | Entry::Event(_) | Entry::Credit(_) => false,
        })
    }

    fn take_command(&mut self, command: Command, act: &mut impl FnMut(Action)) {
        let held = if command.opcode.has_data() { command.len } else { 0 };
        self.gather(command.tag, command.damq_page, held, act);
        self.slots[usize::from(command.tag.slot)].command = Some(command);
        self.execute_if_whole(command.tag.slot, act);
    }

    fn take_data(&mut self, data: &Data, source: Option<u32>, act: &mut impl FnMut(Action)) {
        self.gather(data.tag, data.damq_page, data.total, act);
        let Data { tag, offset, len, .. } = *data;
        let slot = &mut self.slots[usize::from(tag.slot)];
        slot.moved = (slot.moved + len).min(slot.held);
        if let Some(source) = source {
            act(Action::Place { slot: tag.slot, offset, len, source });
        }
        self.execute_if_whole(tag.slot, act);
    }

    /// Begins to gather a request, unless it is gathered already. The first entry to arrive,
    /// command or data, names the pages.
    fn gather(&mut self, tag: Tag, page: u32, held: u32, act: &mut impl FnMut(Action)) {
        let slot = &self.slots[usize::from(tag.slot)];
        if slot.state == State::Gathering && slot.generation == tag.generation {
            return;
        }
        self.release(tag.slot, act);
        if held > 0 {
            self.claim(tag.slot, page, held, act);
        }
        let slot = &mut self.slots[usize::from(tag.slot)];
        slot.state = State::Gathering;
        slot.generation = tag.generation;
        (slot.command, slot.page, slot.held, slot.moved) = (None, page, held, 0);
    }

    /// Gives pages to a slot, also pages of answered requests: the host allocates pages again as
    /// soon as it has the answer.
    fn claim(&mut self, index: u16, page: u32, len: u32, act: &mut impl FnMut(Action)) {
        for page in Owners::run(page, len) {
            if let Some(owner) = self.owners.of(page) {
                self.release(owner, act);
            }
            self.owners.take(page, index);
        }
        self.credit.used(Owners::run(page, len).end);
        act(Action::Claim { slot: index, page, len });
    }

    /// Frees the pages that answered requests have, whose data the host has: those of none are
    /// needed by anybody, but they are kept until the next request, which mostly claims the same.
    pub(crate) fn rest(&mut self, mut act: impl FnMut(Action)) {
        if self.executing > 0 || !self.is_answered() {
            return;
        }
        for index in 0..self.slots.len() {
            if self.slots[index].state == State::Done {
                self.release(index as u16, &mut act);
            }
        }
        self.credit.rest();
    }

    fn release(&mut self, index: u16, act: &mut impl FnMut(Action)) {
        let slot = &mut self.slots[usize::from(index)];
        if slot.held > 0 {
            self.owners.give_back(slot.page, slot.held);
            slot.held = 0;
            act(Action::Release { slot: index });
        }
    }

    fn execute_if_whole(&mut self, index: u16, act: &mut impl FnMut(Action)) {
        let slot = &mut self.slots[usize::from(index)];
        let Some(command) = &slot.command else { return };
        if command.opcode == Opcode::Write && slot.moved < slot.held || self.is_ended {
            return;
        }
        let command = *command;
        slot.state = State::Executing;
        slot.moved = 0;
        self.executing += 1;
        if command.opcode.modifies() && !self.writer && R::keeps(Rule::EnforceReadOnly) {
            self.refuse(command.tag, act);
        } else {
            act(Action::Execute { command });
        }
    }

    /// Fails a modification on a read-only channel.
    fn refuse(&mut self, tag: Tag, act: &mut impl FnMut(Action)) {
        let held = self.slots[usize::from(tag.slot)].held;
        self.complete(tag, Status::ReadOnly);
        if held > 0 {
            act(Action::Release { slot: tag.slot });
        }
    }

    /// Notes the stage times of a request until `now`, right before it completes.
    pub(crate) fn note_times(&mut self, now: Instant, tag: Tag, times: Times) {
        if let Some(answers) = &mut self.answers {
            answers.put(tag.slot, now, times);
        }
    }

    /// Completes a request that the disk has executed. Returns whether it keeps its pages, because
    /// they hold data to be sent.
    pub(crate) fn complete(&mut self, tag: Tag, status: Status) -> bool {
        let slot = &mut self.slots[usize::from(tag.slot)];
        assert!(slot.state == State::Executing && slot.generation == tag.generation);
        self.executing -= 1;
        let opcode = slot.command.map(|command| command.opcode);
        self.amounts.add(slot.command.as_ref(), status);
        if opcode.is_some_and(Opcode::returns_data) && status == Status::Success {
            slot.state = State::Sending;
            self.sending.push(tag.slot, slot.held);
            return true;
        }
        slot.state = if R::keeps(Rule::HoldSlots) { State::Answering } else { State::Done };
        slot.status = status;
        if slot.held > 0 {
            self.owners.give_back(slot.page, slot.held);
            slot.held = 0;
        }
        self.completions.push_back((tag, status));
        false
    }

    /// Takes back a request that was handed out for execution: it is not executed.
    pub(crate) fn withdraw(&mut self, tag: Tag) {
        let slot = &mut self.slots[usize::from(tag.slot)];
        assert!(slot.state == State::Executing && slot.generation == tag.generation);
        slot.state = State::Gathering;
        self.executing -= 1;
    }

    /// Holds a request back that was handed out for execution, until it is [resumed](Self::resume).
    /// Unless it is, it is not executed.
    pub(crate) fn hold(&mut self, tag: Tag) {
        let slot = &mut self.slots[usize::from(tag.slot)];
        assert!(slot.state == State::Executing && slot.generation == tag.generation);
        slot.state = State::Held;
        self.executing -= 1;
        self.held += 1;
    }

    /// Hands out a request again that was held back; false if the export is removed.
    pub(crate) fn resume(&mut self, tag: Tag) -> bool {
        if self.is_ended {
            return false;
        }
        let slot = &mut self.slots[usize::from(tag.slot)];
        assert!(slot.state == State::Held && slot.generation == tag.generation);
        slot.state = State::Executing;
        self.executing += 1;
        self.held -= 1;
        true
    }

    /// The amount of what the disk has done on this channel.
    pub(crate) fn amounts(&self) -> Amounts {
        self.amounts
    }

    /// Whether the host has all the completions, and so has no reason to ask for outcomes.
    pub(crate) fn is_answered(&self) -> bool {
        let is_sent = self.completions.is_empty() && self.sending.is_empty();
        self.held == 0 && is_sent && self.channel.is_acked()
    }

    /// The outcomes of the requests, when none is at the disk any more.
    pub(crate) fn outcomes(&self) -> Outcomes {
        let fate = |slot: &Slot| match slot.state {
            State::Gathering | State::Held => Fate::NotExecuted,
            _ => Fate::Executed(slot.status),
        };
        Outcomes::new(self.slots.iter().map(|slot| (slot.generation, fate(slot))))
    }

    /// Queues an event of the export for the host.
    pub(crate) fn notify(&mut self, event: Event) {
        match event {
            Event::Resized(size) => self.resized = Some(size),
            Event::Removed => (self.removed, self.is_ended) = (true, true),
        }
    }

    /// Whether the host has acknowledged that the export is removed, and all before.
    pub(crate) fn has_told_end(&self) -> bool {
        self.is_ended && !self.removed && self.channel.is_acked()
    }

    /// Whether there is something for the host that belongs to no request.
    fn has_events(&self) -> bool {
        self.removed || self.resized.is_some() || self.credit.is_due()
    }

    fn next_event(&mut self) -> Option<Event> {
        let resized = self.resized.take().map(Event::Resized);
        resized.or_else(|| std::mem::take(&mut self.removed).then_some(Event::Removed))
    }

    /// Composes the next frame; false if there is none to send now.
    pub(crate) fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        let slots = &self.slots;
        let current = |tag: Tag| slots[usize::from(tag.slot)].generation == tag.generation;
        let wanted = |entry: &Entry| match entry {
            Entry::Data(Data { tag, .. }) => current(*tag) && slots[usize::from(tag.slot)].held > 0,
            Entry::Completion(Completion { tag, .. }) => current(*tag),
            Entry::Event(_) => true,
            Entry::Credit(_) => R::keeps(Rule::RepeatCredit),
            Entry::Command(_) => false,
        };
        let entries = out.content.begin_entries();
        let header = match self.channel.resend(now, entries, wanted) {
            Some(header) => header,
            None => match self.compose(now, entries) {
                Some((ring, data)) => self.channel.send(now, ring, entries, data),
                None => return self.channel.poll_upkeep(now, out),
            },
        };
        let page = |slot: u16| self.slots[usize::from(slot)].page;
        self.channel
            .address_entries(out, header, |data| (data.tag.slot.into(), 0, page(data.tag.slot)));
        true
    }

    /// Fills a new frame's entries: data of reads as far as they fit, then completions. Returns its
    /// ring and the bytes of its data.
    fn compose(&mut self, now: Instant, entries: &mut EntryList) -> Option<(Ring, usize)> {
        if self.is_held(now) {
            return None;
        }
        let mut data = 0;
        // Or they would wait for as long as there are reads.
        let has_events = self.has_events() && self.channel.may_send(now, Ring::Command);
        if !has_events && !self.sending.is_empty() && self.channel.may_send(now, Ring::Data) {
            while let Some(slot) = self.sending.next() {
                let Some(len) = self.compose_read(slot, entries, data) else { break };
                data += len as usize;
                if !self.channel.batching.shares() {
                    break;
                }
            }
        }
        let is_small = has_events || !self.completions.is_empty();
        if data == 0 && !(is_small && self.channel.may_send(now, Ring::Command)) {
            return None;
        }
        if has_events && let Some(pages) = self.credit.take_due() {
            self.owners.set_limit(self.credit.limit());
            entries.push(Entry::Credit(pages));
        }
        while self.channel.capacity.fits_entry(entries.len(), data) {
            let Some((tag, status)) = self.completions.pop_front() else { break };
            self.slots[usize::from(tag.slot)].state = State::Done;
            let answers = self.answers.as_mut();
            let times = answers.map_or(Times::ZERO, |answers| answers.take(tag.slot, now));
            entries.push(Entry::Completion(Completion { tag, status, times }));
            let depth = self.executing + self.sending.len() + self.completions.len() + 1;
            self.channel.batching.ended(now, depth);
            if !self.channel.batching.shares() {
                break;
            }
        }
        // Events are sent in one ring only, whose positions tell the host which event is newer.
        while data == 0 && self.channel.capacity.fits_entry(entries.len(), data) {
            let Some(event) = self.next_event() else { break };
            entries.push(Entry::Event(event));
        }
        Some((if data > 0 { Ring::Data } else { Ring::Command }, data))
    }

    /// Whether the next frame waits for more entries.
    fn is_held(&mut self, now: Instant) -> bool {
        let ready = self.sending.len() + self.completions.len();
        let urgent = self.sending.has_large() || self.has_events();
        self.channel.batching.holds(now, ready, self.executing, urgent)
    }

    /// Adds the next part of a read's data. The last part queues the completion, which goes into
    /// the same frame if there is room.
    fn compose_read(&mut self, index: u16, entries: &mut EntryList, data: usize) -> Option<u32> {
        let slot = &mut self.slots[usize::from(index)];
        let (others, left) = (!self.completions.is_empty(), slot.held - slot.moved);
        let len = self.channel.capacity.chunk_beside(others, entries.len(), data, left)?;
        let tag = Tag { slot: index, generation: slot.generation };
        let (offset, total) = (slot.moved, slot.held);
        entries.push(Entry::Data(Data { tag, offset, len, total, damq_page: 0 }));
        slot.moved += len;
        self.sending.served(slot.moved == total);
        if slot.moved == total {
            slot.state = if R::keeps(Rule::HoldSlots) { State::Answering } else { State::Done };
            slot.status = Status::Success;
            self.completions.push_back((tag, Status::Success));
        }
        Some(len)
    }
}
