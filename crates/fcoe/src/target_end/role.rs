//! The role of a target in one thread of a port: joins exchanges, device server and stores, without
//! the loop that drives it.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::{Arena, Completion, Errno, Operation, Request};
use tyche_engine::{Composed, FrameSink, Frames};
use tyche_fc::port;
use tyche_fc::target_end::{self as target, Action, Command, Data, Ignored, LaneConfig};
use tyche_fc::wire::{Frame, Mac, PortId, Wwn};
use tyche_fc::{AllRules, Outgoing, Rule, Rules};
use tyche_link::Mac as LinkMac;
use tyche_scsi::vpd::TargetPort;
use tyche_scsi::{
    ANSWER_LEN_MAX, Direction, Failure, Lun, NexusId, Reply, Status, Step, Task, ToldAttention,
};
use tyche_time::{Instant, earliest};

use super::grants::Grants;
use super::mail::SentOn;
use super::management::{self, Management};
use super::memory::Memory;
use super::nexus::{EndedLogin, Lost, Nexus};
use super::open_units::OpenUnits;
use super::seat::Seat;
use super::slot::{AtStake, List, Slot, Work};
use super::stakes::KnownLosses;
use super::units::Units;
use crate::losses::Flushed;
use crate::role::Role;

/// The most commands at a time, those that are remembered included.
const EXCHANGES: u16 = 2048;
/// The most bytes of a write that are asked for at once.
const BURST_LEN: u32 = 64 << 10;
/// The time in which an initiator confirms that it was told of an attention, if nothing is lost.
/// Its other commands are put off meanwhile.
const CONFIRMED_AFTER: Duration = Duration::from_millis(100);

/// A target's part of one thread of a port: the exchanges of its lane, the memory of their data and
/// its queues at the stores. [`Units`] with the device server are shared with all other threads.
/// The first thread of a port has its logins.
pub struct TargetRole<R = AllRules> {
    pub(super) lane: target::Lane<R>,
    pub(super) units: Arc<Units>,
    open: OpenUnits,
    pub(super) memory: Memory,
    /// The name and number of the port.
    pub(super) port: TargetPort,
    /// The port's own address, once it has one.
    pub(super) own: Option<(PortId, Mac)>,
    pub(super) nexuses: Vec<Nexus>,
    grants: Grants,
    /// By exchange.
    slots: Box<[Slot]>,
    /// Unit attentions that are to be confirmed, with the exchange whose response told of each, and
    /// when.
    told: Vec<(u16, ToldAttention, Instant)>,
    /// The same of flushes that have failed because writes were lost.
    lost: Vec<(u16, Lost)>,
    done: Vec<Completion>,
    /// Logins that have ended, with which other threads may be at work.
    pub(super) ended_logins: Vec<EndedLogin>,
    pub(super) drained: VecDeque<Wwn>,
    /// Frames that have come to other threads, for the logins.
    pub(super) sent_on: VecDeque<SentOn>,
    frame: Outgoing,
    /// Room for an answer of the device server.
    answer: Box<[u8; ANSWER_LEN_MAX]>,
    /// Commands executed.
    commands: u64,
    /// Dropped after the disks: others wait for what is with them.
    pub(super) management: Management,
}

impl TargetRole {
    /// A target without initiators. `frames_max`: those that the receive ring holds.
    pub(super) fn new(seat: Seat, arena: Arena, frames_max: u32) -> Self {
        let seed = getrandom::u64().expect("the kernel's random numbers are always there");
        let config = LaneConfig { exchanges: EXCHANGES, seed, burst_len: BURST_LEN, frames_max };
        Self::with_rules(seat, arena, config, AllRules)
    }
}

