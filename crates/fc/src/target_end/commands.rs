//! Commands: what an initiator wants, and how it ends.

use tyche_fc_wire::fcp::{self, Response, ResponseCode, TaskManagement};
use tyche_fc_wire::{FCtl, Frame, Header, Kind, Xid};
use tyche_time::Instant;

use super::exchange::{Exchange, Outcome, State, status};
use super::outputs::{Action, Command, Data};
use super::{Completion, Lane};
use crate::{Rule, Rules};

impl<R: Rules> Lane<R> {
    /// Takes an FCP_CMND.
    pub(super) fn handle_command(&mut self, now: Instant, nexus: u16, frame: &Frame<'_>) {
        let header = &frame.header;
        let Ok(command) = fcp::Command::parse(frame.payload) else {
            self.outputs.ignored.malformed += 1;
            return;
        };
        let is_management = command.management != TaskManagement::EMPTY;
        if self.is_repeated(nexus, header, (!is_management).then_some(command.crn)) {
            return;
        }
        let initiator = self.nexuses[nexus].id();
        let rx_id = self.exchanges.next_rx_id(initiator, header.ox_id);
        let is_renewed = self.rules.keeps(Rule::RenewRxIds);
        let exchange = Exchange {
            rx_id: if is_renewed { rx_id } else { Xid::NONE },
            is_numbered: command.crn != 0,
            lun: command.lun,
            reads: command.reads,
            writes: command.writes,
            // Without a direction there are no data, whatever it says.
            expected: if command.reads || command.writes { command.data_len } else { 0 },
            ..Exchange::new(nexus, header)
        };
        let Some(xid) = self.exchanges.open(exchange, is_management) else {
            self.refuse_command(nexus, (header.ox_id, rx_id));
            return;
        };
        if let Err(code) = command.check() {
            self.respond(xid, Outcome::of_code(code));
        } else if is_management {
            self.manage(now, xid, command.management);
        } else {
            self.exchanges[xid].is_lent = true;
            self.outputs.actions.push_back(Action::Command(Command {
                exchange: self.exchanges.index_of(xid),
                initiator: self.nexuses[nexus].wwpn,
                lun: command.lun,
                cdb: command.cdb,
                attribute: command.attribute,
            }));
        }
    }

    /// Whether a command was repeated by the network. An initiator that does not count may use the
    /// OX_ID of an exchange that is done at once, so that only those can be told that are not. Task
    /// management functions have no number.
    fn is_repeated(&mut self, nexus: u16, header: &Header, crn: Option<u8>) -> bool {
        let ignored = &mut self.outputs.ignored;
        let is_checked = self.rules.keeps(Rule::CheckNumbers);
        let takes = |crn| self.nexuses[nexus].takes(header.ox_id, crn);
        let is_over = |xid| !self.exchanges[xid].is_live();
        if !crn.is_none_or(takes) && is_checked {
            ignored.repeated_command += 1;
            if crn == Some(0) && self.exchanges.find(nexus, header.ox_id).is_none_or(is_over) {
                self.refuse_unnumbered(nexus, header.ox_id);
            }
            return true;
        }
        let Some(former) = self.exchanges.find(nexus, header.ox_id) else { return false };
        match self.exchanges[former].state {
            State::Done => return false,
            State::Aborted => ignored.aborted += 1,
            _ => ignored.repeated_command += 1,
        }
        true
    }

    /// There is no room for a command. The answer has an RX_ID, as every other: the initiator tells
    /// by it that it is none to an earlier command.
    fn refuse_command(&mut self, nexus: u16, exchange: (Xid, Xid)) {
        self.outputs.ignored.no_room += 1;
        let response = Response { status: status::TASK_SET_FULL, ..Response::GOOD };
        self.refuse(nexus, exchange, &response);
    }

    /// A command without a number comes after others that had one: fields are invalid. If it is an
    /// early one that the network repeats, its initiator is at another command with the OX_ID,
    /// maybe: it takes no answer without an RX_ID for that.
    fn refuse_unnumbered(&mut self, nexus: u16, ox_id: Xid) {
        let code = Some(ResponseCode::FieldsInvalid.to_wire());
        self.refuse(nexus, (ox_id, Xid::NONE), &Response { code, ..Response::GOOD });
    }

