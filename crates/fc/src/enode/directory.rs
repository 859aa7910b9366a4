//! The fabric's name server and controller: what the port says there about itself, and what it asks
//! about others (FC-GS-6, FC-LS-2).
//!
//! ```text
//! name server: PLOGI, RNN_ID, RFT_ID, RFF_ID    controller: SCR    name server: GPN_FT
//!              (who and what we are)            (tell us changes)               (who is there)
//! ```
//!
//! Then the port rests, and asks who is there again soon after a change is told (RSCN), or, since
//! that may be lost, after a while. A port that is new in the list is asked about (GFF_ID), so that
//! targets are told from initiators. So is one that a change was about: it may have begun anew, and
//! its login is [doubtful](Event::Doubtful). One that is missing from the list is asked about as
//! well (GPN_ID) before it counts as gone: it may have introduced itself by PLOGI, and not
//! registered.
//!
//! There is one question at a time. Each may be repeated, so an answer is waited for only a little.

use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_fc_wire::ct::{self, CT_HEADER_LEN, NamedPort};
use tyche_fc_wire::els::{self, ChangedPort, Code, LOGIN_LEN, PortLogin, Rejection, Scr};
use tyche_fc_wire::{FC4_FCP, FCtl, Fc4Types, Frame, Header, Kind, PortId, Wwn, Xid};
use tyche_time::{Instant, earliest};

use super::EnodeConfig;
use super::outputs::{Ignored, Sent};
use crate::neighbour::{Address, Event, Functions, Interface, NEIGHBOURS_MAX, Neighbour};
use crate::numbers::Numbers;
use crate::port::Offer;

/// How often a question is repeated before all is asked anew, from PLOGI on.
const REPEATS_MAX: u32 = 3;
/// The most ports of a list. That of a fabric without zones may be long; what is behind them is
/// not seen.
const LIST_MAX: usize = 1024;
const ANSWER_LEN_MAX: usize = CT_HEADER_LEN + LIST_MAX * size_of::<NamedPort>();
/// The time from a change to the question who is there: several often come together, and a port
/// that is new has registered all that there is to know by then.
const CHANGE_WAIT: Duration = Duration::from_millis(200);
/// The time after which that is asked without a change.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// The functions of a port of which the name server does not know any.
const BOTH: Functions = Functions { initiator: true, target: true };
/// The functions of a port that asks us for a login, until more is known.
const INITIATOR: Functions = Functions { initiator: true, target: false };

/// A question, or a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Plogi,
    RegisterNode,
    RegisterTypes,
    RegisterFunctions,
    Subscribe,
    List,
    Functions(PortId, Wwn),
    Name(PortId),
}

/// All that is asked after a login.
const FIRST: [Question; 6] = [
    Question::Plogi,
    Question::RegisterNode,
    Question::RegisterTypes,
    Question::RegisterFunctions,
    Question::Subscribe,
    Question::List,
];

/// The answer to a question.
enum FabricAnswer<'a> {
    Link(els::Reply),
    Name(ct::Reply<'a>),
}

/// The place of the port in its fabric.
#[derive(Clone, Copy)]
struct Own {
    address: Address,
    interface: Interface,
}

/// A port that is there.
#[derive(Clone, Copy)]
struct KnownPort {
    neighbour: Neighbour,
    /// Whether it may have changed since it was asked about.
    is_doubtful: bool,
}

/// The client of the fabric's services for one port: it registers the port and keeps the list of
/// other ports. It asks one question at a time, and reports ports that have come or gone as events.
pub(super) struct Directory {
    config: EnodeConfig,
    own: Option<Own>,
    known: Vec<KnownPort>,
    /// When to ask who is there, and whether because of a change.
    list_at: Option<Instant>,
    is_told: bool,
    /// The first is in progress.
    questions: VecDeque<Question>,
    /// The exchange of the question in progress, if it is not answered.
    ox_id: Option<Xid>,
    /// When the question in progress is asked again.
    again_at: Option<Instant>,
    repeats: u32,
    numbers: Numbers,
    /// The payloads of the answer's frames so far, and the number of the next.
    answer: Vec<u8>,
    next_frame: u16,
    events: VecDeque<Event>,
    services: VecDeque<Sent>,
}

