//! Task management: what concerns logical units, and the other threads.
//!
//! A function is done when the commands that it is about have ended on all threads: those of its
//! own lane have when it is offered here. Until then it is not answered; the lane gives it a time.
//!
//! An order of another thread is about commands that came before it, and these may still wait in
//! the receive ring. So it is carried out when all has been handled that was there when it was
//! taken: the ring has been seen empty, or as many frames have come as it holds.

use std::sync::Arc;

use tyche_engine::BATCH;
use tyche_fc::target_end::{Function, Lane};
use tyche_fc::wire::Wwn;
use tyche_fc::wire::fcp::ResponseCode;
use tyche_fc::{Rule, Rules};
use tyche_scsi::vpd::TargetPort;
use tyche_scsi::{Lun, NexusId};
use tyche_time::Instant;

use super::peers::{Answers, Asker, Order, Peer, Tasks};
use super::seat::Seat;
use super::units::Units;

/// The task management of one thread, and what others have asked it for.
pub(super) struct Management {
    /// Functions that wait for the other threads.
    waiting: Vec<Waiting>,
    /// Orders of other threads that frames may come before, with the frames that had come.
    taken: Vec<(Order, u64)>,
    /// Orders of other threads, with the commands that are still to end.
    orders: Vec<(Order, Vec<u16>)>,
    /// Ends of logins that others wait for: of which commands are left, and of which frames may
    /// wait for room in the interface.
    leaving: Vec<(Wwn, Order)>,
    left: Vec<Order>,
    /// Whether there was something new since the last turn.
    has_news: bool,
    /// Frames that have come, in all and since the last turn, and those that the ring holds.
    frames: u64,
    fresh: usize,
    ring: u64,
    pub(super) peer: Peer,
    units: Arc<Units>,
    port: TargetPort,
}

/// A task management function.
pub(super) struct Task {
    pub(super) exchange: u16,
    /// The initiator that asks for it, if it is logged in.
    pub(super) by: Option<(Wwn, NexusId)>,
    pub(super) lun: [u8; 8],
    pub(super) function: Function,
}

/// A function that waits for the other threads.
struct Waiting {
    task: Task,
    /// The logical units that it is about.
    units: Vec<u8>,
    answers: Arc<Answers>,
}

impl Management {
    /// The state of a thread whose receive ring holds so many frames.
    pub(super) fn new(seat: Seat, ring: u64) -> Self {
        let Seat { units, port, peer } = seat;
        let (waiting, taken, orders, leaving, left) = Default::default();
        let (has_news, frames, fresh) = Default::default();
        Self {
            waiting,
            taken,
            orders,
            leaving,
            left,
            has_news,
            frames,
            fresh,
            ring,
            peer,
            units,
            port,
        }
    }

    /// Sets what has the thread call [`listen`](Self::listen) and [`attend`](Self::attend).
    pub(super) fn wake_with(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.peer.wake_with(wake);
    }

    /// Does what is left of a function whose commands have ended in the lane.
    pub(super) fn manage<R: Rules>(&mut self, now: Instant, lane: &mut Lane<R>, task: Task) {
        let wanted = self.units.numbers().into_iter().filter(|number| {
            task.function == Function::TargetReset
                || Lun(task.lun).number() == Some(u16::from(*number))
        });
        let units: Vec<_> = wanted.collect();
        if units.is_empty() {
            return lane.managed(now, task.exchange, ResponseCode::LunInvalid);
        }
        if !lane.rules().keeps(Rule::EndAllTasks) {
            return self.end(now, lane, &task, &units);
        }
        let asker = Asker { port: self.port.number, initiator: task.by.map(|it| it.0) };
        let order = Tasks::Function(task.lun, task.function, asker);
        let answers = match task.function {
            // That is about the commands which the initiator has sent to this port.
            Function::AbortTaskSet => self.peer.order_port(order),
            _ => self.peer.order(order),
        };
        self.waiting.push(Waiting { task, units, answers });
        self.end_answered(now, lane);
    }

    /// Ends the functions for which no other thread is at work any more.
    fn end_answered<R: Rules>(&mut self, now: Instant, lane: &mut Lane<R>) -> bool {
        let answered: Vec<_> = self.waiting.extract_if(.., |it| it.answers.left() == 0).collect();
        answered.iter().for_each(|it| self.end(now, lane, &it.task, &it.units));
        !answered.is_empty()
    }