impl<R: Rules> TargetRole<R> {
    /// A target without initiators, with other rules than those of the product.
    pub fn with_rules(seat: Seat, arena: Arena, config: LaneConfig, rules: R) -> Self {
        let lane = target::Lane::with_rules(config, rules);
        let (units, port) = (Arc::clone(&seat.units), seat.port);
        // Half of what the ring holds is asked for.
        let ring = 2 * u64::from(config.frames_max);
        Self {
            open: OpenUnits::default(),
            slots: (0..lane.capacity()).map(|_| Slot::default()).collect(),
            told: Vec::new(),
            lost: Vec::new(),
            lane,
            management: Management::new(seat, ring),
            units,
            memory: Memory::new(arena),
            port,
            own: None,
            nexuses: Vec::new(),
            grants: Grants::default(),
            done: Vec::new(),
            ended_logins: Vec::new(),
            drained: VecDeque::new(),
            sent_on: VecDeque::new(),
            frame: Outgoing::new(),
            answer: Box::new([0; ANSWER_LEN_MAX]),
            commands: 0,
        }
    }

    /// Sets what has the thread have its turn when another one wants something.
    pub fn wake_with(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.management.wake_with(wake);
    }

    /// The initiators that are logged in.
    pub fn initiators(&self) -> impl Iterator<Item = Wwn> {
        self.nexuses.iter().map(|nexus| nexus.wwpn)
    }

    /// Counters of what was ignored, since the start.
    pub fn ignored(&self) -> Ignored {
        self.lane.ignored()
    }

