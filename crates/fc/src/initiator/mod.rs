//! The initiator of FCP: commands become exchanges with targets (FCP-4).
//!
//! A *lane* belongs to one thread. It has XIDs of its own, so that frames find it, and shares
//! nothing with other lanes. Its targets are those that the user says are logged in.
//!
//! ```text
//!         room for       FCP_CMND        data, FCP_RSP
//! Waiting ───────► Ready ───────► Sent ────────────────► completed
//!  a read's data                   │ response before data
//!                                  ├──► Answered ─ 1 ms ► completed: data lost
//!                   REC_TOV: REC ──┤
//!                                  ▼ ABTS       BA_ACC               RRQ
//!                               Aborting ──────────────► Recovering ─────► free
//!                                  │ silence, 3 times      for R_A_TOV
//!                                  └──► Stuck: the login begins anew
//! ```
//!
//! A [`Completion`] says that the target is not at work with the command any more, and won't be:
//! the user may send it again, or another one in its place. So a command that was lost stays with
//! the lane for as long as the target could still execute it: until the target confirms that the
//! exchange is over, or its frame cannot be on the way any more (R_A_TOV). Only if the login ends
//! is this left open, and the lane takes no commands until the target has accepted another.
//!
//! The lane sends no command twice, and no data twice: few targets would notice. What was lost is
//! reported, and sent again by the user as a new command.
//!
//! One input ([`submit`](Lane::submit), [`handle_frame`](Lane::handle_frame),
//! [`logged_in`](Lane::logged_in), [`logged_out`](Lane::logged_out),
//! [`handle_timeout`](Lane::handle_timeout)), then drain the outputs:
//! [`poll_event`](Lane::poll_event) until `None`, and [`poll_transmit`](Lane::poll_transmit) until
//! it is false, or the link takes no more. [`poll_timeout`](Lane::poll_timeout) says how long to
//! wait for the next input.

mod budget;
mod command;
mod counters;
mod exchanges;
mod nexus;
mod ready;
mod receive;
mod recovery;
mod task;
mod transmit;

use std::collections::VecDeque;
use std::time::Duration;

use tyche_fc_wire::Xid;
use tyche_time::Instant;

pub use command::{Command, CommandAnswer, Completion, Data, Event, Failure, SENSE_LEN_MAX, Sense};
pub use command::{Nexus, Placement, Refused, Taken, Unit};
pub use counters::{Ignored, Repairs};

use crate::exchange::Xids;
use crate::{AllRules, Rule, Rules};
use budget::Budget;
use exchanges::Exchanges;
use nexus::{LogicalUnit, Target};
use ready::Ready;
use task::{Phase, Task};

/// XIDs that commands leave free for questions about them.
const RESERVE: usize = 16;

/// Frames of data of writes at a time, for any target: half of those that Linux queues for a
/// receiver (`net.core.netdev_max_backlog`), for its target asks for all data at once.
pub const WRITE_FRAMES: u32 = 512;

/// The configuration of a lane, which does not change.
#[derive(Clone, Copy, Debug)]
pub struct LaneConfig {
    /// The numbers of its exchanges, none of which is one of the logins' or of another lane. Those
    /// that end abnormally are out of use for R_A_TOV: some thousands are good where frames are
    /// lost.
    pub xids: Xids,
    /// A random number, from which the first XID follows: frames of an earlier process are about
    /// others.
    pub seed: u64,
    /// The most commands at a time.
    pub depth: usize,
    /// The most targets.
    pub targets: usize,
    /// The most logical units of all targets.
    pub units: usize,
    /// The most frames that reads may cause at a time: slots of the ring that the frames arrive in,
    /// less some for other frames.
    pub read_frames: u32,
    /// The most frames of data of writes at a time: less than a target's queue holds, for it may
    /// ask for all data at once.
    pub write_frames: u32,
    /// The time after which a command is aborted: 30 s by default (ULP_TOV).
    pub command_timeout: Duration,
}

/// The state machine of one lane of an FCP initiator, without memory of data or I/O. It sends a
/// command once, and completes it only when the target is not at work with it any more.
pub struct Lane<R = AllRules> {
    rules: R,
    config: LaneConfig,
    targets: Vec<Target>,
    units: Vec<LogicalUnit>,
    exchanges: Exchanges,
    /// Commands that have not been completed.
    commands: usize,
    reads: Budget,
    writes: Budget,
    /// Exchanges with a frame without data to send: they go first.
    urgent: Ready,
    /// Exchanges with data to send.
    bursts: Ready,
    events: VecDeque<Event>,
    ignored: Ignored,
    repairs: Repairs,
}

impl Lane {
    /// A lane without targets.
    ///
    /// # Panics
    /// If there are not enough XIDs for the commands, and some more.
    pub fn new(config: LaneConfig) -> Self {
        Self::with_rules(config, AllRules)
    }
}

