//! Task management of a role: what concerns logical units, and the other interfaces.
//!
//! A function is done when the commands that it is about have ended on all interfaces: those of its
//! own lane have when it is offered here. Until then it is not answered; the lane gives it a time.

use std::sync::Arc;

use tyche_fc::target::Function;
use tyche_fc::wire::Wwn;
use tyche_fc::wire::fcp::ResponseCode;
use tyche_fc::{Rule, Rules};
use tyche_scsi::Lun;
use tyche_time::Instant;

use super::peers::Answers;
use super::role::TargetRole;

/// A task management function that waits for the other interfaces.
pub(super) struct Managing {
    exchange: u16,
    initiator: Wwn,
    units: Vec<u8>,
    function: Function,
    answers: Arc<Answers>,
}

impl<R: Rules> TargetRole<R> {
    /// Does what is left of a function whose commands have ended in the lane.
    pub(super) fn manage(
        &mut self,
        now: Instant,
        exchange: u16,
        (initiator, lun): (Wwn, [u8; 8]),
        function: Function,
    ) {
        let numbers = self.units.all().iter().map(|it| it.number);
        let wanted = numbers.filter(|number| {
            function == Function::TargetReset || Lun(lun).number() == Some(u16::from(*number))
        });
        let units: Vec<_> = wanted.collect();
        if units.is_empty() {
            return self.lane.managed(now, exchange, ResponseCode::LunInvalid);
        }
        // That is about the commands which the initiator has sent to this port.
        let is_own = function == Function::AbortTaskSet;
        if is_own || !self.lane.rules().keeps(Rule::EndAllTasks) {
            return self.end_management(now, exchange, (initiator, &units), function);
        }
        let answers = self.peer.order(lun, function);
        self.managing.push(Managing { exchange, initiator, units, function, answers });
        self.end_answered(now);
    }

    /// Ends the functions for which no other interface is at work any more.
    fn end_answered(&mut self, now: Instant) -> bool {
        let answered: Vec<_> = self.managing.extract_if(.., |it| it.answers.left() == 0).collect();
        for Managing { exchange, initiator, units, function, .. } in &answered {
            self.end_management(now, *exchange, (*initiator, units), *function);
        }
        !answered.is_empty()
    }

    fn end_management(
        &mut self,
        now: Instant,
        exchange: u16,
        (initiator, units): (Wwn, &[u8]),
        function: Function,
    ) {
        if let Some(nexus) = self.nexus(initiator)
            && matches!(function, Function::LuReset | Function::TargetReset)
        {
            let mut server = self.units.server();
            units.iter().for_each(|number| server.reset(*number, nexus));
        }
        self.lane.managed(now, exchange, ResponseCode::Complete);
    }

    /// A function has taken too long.
    pub(super) fn unmanage(&mut self, exchange: u16) {
        let found = self.managing.iter().position(|it| it.exchange == exchange);
        let managing = found.map(|index| self.managing.swap_remove(index));
        let others = managing.map_or(0, |it| it.answers.left());
        // Of none: those of this interface.
        tracing::warn!(others, "a reset has failed: commands that it ends are still with the disk");
    }

    /// Does what other interfaces have asked for, and goes on with what waits for them. False if
    /// there was nothing to do.
    pub(super) fn attend_peers(&mut self, now: Instant) -> bool {
        let has_news = self.peer.take_news();
        if has_news {
            for order in self.peer.take_orders() {
                let ending = self.lane.end_tasks(order.lun, order.function);
                self.orders.push((order, ending));
            }
        }
        let before = self.orders.len();
        let lane = &self.lane;
        self.orders.retain_mut(|(_, ending)| {
            ending.retain(|exchange| lane.is_ending(*exchange));
            !ending.is_empty()
        });
        let has_ended = self.orders.len() < before;
        let has_answers = has_news && self.end_answered(now);
        if has_news || has_ended || has_answers {
            self.act(now, &[]);
        }
        has_news || has_ended
    }
}
