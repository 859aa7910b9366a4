//! Requests of neighbours.

use tyche_fc_wire::els::{
    Code, FabricLogin, FcpParameters, Features, Logo, PortLogin, Process, Rejection, Reply,
    Request, Timeouts,
};
use tyche_fc_wire::fip::{self, LinkService, Message, Service, payload_within};
use tyche_fc_wire::{Frame, Header, Kind, Mac, Wwn};
use tyche_time::Instant;

use super::offer::millis;
use super::outputs::Cause;
use super::peer::{Ending, Login, Peer, Stage, Withheld, in_unit};
use super::way::Way;
use super::{Logins, Own};
use crate::Rules;
use crate::neighbour::Functions;

/// The least payload that a port must take (FC-FS-3).
const RECEIVE_LEN_MIN: u16 = 256;

impl<R: Rules> Logins<R> {
    /// Takes a frame of FIP that has come to the interface's own address. False if it is not a link
    /// service: it is for others to handle.
    pub fn handle_fip(&mut self, now: Instant, frame: &fip::Frame<'_>) -> bool {
        let (service, is_request) = match &frame.message {
            Message::LinkRequest(service) => (service, true),
            Message::LinkReply(service) => (service, false),
            _ => return false,
        };
        let header = service.header;
        if !self.is_to_us(&header) {
            self.outputs.ignored.not_ours += 1;
        } else if is_request {
            self.handle_fip_request(now, frame.ethernet.source, service);
        } else if let Some(wwpn) = self.gone.asked(frame.ethernet.source, header.ox_id) {
            // It accepts, or refuses since it has no login with us.
            self.gone.forget(wwpn);
            self.admit_held(now);
        } else if let Some(index) = self.find_id(header.s_id) {
            self.handle_reply(now, index, &header, service.payload);
        } else {
            self.outputs.ignored.stranger += 1;
        }
        true
    }

    fn is_to_us(&self, header: &Header) -> bool {
        self.own.is_some_and(|own| header.d_id == own.address.id)
    }

    fn handle_fip_request(&mut self, now: Instant, source: Mac, service: &LinkService<'_>) {
        let header = service.header;
        let way = Way::Fip(source, service.service);
        match (service.service, Request::parse(service.payload)) {
            (Service::Flogi, Ok(Request::Flogi(login))) => {
                self.handle_fip_flogi(now, way, header, &login);
            }
            (Service::Logo, Ok(Request::Logo(logo))) => {
                let index = self.find_id(header.s_id);
                let is_real = |it: &usize| self.peers[*it].neighbour.enode == source;
                self.handle_logo(now, index.filter(is_real), way, header, &logo);
            }
            _ => {
                self.outputs.ignored.malformed += 1;
                self.refuse(way, &header, Rejection::UNSUPPORTED, 0);
            }
        }
    }

    fn handle_fip_flogi(&mut self, now: Instant, way: Way, header: Header, login: &FabricLogin) {
        let is_present = |peer: &Peer| peer.neighbour.wwpn == login.wwpn && !peer.is_gone;
        let index = self.find_id(header.s_id);
        let Some(index) = index.filter(|it| is_present(&self.peers[*it])) else {
            // It has not shown itself yet, and tries again.
            self.outputs.ignored.stranger += 1;
            self.refuse(way, &header, Rejection::FIP, Rejection::UNKNOWN_NEIGHBOUR);
            return;
        };
        if login.features.has(Features::F_PORT) {
            self.refuse(way, &header, Rejection::LOGICAL, 0);
        } else {
            self.handle_flogi(now, index, header);
        }
    }

    /// A FLOGI before there is a login is answered at once. Unless ours is on the way, one is
    /// enough for both: to another, Linux would answer with a second PLOGI. A second one of the
    /// same attempt means that the other end does not know of our PLOGI, or has forgotten it.
    fn handle_flogi(&mut self, now: Instant, index: usize, header: Header) {
        let peer = &self.peers[index];
        if peer.login.is_some() || peer.stage == Stage::Pause {
            let way = self.flogi_way(index);
            let withheld = Withheld { way, header, request: Ending::Flogi };
            self.end(now, index, Cause::Anew, Some(withheld));
            return;
        }
        let peer = &mut self.peers[index];
        let is_repeated = std::mem::replace(&mut peer.has_answered, true);
        let (stage, is_waiting) = (peer.stage, peer.ox_id.is_none());
        self.accept_flogi(index, &header);
        match stage {
            // It did not know us, or was busy, when it refused ours.
            Stage::Flogi if is_waiting => self.known(now, index),
            Stage::Plogi if is_repeated => self.begin(now, index, Stage::Plogi),
            _ => {}
        }
    }