impl<R: Rules> Lane<R> {
    /// The same with other rules.
    ///
    /// # Panics
    /// As [`Lane::new`].
    pub fn with_rules(config: LaneConfig, rules: R) -> Self {
        // As many again may have been completed, and are still to be aborted.
        let tasks = u16::try_from(2 * config.depth).expect("commands have numbers of 16 bits");
        let exchanges = Exchanges::new(config.xids, tasks, config.seed);
        let capacity = exchanges.capacity();
        assert!(config.depth + RESERVE <= capacity, "{} of {capacity} XIDs", config.depth);
        Self {
            rules,
            targets: Vec::with_capacity(config.targets),
            units: Vec::with_capacity(config.units),
            exchanges,
            commands: 0,
            reads: Budget::new(config.read_frames, config.depth),
            writes: Budget::new(config.write_frames, config.depth),
            urgent: Ready::new(capacity),
            bursts: Ready::new(capacity),
            events: VecDeque::with_capacity(config.depth + config.targets),
            ignored: Ignored::default(),
            repairs: Repairs::default(),
            config,
        }
    }

    /// The rules that it keeps.
    pub fn rules(&self) -> R {
        self.rules
    }

    /// Takes a command; returns the number that names it until its completion, which is less than
    /// twice the [depth](LaneConfig::depth).
    ///
    /// # Errors
    /// If the target is not logged in, or there is no room.
    ///
    /// # Panics
    /// If the logical unit is not one of the lane's.
    pub fn submit(&mut self, command: &Command) -> Result<u16, Refused> {
        let nexus = self.units[usize::from(command.unit.0)].nexus;
        let target = &self.targets[usize::from(nexus)];
        if !target.is_logged_in {
            return Err(Refused::LoggedOut);
        }
        if self.commands == self.config.depth || !self.exchanges.has_number() {
            return Err(Refused::Full);
        }
        if self.exchanges.free() <= RESERVE {
            self.repairs.no_xid += 1;
            return Err(Refused::Full);
        }
        let mut task = Task::new(command, nexus);
        task.frames = frames(command.data, target.login.payload_max as u32);
        let has_room = self.budget(command.data).is_none_or(|it| it.enter(task.frames));
        if has_room {
            task.phase = Phase::Ready;
        }
        let xid = self.exchanges.open(task).expect("a number and XIDs are free");
        self.commands += 1;
        match self.budget(command.data).filter(|_| !has_room) {
            Some(budget) => budget.waiting.push_back(xid),
            None => self.push_urgent(xid),
        }
        Ok(self.exchanges.name(xid).expect("it is open"))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.exchanges.poll_timeout()
    }

    /// The number of commands that have not been completed.
    pub fn commands(&self) -> usize {
        self.commands
    }

    /// Frames that reads may cause at a time, and writes, as things are.
    pub fn frames(&self) -> [u32; 2] {
        [self.reads.now(), self.writes.now()]
    }

    /// Counters of frames without effect, since the start.
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Counters of what has gone wrong, since the start.
    pub fn repairs(&self) -> Repairs {
        self.repairs
    }

    /// The budget that counts for a command with such data.
    fn budget(&mut self, data: Data) -> Option<&mut Budget> {
        match data {
            Data::None | Data::Out(0) => None,
            Data::In(_) => Some(&mut self.reads),
            Data::Out(_) => Some(&mut self.writes),
        }
    }

    /// Has commands sent for which there is room.
    fn admit(&mut self) {
        loop {
            let exchanges = &self.exchanges;
            let frames_of = |xid| exchanges.task(xid).map_or(0, |it| it.frames);
            let next = self.reads.admit(frames_of).or_else(|| self.writes.admit(frames_of));
            let Some(xid) = next else { break };
            self.exchanges.task_mut(xid).expect("a waiting command is open").phase = Phase::Ready;
            self.push_urgent(xid);
        }
    }

    /// Returns the room that a command with such data had.
    fn give_back(&mut self, data: Data, frames: u32) {
        if let Some(budget) = self.budget(data) {
            budget.give_back(frames);
            self.admit();
        }
    }

    /// Reports the end of a command, whose exchange may go on.
    fn complete(&mut self, xid: Xid, end: Result<CommandAnswer, Failure>) {
        let Some(exchange) = self.exchanges.name(xid) else { return };
        let Some(task) = self.exchanges.task_mut(xid).filter(|it| !it.is_completed) else { return };
        task.is_completed = true;
        let is_answered = end.is_ok();
        let attention_lost = !is_answered && task.is_first && task.hears_attentions;
        let attention_lost = attention_lost && self.rules.keeps(Rule::NoteLosses);
        let (unit, hears_attentions) = (task.unit, task.hears_attentions);
        let (data, room) = (task.data, task.leave());
        if is_answered && hears_attentions {
            self.units[usize::from(unit)].has_answered = true;
        }
        self.commands -= 1;
        let completion = Completion { exchange, end, attention_lost };
        self.events.push_back(Event::Completed(completion));
        self.give_back(data, room);
    }

    fn push_urgent(&mut self, xid: Xid) {
        self.urgent.push(xid, self.exchanges.index(xid));
    }
}

/// Frames that a command has on their way at a time.
fn frames(data: Data, payload_max: u32) -> u32 {
    match data {
        Data::None => 0,
        // And the response.
        Data::In(len) => len.div_ceil(payload_max) + 1,
        Data::Out(len) => len.div_ceil(payload_max),
    }
}

impl<R> std::fmt::Debug for Lane<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phases = self.exchanges.xids().filter_map(|xid| {
            let phase = self.exchanges.task(xid).map(|it| format!("{:?}", it.phase));
            let service = self.exchanges.service(xid).map(|it| format!("{it:?}"));
            Some((xid, phase.or(service)?))
        });
        f.debug_map().entries(phases).finish()
    }
}