impl Directory {
    pub(super) fn new(config: EnodeConfig) -> Self {
        Self {
            own: None,
            known: Vec::with_capacity(NEIGHBOURS_MAX),
            list_at: None,
            is_told: false,
            questions: VecDeque::new(),
            ox_id: None,
            again_at: None,
            repeats: 0,
            numbers: Numbers::new(config.exchanges, 0),
            answer: Vec::new(),
            next_frame: 0,
            events: VecDeque::new(),
            services: VecDeque::new(),
            config,
        }
    }

    /// The ports that are known.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.known.iter().map(|it| &it.neighbour)
    }

    /// Whether nothing is asked.
    pub(super) fn is_idle(&self) -> bool {
        self.questions.is_empty()
    }

    /// The port has an address.
    pub(super) fn start(&mut self, now: Instant, address: Address, interface: Interface) {
        self.own = Some(Own { address, interface });
        self.begin(now);
    }

    /// The port has no address any more: all others are gone.
    pub(super) fn clear(&mut self) {
        self.own = None;
        self.events.extend(self.known.drain(..).map(|it| Event::Gone(it.neighbour)));
        self.services.clear();
        self.questions.clear();
        (self.ox_id, self.again_at, self.list_at) = (None, None, None);
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn poll_service(&mut self) -> Option<Sent> {
        self.services.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.again_at, self.list_at)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.list_at.is_some_and(|at| at <= now) {
            // What came since the last list may be lost.
            self.known.iter_mut().for_each(|it| it.is_doubtful |= !self.is_told);
            (self.list_at, self.is_told) = (Some(now + REFRESH_INTERVAL), false);
            self.question(now, Question::List);
        }
        if self.again_at.is_none_or(|at| now < at) {
            return;
        }
        if self.repeats < REPEATS_MAX {
            self.repeats += 1;
            self.ask(now);
        } else {
            // The name server may have forgotten us.
            self.begin(now);
        }
    }

    /// Takes a frame of one of the fabric's services.
    pub(super) fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>, ignored: &mut Ignored) {
        let header = frame.header;
        match header.kind {
            Kind::ElsRequest => self.handle_request(now, frame, ignored),
            Kind::ElsReply | Kind::CtReply if self.ox_id == Some(header.ox_id) => {
                self.handle_part(now, frame, ignored);
            }
            _ => ignored.unexpected += 1,
        }
    }

    /// Takes a frame of a port that may be unknown: PLOGI introduces it. The fabric says who has
    /// which N_Port_ID, so another port that had this one is gone.
    pub(super) fn introduce(&mut self, now: Instant, frame: &Frame<'_>, ignored: &mut Ignored) {
        if frame.header.kind != Kind::ElsRequest {
            return;
        }
        let Ok(els::Request::Plogi(login)) = els::Request::parse(frame.payload) else { return };
        let (id, PortLogin { wwpn, wwnn, .. }) = (frame.header.s_id, login);
        let is_known = self.neighbours().any(|it| (it.id, it.wwpn) == (id, wwpn));
        if !is_known && wwpn != self.config.wwpn {
            self.add((id, wwpn), Some(wwnn), INITIATOR, ignored);
            let added = self.known.iter_mut().filter(|it| it.neighbour.id == id);
            // Also by the next list.
            added.for_each(|it| it.is_doubtful = true);
            self.question(now, Question::Functions(id, wwpn));
        }
    }

    fn handle_request(&mut self, now: Instant, frame: &Frame<'_>, ignored: &mut Ignored) {
        let from = frame.header.s_id;
        let reply = match els::Request::parse(frame.payload) {
            Ok(els::Request::Rscn(rscn)) if from == PortId::FABRIC_CONTROLLER => {
                self.handle_change(now, rscn.ports);
                els::Reply::Accepted
            }
            Ok(els::Request::Logo(_)) => {
                if from == PortId::NAME_SERVER {
                    self.begin(now);
                }
                els::Reply::Accepted
            }
            request => {
                ignored.malformed += u64::from(request.is_err());
                let (reason, explanation) = (Rejection::UNSUPPORTED, 0);
                els::Reply::Refused(Rejection { reason, explanation })
            }
        };
        let header = frame.header.reply(Kind::ElsReply, frame.header.rx_id);
        self.send(header, |payload| reply.emit(payload));
    }

    /// The fabric has changed.
    fn handle_change(&mut self, now: Instant, changed: &[ChangedPort]) {
        for known in &mut self.known {
            known.is_doubtful |= changed.iter().any(|it| covers(it, known.neighbour.id));
        }
        if !std::mem::replace(&mut self.is_told, true) {
            self.list_at = Some(now + CHANGE_WAIT);
        }
    }

    /// Takes a frame of the answer, which is complete with the last of its sequence.
    fn handle_part(&mut self, now: Instant, frame: &Frame<'_>, ignored: &mut Ignored) {
        let Frame { header, payload, .. } = *frame;
        if header.seq_cnt == 0 {
            self.answer.clear();
            self.next_frame = 0;
        }
        if header.seq_cnt != self.next_frame {
            // The question is asked again.
            ignored.unexpected += 1;
            return;
        }
        self.next_frame += 1;
        let room = ANSWER_LEN_MAX - self.answer.len();
        self.answer.extend_from_slice(&payload[..payload.len().min(room)]);
        if !header.f_ctl.has(FCtl::END_SEQ) {
            return;
        }
        let mut bytes = std::mem::take(&mut self.answer);
        if bytes.len() == ANSWER_LEN_MAX {
            ct::Reply::cut(&mut bytes);
        }
        self.handle_answer(now, header.kind, &bytes, ignored);
        self.answer = bytes;
    }

    fn handle_answer(&mut self, now: Instant, kind: Kind, bytes: &[u8], ignored: &mut Ignored) {
        let Some(question) = self.questions.front().copied() else { return };
        let answer = match (kind, question.code(), question.command()) {
            (Kind::ElsReply, Some(code), _) => {
                els::Reply::parse(code, bytes).map(FabricAnswer::Link)
            }
            (Kind::CtReply, _, Some(it)) => ct::Reply::parse(it, bytes).map(FabricAnswer::Name),
            _ => {
                ignored.unexpected += 1;
                return;
            }
        };
        let Ok(answer) = answer else {
            // The right one may still come.
            ignored.malformed += 1;
            return;
        };
        self.ox_id = None;
        let is_refused = matches!(
            answer,
            FabricAnswer::Link(els::Reply::Refused(_))
                | FabricAnswer::Name(ct::Reply::Refused { .. })
        );
        match question {
            Question::Plogi | Question::Subscribe if is_refused => {
                // It is repeated: there is nothing without it.
                self.again_at = Some(now + self.config.e_d_tov);
                return;
            }
            Question::Plogi | Question::Subscribe => {}
            // Not every name server keeps everything.
            Question::RegisterNode | Question::RegisterTypes | Question::RegisterFunctions => {}
            Question::List => match answer {
                FabricAnswer::Name(ct::Reply::Ports(ports)) => self.handle_list(ports),
                // There are none.
                _ => self.handle_list(&[]),
            },
            Question::Functions(id, wwpn) => {
                let functions = match answer {
                    FabricAnswer::Name(ct::Reply::Functions(it)) => {
                        Functions::from_bits(it.of_fcp())
                    }
                    _ => Functions::default(),
                };
                let is_new = !self.neighbours().any(|it| (it.id, it.wwpn) == (id, wwpn));
                if is_new && functions == Functions::default() && self.repeats == 0 {
                    // It may still be registering them.
                    self.again_at = Some(now + CHANGE_WAIT);
                    return;
                }
                self.found((id, wwpn), functions, ignored);
            }
            Question::Name(id) => {
                let wwpn = match answer {
                    FabricAnswer::Name(ct::Reply::Name(wwpn)) => Some(wwpn),
                    _ => None,
                };
                self.remove_if(|it| it.id == id && Some(it.wwpn) != wwpn);
            }
        }
        self.questions.pop_front();
        self.next(now);
    }

    /// Compares the list of ports with those that are known.
    fn handle_list(&mut self, listed: &[NamedPort]) {
        let listed: Vec<_> = listed.iter().map(|it| (it.id(), it.name())).collect();
        let is_changed =
            |it: &Neighbour| listed.iter().any(|(id, wwpn)| (*id == it.id) != (*wwpn == it.wwpn));
        self.remove_if(is_changed);
        let missing = self.neighbours().filter(|it| !listed.contains(&(it.id, it.wwpn)));
        let missing = missing.map(|it| Question::Name(it.id));
        let own = self.own.map(|own| own.address.id);
        let is_certain = |it: &(PortId, Wwn)| {
            let mut certain = self.known.iter().filter(|known| !known.is_doubtful);
            certain.any(|known| (known.neighbour.id, known.neighbour.wwpn) == *it)
        };
        let asked = listed.iter().filter(|it| Some(it.0) != own && !is_certain(it));
        let asked = asked.map(|&(id, wwpn)| Question::Functions(id, wwpn));
        let asked: Vec<_> = missing.chain(asked).collect();
        // Questions of an earlier list are out of date.
        self.questions.retain(|it| !matches!(it, Question::Functions(..) | Question::Name(_)));
        self.questions.extend(asked);
    }

    /// Takes the functions that the name server has of a port; none if it does not know them.
    fn found(&mut self, named: (PortId, Wwn), functions: Functions, ignored: &mut Ignored) {
        let is_it = |it: &&mut KnownPort| (it.neighbour.id, it.neighbour.wwpn) == named;
        let is_unknown = functions == Functions::default();
        if let Some(known) = self.known.iter_mut().find(is_it) {
            let now = if is_unknown { known.neighbour.functions } else { functions };
            (known.neighbour.functions, known.is_doubtful) = (now, false);
            self.events.push_back(Event::Doubtful(known.neighbour));
        } else {
            // It may be anything if nothing is known.
            self.add(named, None, if is_unknown { BOTH } else { functions }, ignored);
        }
    }

    /// Adds a port, in place of what has the same address or name.
    fn add(
        &mut self,
        (id, wwpn): (PortId, Wwn),
        wwnn: Option<Wwn>,
        functions: Functions,
        ignored: &mut Ignored,
    ) {
        let Some(Own { address, interface }) = self.own else { return };
        self.remove_if(|it| it.id == id || it.wwpn == wwpn);
        if self.known.len() == NEIGHBOURS_MAX {
            ignored.no_room += 1;
            return;
        }
        let fcoe_len_max = interface.fcoe_len_max();
        let enode = address.of_other(id);
        let neighbour = Neighbour { wwpn, wwnn, id, enode, fcoe_len_max, functions };
        self.known.push(KnownPort { neighbour, is_doubtful: false });
        self.events.push_back(Event::Appeared(neighbour));
    }

    fn remove_if(&mut self, which: impl Fn(&Neighbour) -> bool) {
        let events = &mut self.events;
        self.known.retain(|it| {
            let goes = which(&it.neighbour);
            if goes {
                events.push_back(Event::Gone(it.neighbour));
            }
            !goes
        });
    }

    /// Asks everything, from the beginning.
    fn begin(&mut self, now: Instant) {
        self.questions.clear();
        self.questions.extend(FIRST);
        self.list_at = Some(now + REFRESH_INTERVAL);
        self.next(now);
    }

    /// Has something asked after all else, unless it is to be asked anyway. What is asked already
    /// may be answered with what was before.
    fn question(&mut self, now: Instant, question: Question) {
        if self.questions.is_empty() {
            self.questions.push_back(question);
            self.next(now);
        } else if !self.questions.iter().skip(1).any(|it| *it == question) {
            self.questions.push_back(question);
        }
    }

    /// Asks the first question.
    fn next(&mut self, now: Instant) {
        (self.repeats, self.ox_id, self.again_at) = (0, None, None);
        if !self.questions.is_empty() {
            self.ask(now);
        }
    }

    fn ask(&mut self, now: Instant) {
        let (Some(own), Some(question)) = (self.own, self.questions.front().copied()) else {
            return;
        };
        let ox_id = self.numbers.take();
        let (kind, to) = match question {
            Question::Plogi => (Kind::ElsRequest, PortId::NAME_SERVER),
            Question::Subscribe => (Kind::ElsRequest, PortId::FABRIC_CONTROLLER),
            _ => (Kind::CtRequest, PortId::NAME_SERVER),
        };
        let header = Header::request(kind, own.address.id, to, ox_id);
        let config = self.config;
        self.send(header, |payload| question.emit(&config, own, payload));
        let e_d_tov = own.address.fabric.map_or(Duration::ZERO, |it| it.e_d_tov);
        let wait = 2 * e_d_tov.max(self.config.e_d_tov);
        (self.ox_id, self.again_at) = (Some(ox_id), Some(now + wait));
    }

    fn send(&mut self, header: Header, emit: impl FnOnce(&mut [u8]) -> usize) {
        let mut payload = [0; LOGIN_LEN];
        let len = emit(&mut payload);
        let payload = ArrayVec::try_from(&payload[..len]).expect("no more than it had");
        self.services.push_back(Sent { header, payload });
    }
}