    /// Answers a command that is no exchange of the table.
    fn refuse(&mut self, nexus: u16, exchange: (Xid, Xid), response: &Response<'_>) {
        let nexus = &self.nexuses[nexus];
        let mut payload = [0; Response::LEN_MIN + 8];
        let len = response.emit(&mut payload);
        let header = nexus.header(Kind::FcpRsp, FCtl::RESPONSE, exchange);
        self.outputs.answer(nexus.ethernet, header, &payload[..len]);
    }

    /// Goes on with a command that is an operation, or has a parameter list: the user has memory
    /// for its data. It is to be executed when [`Action::Execute`] comes, if at all.
    ///
    /// # Panics
    /// If the exchange is none that was offered.
    pub fn accept(&mut self, now: Instant, exchange: u16, data: Data) {
        let xid = self.exchanges.at(exchange);
        let exchange = &self.exchanges[xid];
        assert_eq!(exchange.state, State::Offered, "a command that was offered");
        if exchange.ending.is_some() {
            self.finish(now, xid);
            return;
        }
        match data {
            Data::In(1..) if exchange.writes => self.contradict(xid),
            Data::Out(1..) if exchange.reads => self.contradict(xid),
            // It would be executed in part.
            Data::Out(len) if len > exchange.expected => {
                let residual = exchange.residual(len);
                // Illegal request: invalid field in command information unit.
                self.respond(xid, Outcome::check(0x05, (0x0e, 0x03), residual));
            }
            Data::Out(len @ 1..) => self.gather(xid, len),
            Data::None | Data::In(_) | Data::Out(0) => self.execute(xid),
        }
    }

    /// The direction of the data is not that of the command.
    fn contradict(&mut self, xid: Xid) {
        self.respond(xid, Outcome::of_code(ResponseCode::FieldsInvalid));
    }

    pub(super) fn execute(&mut self, xid: Xid) {
        self.exchanges[xid].state = State::Executing;
        let exchange = self.exchanges.index_of(xid);
        self.outputs.actions.push_back(Action::Execute { exchange });
    }

    /// Ends a command: the device server has answered it, or it was executed. The data for the
    /// initiator are sent from where they lie, up to the [`Action::Release`].
    ///
    /// # Panics
    /// If the exchange is neither offered nor at work.
    pub fn complete(&mut self, now: Instant, exchange: u16, completion: &Completion<'_>) {
        let xid = self.exchanges.at(exchange);
        let exchange = &mut self.exchanges[xid];
        let is_with_user = matches!(exchange.state, State::Offered | State::Executing);
        assert!(is_with_user, "a command of the user's");
        let len = completion.len;
        if exchange.ending.is_some() {
            self.finish(now, xid);
        } else if exchange.writes && len > 0 {
            self.contradict(xid);
        } else {
            // Of a write those that have come.
            let residual = exchange.residual(if exchange.writes { exchange.len } else { len });
            let sense = completion.sense.try_into().expect("sense data are short");
            let confirm = completion.confirm && self.nexuses[exchange.nexus].confirms;
            let status = completion.status;
            let outcome = Outcome { status, residual, code: None, sense, confirm };
            let len = len.min(exchange.expected);
            self.send(xid, len, outcome);
        }
    }

    /// Takes an FCP_CONF. The initiator may have used the OX_ID again, and the exchange may be
    /// forgotten: then the user hears nothing.
    pub(super) fn handle_confirmation(&mut self, nexus: u16, header: &Header) {
        let confirmed = self.exchanges.of_rx_id(header.rx_id).filter(|xid| {
            let it = &self.exchanges[*xid];
            let is_it = (it.nexus, it.ox_id) == (nexus, header.ox_id);
            is_it && it.state == State::Done && it.outcome.confirm
        });
        let Some(xid) = confirmed else {
            self.outputs.ignored.unexpected += 1;
            return;
        };
        self.exchanges[xid].outcome.confirm = false;
        let exchange = self.exchanges.index_of(xid);
        self.outputs.actions.push_back(Action::Confirmed { exchange });
    }

    /// Sends the end of a command without data.
    pub(super) fn respond(&mut self, xid: Xid, outcome: Outcome) {
        self.send(xid, 0, outcome);
    }

    fn send(&mut self, xid: Xid, len: u32, outcome: Outcome) {
        let exchange = &mut self.exchanges[xid];
        (exchange.len, exchange.moved, exchange.outcome) = (len, 0, outcome);
        exchange.state = State::Sending;
        self.make_ready(xid);
    }
}
