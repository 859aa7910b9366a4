//! Link services that are about exchanges: REC, RRQ, SRR.

use tyche_fc_wire::els::{
    ESTAT_COMPLETE, ESTAT_INITIATIVE, ESTAT_RESPONDER, Exchange as ExchangeId, ExchangeStatus,
    LOGIN_LEN, Rejection, Reply, Request,
};
use tyche_fc_wire::{Frame, Header, Kind, Xid};

use super::Lane;
use super::exchange::{Exchange, Phase, State};
use crate::Rules;

/// The OX_ID of the exchange that a link service of an initiator is about, if it is about one: for
/// a target with several lanes, one of which has that exchange.
pub fn exchange_named(frame: &Frame<'_>) -> Option<Xid> {
    if !matches!(frame.header.kind, Kind::ElsRequest | Kind::Fc4Request) {
        return None;
    }
    match Request::parse(frame.payload) {
        Ok(Request::Rec(id) | Request::Rrq(id)) => Some(id.ox_id),
        _ => None,
    }
}

impl<R: Rules> Lane<R> {
    /// Takes a link service. False if it is none of a responder's exchanges.
    pub(super) fn handle_service(&mut self, frame: &Frame<'_>) -> bool {
        let header = &frame.header;
        let Ok(request) = Request::parse(frame.payload) else { return false };
        match request {
            Request::Rec(id) | Request::Rrq(id) if id.originator == header.s_id => {}
            Request::Srr(_) => {}
            _ => return false,
        }
        let Some(place) = self.nexuses.of_frame(frame) else {
            self.outputs.ignored.stranger += 1;
            return true;
        };
        let reply = match request {
            Request::Rec(id) => self.status(place, header, &id),
            Request::Rrq(id) => self.free(place, &id),
            // Not agreed at login.
            _ => {
                self.outputs.ignored.unexpected += 1;
                refusal(Rejection::UNSUPPORTED, 0)
            }
        };
        let nexus = &self.nexuses[place];
        let mut payload = [0; LOGIN_LEN];
        let len = reply.emit(&mut payload);
        let kind = match header.kind {
            Kind::Fc4Request => Kind::Fc4Reply,
            _ => Kind::ElsReply,
        };
        self.outputs.answer(nexus.ethernet, header.reply(kind, header.rx_id), &payload[..len]);
        true
    }

    /// The exchange that a service of an initiator is about.
    fn named(&self, nexus: u16, id: &ExchangeId) -> Option<Xid> {
        let found = self.exchanges.find(nexus, id.ox_id);
        found.filter(|it| [self.exchanges[*it].rx_id, Xid::NONE].contains(&id.rx_id))
    }

    /// The answer to REC.
    fn status(&self, nexus: u16, header: &Header, id: &ExchangeId) -> Reply {
        let Some(xid) = self.named(nexus, id) else { return unknown() };
        let exchange = &self.exchanges[xid];
        let state = match exchange.state {
            State::Aborted => return unknown(),
            State::Done => ESTAT_COMPLETE,
            State::Gathering(Phase::Asked) => 0,
            _ => ESTAT_INITIATIVE,
        };
        Reply::Exchange(ExchangeStatus {
            ox_id: id.ox_id,
            rx_id: exchange.rx_id,
            originator: id.originator,
            responder: header.d_id,
            transferred: transferred(exchange),
            estat: ESTAT_RESPONDER | state,
        })
    }

    /// The answer to RRQ: no frame of an aborted exchange is on the way any more.
    fn free(&mut self, nexus: u16, id: &ExchangeId) -> Reply {
        let named = self.named(nexus, id).filter(|it| self.exchanges[*it].state == State::Aborted);
        let Some(xid) = named else { return unknown() };
        self.exchanges.forget(xid);
        Reply::Accepted
    }
}

/// Bytes of data that have come or gone.
fn transferred(exchange: &Exchange) -> u32 {
    if exchange.writes { exchange.received.count() } else { exchange.moved }
}

fn refusal(reason: u8, explanation: u8) -> Reply {
    Reply::Refused(Rejection { reason, explanation })
}

fn unknown() -> Reply {
    refusal(Rejection::LOGICAL, Rejection::INVALID_XID)
}