    /// Commands executed, since the start.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// The descriptors of the stores to wait for.
    pub(super) fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.open.wait_fds()
    }

    /// Takes what other threads have to say. To be called in each turn before frames are received;
    /// false if there is nothing new.
    pub fn listen(&mut self, now: Instant) -> bool {
        // In this order: a login comes before its end.
        let has_news = self.management.listen();
        self.read_mail(now) | has_news
    }

    /// The port's own address, once it has one.
    pub(super) fn own_mac(&self) -> Option<Mac> {
        self.own.map(|(_, mac)| mac)
    }

    /// The next frame that has come to another thread, for the logins of the port.
    pub fn poll_sent_on(&mut self) -> Option<SentOn> {
        self.sent_on.pop_front()
    }

    /// Tells others that no frame of this thread waits for room in the interface. False if nobody
    /// waits for that.
    pub fn confirm_left(&mut self) -> bool {
        self.management.confirm_left()
    }

    /// Advances the operations at the stores; false if there was nothing to do.
    pub fn work(&mut self, now: Instant) -> bool {
        self.take_turns(now);
        self.open.work(now, &self.units, &mut self.done);
        let worked = !self.done.is_empty();
        let mut done = std::mem::take(&mut self.done);
        for Completion { token, result, buffer } in done.drain(..) {
            let exchange = token as u16;
            self.slot(exchange).put(buffer);
            self.finish(now, exchange, result);
        }
        self.done = done;
        self.act(now, &[]);
        let Self { management, lane, open, nexuses, .. } = self;
        let has_managed = management.attend(now, lane, |number| {
            open.close(number);
            nexuses.iter_mut().for_each(|nexus| nexus.forget_unit(number));
        });
        if has_managed {
            self.act(now, &[]);
        }
        self.settle_logins() | has_managed | worked
    }

    fn slot(&mut self, exchange: u16) -> &mut Slot {
        &mut self.slots[usize::from(exchange)]
    }

    pub(super) fn nexus(&self, initiator: Wwn) -> Option<&Nexus> {
        self.nexuses.iter().find(|nexus| nexus.wwpn == initiator)
    }

    /// Does all that the exchanges ask for. `payload`: that of the frame that this comes of, if
    /// any.
    fn act(&mut self, now: Instant, payload: &[u8]) {
        while let Some(action) = self.lane.poll_action() {
            match action {
                Action::Command(command) => self.begin(now, &command),
                Action::Place { exchange, offset, len } => {
                    self.slot(exchange).place(offset, &payload[..len as usize]);
                }
                Action::Execute { exchange } => {
                    let (unit, len) = self.slot(exchange).cost();
                    if !self.open.get_mut(unit).waits(now, exchange, len) {
                        self.execute(now, exchange);
                    }
                }
                Action::Release { exchange } => self.release(exchange),
                Action::Confirmed { exchange } => self.confirm(exchange),
                Action::Manage { exchange, initiator, lun, function } => {
                    let by = self.nexus(initiator).map(|nexus| (initiator, nexus.id));
                    let task = management::Task { exchange, by, lun, function };
                    self.management.manage(now, &mut self.lane, task);
                }
                Action::Unmanage { exchange } => self.management.give_up(exchange),
                Action::Drained(wwpn) => self.leave(wwpn),
            }
        }
    }

    /// Executes the commands whose turn at their limit has come. Those that are to end meanwhile
    /// do, and are not executed.
    fn take_turns(&mut self, now: Instant) {
        while let Some(exchange) = self.open.take_ending(|it| self.lane.is_ending(it)) {
            self.complete(now, exchange, &Reply::GOOD);
        }
        while let Some(exchange) = self.open.next(now) {
            self.execute(now, exchange);
        }
    }

    /// Gives a command to the device server, and takes memory for its data.
    fn begin(&mut self, now: Instant, command: &Command) {
        let &Command { exchange, initiator, lun, cdb, .. } = command;
        // A former command in this exchange can't be confirmed any more.
        self.told.retain(|told| told.0 != exchange);
        self.lost.retain(|lost| lost.0 != exchange);
        let Some(&Nexus { id: nexus, .. }) = self.nexus(initiator) else {
            return self.complete(now, exchange, &Reply { status: Status::Busy, ..Reply::GOOD });
        };
        let step = self.step(now, (nexus, Lun(lun)), &cdb);
        let (direction, len) = step.data();
        if !self.claim(initiator, exchange, step.memory_len()) {
            let full = Reply { status: Status::TaskSetFull, ..Reply::GOOD };
            return self.complete(now, exchange, &full);
        }
        let slot = &mut self.slots[usize::from(exchange)];
        slot.initiator = Some(initiator);
        slot.work = match step {
            Step::Answer(reply) => {
                slot.place_answer(&self.answer[..reply.len]);
                return self.complete(now, exchange, &reply);
            }
            Step::Perform(task) => Work::Task(task),
            Step::PerformStable { task, is_sent } => {
                (slot.then, slot.is_kept) = (Some(task), !is_sent);
                let operation = Operation::Flush;
                Work::Task(Task { operation, offset: 0, len: 0, ..task })
            }
            Step::Collect { .. } => Work::List(List { nexus, lun, cdb }),
        };
        let data = match direction {
            Direction::None => Data::None,
            Direction::In => Data::In(len),
            Direction::Out => Data::Out(len),
        };
        self.lane.accept(now, exchange, data);
    }

    /// Takes memory for the data of a command; false if there is none.
    fn claim(&mut self, initiator: Wwn, exchange: u16, len: u32) -> bool {
        if len > 0 {
            let Some((extent, claim)) = self.memory.claim(initiator, len) else { return false };
            let slot = self.slot(exchange);
            slot.put(Some(extent));
            slot.claim = Some(claim);
        }
        true
    }

    /// Frees what a command that is over had.
    fn release(&mut self, exchange: u16) {
        let Slot { claim, .. } = std::mem::take(self.slot(exchange));
        if let Some(claim) = claim {
            self.memory.give_back(claim);
        }
    }

    /// The first step of a command.
    fn step(&mut self, now: Instant, at: (NexusId, Lun), cdb: &[u8]) -> Step {
        let (nexus, lun) = at;
        let changes = self.units.changes();
        let granted = self.grants.begin(changes, at, cdb);
        // An initiator knows of a loss before it writes on.
        if granted.is_none_or(|task| task.operation.modifies())
            && let Some(number) = lun.number().and_then(|number| u8::try_from(number).ok())
        {
            self.open.open(number, &self.units);
        }
        if let Some(task) = granted.filter(|_| self.units.changes() == changes) {
            return Step::Perform(task);
        }
        let mut server = self.units.server();
        let mut step = server.begin(nexus, lun, cdb, &mut *self.answer);
        if let Step::Answer(Reply { status: Status::CheckCondition, told: Some(told), .. }) = step
            && self.told.iter().any(|(_, it, at)| *it == told && now < *at + CONFIRMED_AFTER)
        {
            // One command is enough to tell, and others are on the way. They come again.
            server.untell(&told);
            step = Step::Answer(Reply { status: Status::Busy, ..Reply::GOOD });
        }
        self.grants.keep(server.changes(), at, server.grant(nexus, lun));
        step
    }

    /// Executes a command, all data of which are there.
    fn execute(&mut self, now: Instant, exchange: u16) {
        self.commands += 1;
        let slot = &mut self.slots[usize::from(exchange)];
        match slot.work {
            Work::Task(task) => {
                slot.running = 1;
                self.submit(now, exchange, &task);
            }
            Work::List(list) => self.execute_list(now, exchange, &list),
            Work::None => unreachable!("it was accepted with its work"),
        }
    }

    fn execute_list(&mut self, now: Instant, exchange: u16, list: &List) {
        let parameters = self.slot(exchange).take();
        let tasks: Result<Vec<Task>, Reply> = {
            let mut server = self.units.server();
            let bytes = parameters.as_deref().unwrap_or_default();
            let tasks = server.parameters(list.nexus, Lun(list.lun), &list.cdb, bytes);
            tasks.map(Iterator::collect)
        };
        let tasks = match tasks {
            Ok(tasks) if tasks.is_empty() => return self.complete(now, exchange, &Reply::GOOD),
            Ok(tasks) => tasks,
            Err(reply) => return self.complete(now, exchange, &reply),
        };
        let slot = self.slot(exchange);
        slot.running = tasks.len() as u32;
        // At most as many as an UNMAP has ranges.
        for task in tasks {
            self.slot(exchange).work = Work::Task(task);
            self.submit(now, exchange, &task);
        }
    }

    /// Submits an operation to its store, or ends an invalid one at once.
    fn submit(&mut self, now: Instant, exchange: u16, task: &Task) {
        let &Task { unit, operation, offset, len } = task;
        let open = self.open.get_mut(unit);
        let slot = &mut self.slots[usize::from(exchange)];
        let buffer = if operation.has_data() { slot.take() } else { None };
        let request = Request { operation, offset, len, buffer };
        if let Some(kind) = slot.stake_of(open.disk.store())
            && let Some(nexus) = self.nexuses.iter_mut().find(|it| Some(it.wwpn) == slot.initiator)
        {
            let known = KnownLosses::of(open.disk.exported());
            slot.stake(kind, nexus.stake(&open.unit, known), known);
        }
        let disk = &mut open.disk;
        if let Err(errno) = disk.check(&request, self.memory.arena()) {
            slot.put(request.buffer);
            return self.finish(now, exchange, Err(errno));
        }
        if let Some(loan) = disk.lend(&request) {
            slot.lend(loan);
            return self.finish(now, exchange, Ok(()));
        }
        disk.submit(exchange.into(), request);
    }

    /// Takes the end of an operation, and ends the command with its last one.
    fn finish(&mut self, now: Instant, exchange: u16, result: Result<(), Errno>) {
        let Work::Task(Task { operation, len, unit, .. }) = self.slot(exchange).work else {
            unreachable!("an operation has a task")
        };
        let result =
            result.map_err(|errno| Reply::of(operation, Err(Failure::from_errno(errno.0))));
        let result = self.settle(exchange, unit, result);
        let slot = self.slot(exchange);
        if let Err(reply) = result {
            slot.failure.get_or_insert(reply);
        }
        slot.running -= 1;
        if slot.running > 0 {
            return;
        }
        if let Some(read) = slot.then.take().filter(|_| slot.failure.is_none()) {
            (slot.work, slot.running) = (Work::Task(read), 1);
            return self.submit(now, exchange, &read);
        }
        let is_sent = operation == Operation::Read && !slot.is_kept;
        let len = if is_sent { len as usize } else { 0 };
        let reply = slot.failure.unwrap_or(Reply { len, ..Reply::GOOD });
        self.complete(now, exchange, &reply);
    }

    /// Takes what an operation has done to what is at stake. A flush fails if writes are lost that
    /// it covers, whatever the disk says, and not otherwise if it covers none.
    fn settle(&mut self, exchange: u16, unit: u8, result: Result<(), Reply>) -> Result<(), Reply> {
        let open = self.open.get_mut(unit);
        let slot = &self.slots[usize::from(exchange)];
        let Some(kind) = slot.stake_of(open.disk.store()) else { return result };
        let Some(stake) = slot.stake.clone() else { return result };
        let (since, initiator) = (slot.since, slot.initiator);
        let known = KnownLosses::of(open.disk.exported());
        open.notice(&self.units);
        if kind == AtStake::Write {
            if result.is_ok() {
                stake.written(self.management.peer.place().0, known, since);
            }
            return result;
        }
        let rules = self.lane.rules();
        let mut flushed = stake.flushed(known, (&since, result.is_ok()));
        if flushed == Flushed::Lost && result.is_ok() && !rules.keeps(Rule::CompareLosses) {
            flushed = Flushed::Durable;
        }
        match flushed {
            Flushed::Durable if !rules.keeps(Rule::SpareOthers) => result,
            Flushed::Durable => Ok(()),
            Flushed::Failed => result,
            Flushed::Lost => {
                let generation = self.units.server().unit(unit).and_then(|it| it.generation);
                if !self.lane.is_ending(exchange) {
                    let confirms =
                        initiator.and_then(|it| self.nexus(it)).is_some_and(|it| it.confirms);
                    stake.tell(&since, confirms);
                    self.lost.push((exchange, Lost { stake, since }));
                }
                Err(Reply::lost(generation))
            }
        }
    }

    fn complete(&mut self, now: Instant, exchange: u16, reply: &Reply) {
        let sense = reply.sense.map(|sense| sense.emit());
        let is_lost = self.lost.iter().any(|lost| lost.0 == exchange);
        let completion = target::Completion {
            status: reply.status as u8,
            sense: sense.as_deref().unwrap_or_default(),
            len: reply.len as u32,
            confirm: reply.told.is_some() || is_lost,
        };
        self.told.extend(reply.told.map(|told| (exchange, told, now)));
        self.lane.complete(now, exchange, &completion);
    }

    /// The initiator has got the response to a command that told of an attention, or of a loss.
    fn confirm(&mut self, exchange: u16) {
        if let Some(index) = self.told.iter().position(|told| told.0 == exchange) {
            let (_, told, _) = self.told.swap_remove(index);
            self.units.server().confirm(&told);
        }
        if let Some(index) = self.lost.iter().position(|lost| lost.0 == exchange) {
            let (_, Lost { stake, since }) = self.lost.swap_remove(index);
            stake.confirm(&since);
        }
    }
}