    fn accept_flogi(&mut self, index: usize, header: &Header) {
        let Some(own) = self.own else { return };
        let reply = Reply::FabricLogin(self.offer(own).fabric_reply());
        self.outputs.answer(self.flogi_way(index), header, &reply);
    }

    /// FLOGI and its answer go to the node that has claimed the neighbour's address.
    fn flogi_way(&self, index: usize) -> Way {
        Way::Fip(self.peers[index].neighbour.enode, Service::Flogi)
    }

    /// Takes a frame that has come to the port's address. False if it is not one for logins: it is
    /// for others to handle.
    pub fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) -> bool {
        let header = frame.header;
        let is_request = match header.kind {
            Kind::ElsRequest => true,
            Kind::ElsReply => false,
            Kind::Abts => return self.disowns(now, frame),
            _ => return false,
        };
        let code = frame.payload.first().and_then(|code| Code::from_wire(*code));
        if is_request && code.is_some_and(is_of_exchanges) {
            return self.disowns(now, frame);
        }
        let own = self.own.filter(|_| self.is_to_us(&header) && frame.check_destination().is_ok());
        let Some(Own { address, .. }) = own else {
            self.outputs.ignored.not_ours += 1;
            return true;
        };
        let is_real = frame.ethernet.source == address.of_other(header.s_id);
        let index = self.find_id(header.s_id).filter(|_| is_real);
        match (index, is_request, Request::parse(frame.payload)) {
            (Some(index), false, _) => {
                return self.handle_reply(now, index, &header, frame.payload);
            }
            (Some(index), true, Ok(request)) => self.handle_request(now, index, header, &request),
            (None, true, Ok(Request::Logo(logo))) if is_real => {
                self.handle_logo(now, None, Way::Port, header, &logo);
            }
            (None, true, Ok(_)) if is_real && address.fabric.is_some() => {
                // It may think that it is still logged in.
                self.outputs.ignored.stranger += 1;
                self.refuse(Way::Port, &header, Rejection::UNABLE, Rejection::NOT_LOGGED_IN);
            }
            (None, ..) => self.outputs.ignored.stranger += 1,
            (_, _, Err(_)) => {
                self.outputs.ignored.malformed += 1;
                self.refuse(Way::Port, &header, Rejection::UNSUPPORTED, 0);
            }
        }
        true
    }

    /// Tells a port of a fabric that asks about an exchange without a login to begin anew (LOGO):
    /// it knows of one before we were started. False if there may be a login.
    fn disowns(&mut self, now: Instant, frame: &Frame<'_>) -> bool {
        let header = &frame.header;
        let is_ours = self.is_to_us(header) && frame.check_destination().is_ok();
        let own = self.own.filter(|own| is_ours && own.address.fabric.is_some());
        let is_real =
            own.is_some_and(|own| frame.ethernet.source == own.address.of_other(header.s_id));
        let peers = self.peers.iter().filter(|it| it.neighbour.id == header.s_id);
        if !is_real || peers.clone().any(|it| it.login.is_some() || it.is_gone) {
            return false;
        }
        self.outputs.ignored.stranger += 1;
        // One is enough for all that it asks about, and must not end the login that follows.
        if self.disowned_at.is_none_or(|at| at + self.config.e_d_tov <= now) {
            self.disowned_at = Some(now);
            self.send_logo_to(header.s_id, Way::Port);
        }
        true
    }

    fn reply(&mut self, request: &Header, reply: &Reply) {
        self.outputs.answer(Way::Port, request, reply);
    }

    fn refuse(&mut self, way: Way, request: &Header, reason: u8, explanation: u8) {
        let refused = Reply::Refused(Rejection { reason, explanation });
        self.outputs.answer(way, request, &refused);
    }

    fn handle_request(
        &mut self,
        now: Instant,
        index: usize,
        header: Header,
        request: &Request<'_>,
    ) {
        let peer = &self.peers[index];
        let is_logged_in = peer.login.is_some() && peer.stage != Stage::Draining;
        match request {
            Request::Plogi(login) => self.handle_plogi(now, index, header, *login),
            Request::Logo(logo) => self.handle_logo(now, Some(index), Way::Port, header, logo),
            // It has answered our PLOGI, and its answer is late.
            Request::Prli(_) if peer.stage == Stage::Plogi => {
                self.refuse(Way::Port, &header, Rejection::BUSY, 0);
            }
            Request::Prli(_) | Request::Prlo(_) | Request::Rtv | Request::Adisc(_)
                if !is_logged_in =>
            {
                self.refuse(Way::Port, &header, Rejection::UNABLE, Rejection::NOT_LOGGED_IN);
            }
            Request::Prli(process) => self.handle_prli(now, index, &header, process),
            Request::Prlo(_) => {
                let withheld = Withheld { way: Way::Port, header, request: Ending::Prlo };
                self.end(now, index, Cause::Logout, Some(withheld));
            }
            Request::Rtv => {
                let (r_a_tov, e_d_tov) = (self.config.r_a_tov, self.config.e_d_tov);
                let (r_a_tov_ms, e_d_tov) = (millis(r_a_tov), millis(e_d_tov));
                let timeouts = Timeouts { r_a_tov_ms, e_d_tov, e_d_tov_ns: false };
                self.reply(&header, &Reply::Timeouts(timeouts));
            }
            Request::Adisc(_) => {
                let Some(own) = self.own else { return };
                self.reply(&header, &Reply::Adisc(self.adisc(own)));
            }
            _ => self.refuse(Way::Port, &header, Rejection::UNSUPPORTED, 0),
        }
    }

    /// Of two PLOGIs that cross, the one of the higher name counts.
    fn handle_plogi(&mut self, now: Instant, index: usize, header: Header, login: PortLogin) {
        let peer = &self.peers[index];
        if login.wwpn != peer.neighbour.wwpn {
            self.outputs.ignored.stranger += 1;
            self.refuse(Way::Port, &header, Rejection::LOGICAL, 0);
        } else if !is_usable(&login, peer.neighbour.wwpn) {
            self.refuse(Way::Port, &header, Rejection::UNABLE, 0);
        } else if peer.stage == Stage::Plogi && self.config.wwpn > login.wwpn {
            self.refuse(Way::Port, &header, Rejection::IN_PROGRESS, 0);
        } else if peer.has_come(now, header.ox_id, self.is_in_fabric()) {
            // What it has asked since is answered when the login has ended.
            if let Some(own) = self.own.filter(|_| peer.stage != Stage::Draining) {
                self.reply(&header, &Reply::PortLogin(self.offer(own).port_login()));
            }
        } else if !peer.awaits_plogi() && !self.is_in_fabric() {
            // FLOGI comes first, and goes to one interface. PLOGI goes to an N_Port_ID, and may be
            // for another port that has the same.
            self.refuse(Way::Port, &header, Rejection::BUSY, 0);
        } else {
            let withheld = Withheld { way: Way::Port, header, request: Ending::Plogi(login) };
            self.end(now, index, Cause::Anew, Some(withheld));
        }
    }

    /// Takes LOGO of a peer, or of nobody who is known: it is logged out already.
    fn handle_logo(
        &mut self,
        now: Instant,
        index: Option<usize>,
        way: Way,
        header: Header,
        logo: &Logo,
    ) {
        let is_named = |it: &usize| logo.wwpn == self.peers[*it].neighbour.wwpn;
        if let Some(index) = index.filter(is_named) {
            let withheld = Withheld { way, header, request: Ending::Logo };
            self.end(now, index, Cause::Logout, Some(withheld));
        } else {
            self.outputs.ignored.stranger += 1;
            self.outputs.answer(way, &header, &Reply::Accepted);
        }
    }

    fn handle_prli(&mut self, now: Instant, index: usize, header: &Header, process: &Process) {
        let (theirs, ours) = (functions(process), self.config.functions);
        // Two targets, or two initiators, are no pair.
        let image_pair = theirs.initiator && ours.target || theirs.target && ours.initiator;
        let parameters = self.parameters();
        let response = Process::EXECUTED;
        self.reply(header, &Reply::Process(Process { image_pair, response, parameters }));
        let retries = retries(process) && self.config.retries;
        let peer = &mut self.peers[index];
        peer.has_asked |= theirs.initiator;
        let login = peer.login.as_mut().expect("it is logged in");
        let before = *login;
        login.functions.initiator = theirs.initiator && ours.target;
        login.retries = retries;
        login.confirms = process.parameters.has(FcpParameters::CONFIRMED_COMPLETION);
        let (is_changed, is_settled) = (*login != before, peer.stage == Stage::LoggedIn);
        if is_settled {
            self.settle(now, index);
        }
        if is_changed {
            self.report(index);
        }
    }

    /// Answers a request that has ended the former login, and goes on.
    pub(super) fn accept(&mut self, now: Instant, index: usize, request: &Withheld) {
        let Withheld { way, header, request } = request;
        match request {
            Ending::Flogi => {
                self.accept_flogi(index, header);
                self.known(now, index);
                self.peers[index].has_answered = true;
            }
            Ending::Plogi(login) => {
                let Some(own) = self.own else { return };
                let reply = Reply::PortLogin(self.offer(own).port_login());
                self.reply(header, &reply);
                self.peers[index].plogi = Some((header.ox_id, now));
                self.logged_in(now, index, login);
            }
            Ending::Prlo => {
                let parameters = self.parameters();
                let response = Process::EXECUTED;
                let process = Process { image_pair: false, response, parameters };
                self.reply(header, &Reply::Process(process));
                self.pause(index, now + self.config.r_a_tov);
            }
            Ending::Logo => {
                self.outputs.answer(*way, header, &Reply::Accepted);
                // It has said that it ends. If it does not, it begins itself.
                self.pause(index, now + self.config.r_a_tov);
            }
        }
    }

    /// Both ends have agreed about PLOGI. Whoever is an initiator goes on.
    pub(super) fn logged_in(&mut self, now: Instant, index: usize, theirs: &PortLogin) {
        let Some(own) = self.own else { return };
        let peer = &mut self.peers[index];
        let neighbour = peer.neighbour;
        let in_frame = payload_within(neighbour.fcoe_len_max);
        let class3 = theirs.class3.expect("a usable login has class 3").receive_len;
        let payload_max = own.payload_max.min(theirs.receive_len).min(class3).min(in_frame);
        let mut login = Login {
            wwpn: neighbour.wwpn,
            id: neighbour.id,
            mac: own.address.of_other(neighbour.id),
            functions: Functions::default(),
            payload_max: usize::from(payload_max.max(RECEIVE_LEN_MIN) & !3),
            retries: false,
            confirms: false,
            e_d_tov: self.config.e_d_tov,
            r_a_tov: self.config.r_a_tov,
        };
        let is_ns = theirs.features.has(Features::E_D_TOV_NS);
        login.extend(self.config.r_a_tov, in_unit(theirs.e_d_tov, is_ns));
        if let Some(fabric) = own.address.fabric {
            login.extend(fabric.r_a_tov, fabric.e_d_tov);
        }
        peer.login = Some(login);
        if self.config.functions.initiator && neighbour.functions.target {
            self.begin(now, index, Stage::Prli);
        } else {
            self.settle(now, index);
        }
    }
}

/// Whether a code belongs to exchanges, and not to logins.
fn is_of_exchanges(code: Code) -> bool {
    matches!(code, Code::Rrq | Code::Rec | Code::Srr)
}

/// Whether logins with these parameters can be.
pub(super) fn is_usable(login: &PortLogin, wwpn: Wwn) -> bool {
    let has_class3 = login.class3.is_some_and(|it| it.receive_len >= RECEIVE_LEN_MIN);
    login.wwpn == wwpn && login.receive_len >= RECEIVE_LEN_MIN && has_class3
}

/// The functions that a PRLI, or the answer to one, shows.
pub(super) fn functions(process: &Process) -> Functions {
    let has = |bit| process.parameters.has(bit);
    Functions { initiator: has(FcpParameters::INITIATOR), target: has(FcpParameters::TARGET) }
}

/// Whether it shows that sequences are sent again.
pub(super) fn retries(process: &Process) -> bool {
    process.parameters.has(FcpParameters::RETRY)
}