    fn end<R: Rules>(&self, now: Instant, lane: &mut Lane<R>, task: &Task, units: &[u8]) {
        if let Some((_, nexus)) = task.by
            && matches!(task.function, Function::LuReset | Function::TargetReset)
        {
            let mut server = self.units.server();
            units.iter().for_each(|number| server.reset(*number, nexus));
        }
        lane.managed(now, task.exchange, ResponseCode::Complete);
    }

    /// A function has taken too long.
    pub(super) fn give_up(&mut self, exchange: u16) {
        let found = self.waiting.iter().position(|it| it.task.exchange == exchange);
        let waiting = found.map(|index| self.waiting.swap_remove(index));
        let others = waiting.map_or(0, |it| it.answers.left());
        // Of none: those of this thread.
        tracing::warn!(others, "a reset has failed: commands that it ends are still with the disk");
    }

    /// Takes what other threads have asked for, to be carried out with
    /// [`attend`](Self::attend). To be called in each turn before frames are received; false if
    /// there is nothing new.
    pub(super) fn listen(&mut self) -> bool {
        let has_news = self.peer.take_news();
        if has_news {
            self.has_news = true;
            let frames = self.frames;
            self.taken.extend(self.peer.take_orders().into_iter().map(|order| (order, frames)));
        }
        has_news
    }

    /// A frame has come.
    pub(super) fn note_frame(&mut self) {
        self.frames += 1;
        self.fresh += 1;
    }

    /// Does what other threads have asked for, and goes on with what waits for other threads.
    /// `close` gives up a removed unit, of which no command is left. False if there was nothing to
    /// do.
    pub(super) fn attend<R: Rules>(
        &mut self,
        now: Instant,
        lane: &mut Lane<R>,
        mut close: impl FnMut(u8),
    ) -> bool {
        let is_empty = std::mem::take(&mut self.fresh) < BATCH;
        let has_news = std::mem::take(&mut self.has_news) | !self.taken.is_empty();
        if !has_news && self.orders.is_empty() {
            return false;
        }
        let Self { taken, frames, ring, .. } = self;
        let is_due = |it: &mut (Order, u64)| is_empty || *frames - it.1 >= *ring;
        let due: Vec<_> = taken.extract_if(.., is_due).collect();
        due.into_iter().for_each(|(order, _)| self.begin(lane, order));
        let ended = self.orders.extract_if(.., |(_, ending)| {
            ending.retain(|exchange| lane.is_ending(*exchange));
            ending.is_empty()
        });
        let mut has_ended = false;
        for (order, _) in ended {
            has_ended = true;
            match order.tasks {
                Tasks::Hidden(number) if order.ends_port() => {
                    self.units.server().withdraw(number, self.port);
                }
                Tasks::Removed(number) => close(number),
                Tasks::Hidden(_) | Tasks::Function(..) | Tasks::LoggedOut(_) => {}
            }
        }
        if has_ended {
            self.units.erase_removed();
        }
        if has_news {
            self.end_answered(now, lane);
        }
        has_news || has_ended
    }

    /// Begins with an order: ends its commands.
    fn begin<R: Rules>(&mut self, lane: &mut Lane<R>, order: Order) {
        let mut ending = match order.tasks {
            Tasks::Function(lun, function, Asker { port, initiator }) => {
                let here = initiator.filter(|_| port == self.port.number);
                lane.end_tasks(lun, function, here)
            }
            Tasks::Hidden(number) => {
                let is_hidden = |wwpn| !self.units.is_visible(number, wwpn);
                lane.end_tasks_of(Lun::peripheral(number).0, is_hidden)
            }
            Tasks::Removed(number) => lane.end_tasks_of(Lun::peripheral(number).0, |_| true),
            Tasks::LoggedOut(wwpn) => {
                lane.logged_out(wwpn);
                if lane.rules().keeps(Rule::DrainThreads) {
                    self.leaving.push((wwpn, order));
                }
                return;
            }
        };
        let is_removed = matches!(order.tasks, Tasks::Removed(_));
        if is_removed && !lane.rules().keeps(Rule::DrainRemoved) {
            ending.clear();
        }
        self.orders.push((order, ending));
    }

    /// Nothing of an initiator's former login is at work here any more, but for frames that may
    /// wait for room in the interface.
    pub(super) fn drained(&mut self, wwpn: Wwn) {
        let drained = self.leaving.extract_if(.., |it| it.0 == wwpn);
        self.left.extend(drained.map(|it| it.1));
    }

    /// No frame waits for room in the interface. False if nobody waits for that.
    pub(super) fn confirm_left(&mut self) -> bool {
        let is_awaited = !self.left.is_empty();
        self.left.clear();
        is_awaited
    }
}
