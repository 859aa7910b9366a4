//! Task management: what concerns logical units, and the other interfaces.
//!
//! A function is done when the commands that it is about have ended on all interfaces: those of its
//! own lane have when it is offered here. Until then it is not answered; the lane gives it a time.

use std::sync::Arc;

use tyche_fc::target_end::{Function, Lane};
use tyche_fc::wire::fcp::ResponseCode;
use tyche_fc::{Rule, Rules};
use tyche_scsi::vpd::TargetPort;
use tyche_scsi::{Lun, NexusId};
use tyche_time::Instant;

use super::peers::{Answers, Order, Peer, Tasks};
use super::units::Units;

/// The task management of one interface.
pub(super) struct Management {
    /// Functions that wait for the other interfaces.
    waiting: Vec<Waiting>,
    /// Orders of other threads, with the commands that are still to end.
    orders: Vec<(Order, Vec<u16>)>,
    peer: Peer,
    units: Arc<Units>,
    port: TargetPort,
}

/// A task management function.
pub(super) struct Task {
    pub(super) exchange: u16,
    /// The initiator that asks for it, if it is logged in.
    pub(super) by: Option<NexusId>,
    pub(super) lun: [u8; 8],
    pub(super) function: Function,
}

/// A function that waits for the other interfaces.
struct Waiting {
    task: Task,
    /// The logical units that it is about.
    units: Vec<u8>,
    answers: Arc<Answers>,
}

impl Management {
    pub(super) fn new(units: Arc<Units>, port: TargetPort) -> Self {
        Self { waiting: Vec::new(), orders: Vec::new(), peer: units.join(), units, port }
    }

    /// Sets what has the thread call [`attend`](Self::attend).
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
        // That is about the commands which the initiator has sent to this port.
        let is_own = task.function == Function::AbortTaskSet;
        if is_own || !lane.rules().keeps(Rule::EndAllTasks) {
            return self.end(now, lane, &task, &units);
        }
        let answers = self.peer.order(task.lun, task.function);
        self.waiting.push(Waiting { task, units, answers });
        self.end_answered(now, lane);
    }

    /// Ends the functions for which no other interface is at work any more.
    fn end_answered<R: Rules>(&mut self, now: Instant, lane: &mut Lane<R>) -> bool {
        let answered: Vec<_> = self.waiting.extract_if(.., |it| it.answers.left() == 0).collect();
        answered.iter().for_each(|it| self.end(now, lane, &it.task, &it.units));
        !answered.is_empty()
    }

    fn end<R: Rules>(&self, now: Instant, lane: &mut Lane<R>, task: &Task, units: &[u8]) {
        if let Some(nexus) = task.by
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
        // Of none: those of this interface.
        tracing::warn!(others, "a reset has failed: commands that it ends are still with the disk");
    }

    /// Does what other threads have asked for, and goes on with what waits for other interfaces.
    /// `close` gives up a removed unit, of which no command is left. False if there was nothing to
    /// do.
    pub(super) fn attend<R: Rules>(
        &mut self,
        now: Instant,
        lane: &mut Lane<R>,
        mut close: impl FnMut(u8),
    ) -> bool {
        let has_news = self.peer.take_news();
        if has_news {
            for order in self.peer.take_orders() {
                let mut ending = match order.tasks {
                    Tasks::Function(lun, function) => lane.end_tasks(lun, function),
                    Tasks::Hidden(number) => {
                        let is_hidden = |wwpn| !self.units.is_visible(number, wwpn);
                        lane.end_tasks_of(Lun::peripheral(number).0, is_hidden)
                    }
                    Tasks::Removed(number) => {
                        lane.end_tasks_of(Lun::peripheral(number).0, |_| true)
                    }
                };
                let is_removed = matches!(order.tasks, Tasks::Removed(_));
                if is_removed && !lane.rules().keeps(Rule::DrainRemoved) {
                    ending.clear();
                }
                self.orders.push((order, ending));
            }
        }
        let ended = self.orders.extract_if(.., |(_, ending)| {
            ending.retain(|exchange| lane.is_ending(*exchange));
            ending.is_empty()
        });
        let mut has_ended = false;
        for (order, _) in ended {
            has_ended = true;
            match order.tasks {
                Tasks::Hidden(number) => self.units.server().withdraw(number, self.port),
                Tasks::Removed(number) => close(number),
                Tasks::Function(..) => {}
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
}