impl Question {
    /// The code of a link service.
    fn code(self) -> Option<Code> {
        match self {
            Self::Plogi => Some(Code::Plogi),
            Self::Subscribe => Some(Code::Scr),
            _ => None,
        }
    }

    /// The command of the name server.
    fn command(self) -> Option<ct::Command> {
        match self {
            Self::Plogi | Self::Subscribe => None,
            Self::RegisterNode => Some(ct::Command::RnnId),
            Self::RegisterTypes => Some(ct::Command::RftId),
            Self::RegisterFunctions => Some(ct::Command::RffId),
            Self::List => Some(ct::Command::GpnFt),
            Self::Functions(..) => Some(ct::Command::GffId),
            Self::Name(_) => Some(ct::Command::GpnId),
        }
    }

    /// Writes the payload; returns its length.
    fn emit(self, config: &EnodeConfig, own: Own, payload: &mut [u8]) -> usize {
        let EnodeConfig { wwpn, wwnn, functions, e_d_tov, r_a_tov, .. } = *config;
        let id = own.address.id;
        let request = match self {
            Self::Plogi => {
                let payload_max = own.address.payload_max(own.interface);
                let offer = Offer { wwpn, wwnn, payload_max, e_d_tov, r_a_tov };
                return els::Request::Plogi(offer.port_login()).emit(payload);
            }
            Self::Subscribe => {
                return els::Request::Scr(Scr { function: Scr::FULL }).emit(payload);
            }
            Self::RegisterNode => ct::Request::RnnId(id, wwnn),
            Self::RegisterTypes => ct::Request::RftId(id, Fc4Types::only(FC4_FCP)),
            Self::RegisterFunctions => {
                ct::Request::RffId { id, functions: functions.to_bits(), kind: FC4_FCP }
            }
            Self::List => ct::Request::GpnFt(FC4_FCP),
            Self::Functions(id, _) => ct::Request::GffId(id),
            Self::Name(id) => ct::Request::GpnId(id),
        };
        request.emit(payload)
    }
}

/// Whether a change is about an address: its flags say how much of it counts.
fn covers(change: &ChangedPort, id: PortId) -> bool {
    let bits = [0, 8, 16, 24][usize::from(change.flags & 3)];
    change.id.to_u32() >> bits == id.to_u32() >> bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_about_a_port_or_a_part_of_the_fabric() {
        let covers = |flags, changed, id| {
            covers(&ChangedPort { flags, id: PortId::new(changed) }, PortId::new(id))
        };
        assert!(covers(0, 0x01_0203, 0x01_0203) && !covers(0, 0x01_0203, 0x01_0204));
        assert!(covers(1, 0x01_0200, 0x01_02ff) && !covers(1, 0x01_0200, 0x01_0301));
        assert!(covers(0x2a, 0x01_0000, 0x01_ff01) && !covers(2, 0x01_0000, 0x02_0001));
        assert!(covers(3, 0, 0xef_0001));
    }
}