impl<R: Rules> Role for TargetRole<R> {
    type Rules = R;

    fn rules(&self) -> R {
        self.lane.rules()
    }

    fn handle_address(&mut self, address: (PortId, Mac)) {
        self.take_address(address);
    }

    fn handle_login(&mut self, now: Instant, event: port::Event) {
        match event {
            port::Event::LoggedIn(login) => self.admit(&login),
            port::Event::LoggedOut(wwpn, _) => self.let_go(wwpn),
            port::Event::Failed(wwpn, request, failure) => {
                tracing::debug!(%wwpn, ?request, ?failure, "login failed");
            }
        }
        self.act(now, &[]);
    }

    fn note_frame(&mut self) {
        self.management.note_frame();
    }

    fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) {
        if self.sends_on(frame) {
            return;
        }
        if !self.lane.handle_frame(now, frame) {
            tracing::trace!(header = ?frame.header, "a frame that is not for a target");
        }
        self.act(now, frame.payload);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
        self.act(now, &[]);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.lane.poll_timeout(), self.open.next_at())
    }

    fn poll_drained(&mut self) -> Option<Wwn> {
        self.drained.pop_front()
    }

    fn frames(&mut self) -> impl Frames<'_> {
        let Self { lane, slots, frame, .. } = self;
        Composing { lane, slots, frame }
    }
}

/// The frames of the exchanges, with data where they lie.
struct Composing<'d, R> {
    lane: &'d mut target::Lane<R>,
    slots: &'d [Slot],
    frame: &'d mut Outgoing,
}

impl<'d, R: Rules> Frames<'d> for Composing<'d, R> {
    fn compose(&mut self, now: Instant) -> Option<Composed> {
        self.lane.poll_transmit(now, self.frame).then(Composed::default)
    }

    fn write(&mut self, _: LinkMac, sink: impl FrameSink<'d>) {
        let slots: &'d [Slot] = self.slots;
        let data = self.frame.part().map(|part| slots[usize::from(part.exchange)].part(&part));
        self.frame.write(data.as_slice(), |front, data, tail| sink.gather(front, data, tail));
    }
}
