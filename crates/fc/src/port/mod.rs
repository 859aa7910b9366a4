//! Logins with neighbours (FC-LS-2, FC-BB-6).
//!
//! ```text
//!       one end, or both       the higher name        who is an initiator
//!  Pause ──► FLOGI (FIP) ──┬──► PLOGI ──────────┬──► PRLI ──► RTV ──► logged in
//!    ▲                     └──► wait for it ────┘
//!    └── no answer, or refused
//! ```
//!
//! In a fabric there is no FLOGI between neighbours, and an initiator sends PLOGI whatever the
//! names. If the fabric doubts that a neighbour is what it was, ADISC asks it.
//!
//! Each request is answered within 2 × R_A_TOV, or sent again, three times; an answer that the
//! other end is busy has it sent again after E_D_TOV. As long as the neighbour is present, attempts
//! do not end: the other end may have forgotten us, or not yet forgotten what we were.
//!
//! A login ends with the neighbour, with its LOGO or PRLO, and if it begins anew. Then all
//! exchanges have ended. What they had at work may still modify a disk, so neither is the other
//! end's request answered, nor is there another login, before the user says that this is
//! [over](Logins::drained).
//!
//! One input ([`handle_neighbour`](Logins::handle_neighbour), [`handle_fip`](Logins::handle_fip),
//! [`handle_frame`](Logins::handle_frame), [`drained`](Logins::drained),
//! [`handle_timeout`](Logins::handle_timeout)), then drain the outputs:
//! [`poll_event`](Logins::poll_event) and [`poll_transmit`](Logins::poll_transmit) until `None`.
//! [`poll_timeout`](Logins::poll_timeout) says how long to wait for the next input.

mod gone;
mod offer;
mod outputs;
mod peer;
mod replies;
mod requests;
mod way;

use std::collections::VecDeque;
use std::time::Duration;

use tyche_fc_wire::els::{Adisc, Code, FcpParameters, Logo, Process, Request};
use tyche_fc_wire::fip::Service;
use tyche_fc_wire::{FRAME_LEN_MAX, Header, Kind, Mac, PortId, Wwn, Xid};
use tyche_time::{Instant, earliest};

pub use outputs::{Carrier, Cause, Event, Failure, Ignored};
pub use peer::Login;

pub(crate) use offer::Offer;
pub(crate) use peer::in_unit;

use crate::exchange::Xids;
use crate::neighbour::{self, Address, Functions, Interface, NEIGHBOURS_MAX, Neighbour};
use crate::numbers::Numbers;
use crate::{AllRules, Rule, Rules};
use gone::GoneNeighbours;
use outputs::Outputs;
use peer::{Peer, Stage, Withheld};
use way::Way;

/// How often a request is sent again before its attempt has failed.
const REPEATS_MAX: u32 = 3;
/// The most ports that are remembered: neighbours, and those that are drained although gone.
const PEERS_MAX: usize = 2 * NEIGHBOURS_MAX;
/// The configuration of a port, which does not change.
#[derive(Clone, Copy, Debug)]
pub struct LoginsConfig {
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// Its functions.
    pub functions: Functions,
    /// Whether it sends sequences again on request (REC, SRR).
    pub retries: bool,
    /// E_D_TOV, 2 s by default: a whole number of milliseconds.
    pub e_d_tov: Duration,
    /// R_A_TOV, 10 s by default: the same.
    pub r_a_tov: Duration,
    /// The numbers of its exchanges. There must be more than neighbours.
    pub exchanges: Xids,
    /// A random number, from which the first of them follows: an answer to an earlier process is
    /// none to this one.
    pub seed: u64,
}

/// The port's own addresses.
#[derive(Clone, Copy)]
struct Own {
    address: Address,
    enode: Mac,
    /// The most bytes of a frame's payload.
    payload_max: u16,
}

/// The state machine of all logins of one port, without I/O. It tells its user when a login begins
/// and ends, and makes no new one with a neighbour before the user has drained the former one.
pub struct Logins<R = AllRules> {
    rules: R,
    config: LoginsConfig,
    /// `None` while the port has no address.
    own: Option<Own>,
    peers: Vec<Peer>,
    gone: GoneNeighbours,
    /// Neighbours whose N_Port_ID another port may still hold.
    held: VecDeque<Neighbour>,
    /// When to look at them again.
    held_at: Option<Instant>,
    /// Whether the user has logged out everywhere: no neighbour is a peer from then on.
    is_over: bool,
    numbers: Numbers,
    /// When a port without a login was told so last.
    disowned_at: Option<Instant>,
    /// No timer expires before.
    timer: Option<Instant>,
    outputs: Outputs,
}

impl Logins {
    /// No login yet.
    ///
    /// # Panics
    /// If there are fewer exchanges than neighbours.
    pub fn new(config: LoginsConfig) -> Self {
        Self::with_rules(config, AllRules)
    }
}

impl<R: Rules> Logins<R> {
    /// The same, by rules of a simulation.
    ///
    /// # Panics
    /// If there are fewer exchanges than neighbours.
    pub fn with_rules(config: LoginsConfig, rules: R) -> Self {
        let count = usize::from(config.exchanges.count());
        assert!(count > PEERS_MAX, "{count} exchanges");
        Self {
            rules,
            own: None,
            peers: Vec::with_capacity(PEERS_MAX),
            gone: GoneNeighbours::new(),
            held: VecDeque::with_capacity(NEIGHBOURS_MAX),
            held_at: None,
            is_over: false,
            numbers: Numbers::new(config.exchanges, config.seed),
            disowned_at: None,
            timer: None,
            outputs: Outputs::default(),
            config,
        }
    }

    /// The logins that have been reported.
    pub fn logins(&self) -> impl Iterator<Item = &Login> {
        self.peers.iter().filter(|it| it.is_reported).filter_map(|it| it.login.as_ref())
    }

    /// Counters of ignored frames, since the start.
    pub fn ignored(&self) -> Ignored {
        self.outputs.ignored
    }

    /// Takes an event of the port's address and neighbours. `interface` is the one that it is on.
    pub fn handle_neighbour(
        &mut self,
        now: Instant,
        event: neighbour::Event,
        interface: Interface,
    ) {
        match event {
            neighbour::Event::Claimed(address) => {
                let payload_max = address.payload_max(interface);
                self.own = Some(Own { address, enode: interface.mac, payload_max });
            }
            neighbour::Event::Released(_) => self.own = None,
            neighbour::Event::Appeared(_) if self.is_over => {}
            neighbour::Event::Appeared(neighbour) => self.appear(now, neighbour),
            neighbour::Event::Doubtful(neighbour) => self.verify_login(now, neighbour),
            neighbour::Event::Gone(neighbour) => self.vanish(now, neighbour),
        }
    }

    /// Whether the port is in a fabric, which gives each N_Port_ID to one port only.
    fn is_in_fabric(&self) -> bool {
        self.own.is_some_and(|own| own.address.fabric.is_some())
    }

    /// Asks a neighbour whether it is still what it was when it logged in, or for a login if there
    /// was no reason for one.
    fn verify_login(&mut self, now: Instant, neighbour: Neighbour) {
        let Some(index) = self.find(neighbour.wwpn) else { return };
        let peer = &mut self.peers[index];
        peer.neighbour = neighbour;
        match peer.stage {
            Stage::LoggedIn | Stage::Adisc => self.begin(now, index, Stage::Adisc),
            Stage::PlogiWait => self.start(now, index),
            _ => {}
        }
    }

    fn vanish(&mut self, now: Instant, neighbour: Neighbour) {
        self.held.retain(|it| it.wwpn != neighbour.wwpn);
        let Some(index) = self.find(neighbour.wwpn) else { return };
        if !self.is_in_fabric() {
            self.gone.note(now, neighbour);
        }
        let peer = &mut self.peers[index];
        (peer.is_gone, peer.withheld) = (true, None);
        self.end(now, index, Cause::Gone, None);
    }

    /// A neighbour has shown itself: that is where it has its logins now. It is a peer as soon as
    /// its N_Port_ID is its own.
    fn appear(&mut self, now: Instant, neighbour: Neighbour) {
        self.gone.forget(neighbour.wwpn);
        self.admit(now, neighbour);
        self.admit_held(now);
    }

    /// Looks again at neighbours whose N_Port_ID another port had.
    fn admit_held(&mut self, now: Instant) {
        self.held_at = None;
        for _ in 0..self.held.len() {
            let neighbour = self.held.pop_front().expect("as many as it had");
            self.admit(now, neighbour);
        }
    }

    fn admit(&mut self, now: Instant, neighbour: Neighbour) {
        if self.rules.keeps(Rule::AwaitFormer) && self.is_held(now, &neighbour) {
            self.held.push_back(neighbour);
        } else {
            self.add(now, neighbour);
        }
    }

    /// Whether another port may still hold a neighbour's N_Port_ID; if so, it is asked to log out.
    fn is_held(&mut self, now: Instant, neighbour: &Neighbour) -> bool {
        let Some(former) = self.gone.holder(now, neighbour.id, neighbour.wwpn) else {
            return false;
        };
        let (holder, until) = (former.neighbour, former.until);
        let mut again = former.logo.map_or(now, |logo| logo.1);
        if again <= now {
            again = now + self.config.e_d_tov;
            let logo = self.send_logo(&holder).map(|exchange| (exchange, again));
            let former = self.gone.holder(now, neighbour.id, neighbour.wwpn);
            former.expect("it was found").logo = logo;
        }
        let at = again.min(until);
        self.held_at = earliest(self.held_at, Some(at));
        self.timer = earliest(self.timer, Some(at));
        true
    }

    fn add(&mut self, now: Instant, neighbour: Neighbour) {
        if let Some(index) = self.find(neighbour.wwpn) {
            // It was gone, and its login is still drained. It does not wait any more for the answer
            // to what it has asked under its former N_Port_ID.
            let peer = &mut self.peers[index];
            (peer.neighbour, peer.is_gone, peer.withheld) = (neighbour, false, None);
        } else if self.peers.len() < PEERS_MAX {
            self.peers.push(Peer::new(neighbour));
            self.start(now, self.peers.len() - 1);
        } else {
            self.outputs.ignored.no_room += 1;
        }
    }

    /// Takes the user's confirmation that nothing of a login that has ended is at work any more.
    pub fn drained(&mut self, now: Instant, wwpn: Wwn) {
        let index = self.find(wwpn);
        if let Some(index) = index.filter(|it| self.peers[*it].stage == Stage::Draining) {
            self.proceed(now, index);
        }
    }

    /// Ends a login, to begin anew: the user can't go on with it.
    pub fn restart(&mut self, now: Instant, wwpn: Wwn) {
        let index = self.find(wwpn);
        if let Some(index) = index.filter(|it| self.peers[*it].is_reported) {
            let neighbour = self.peers[index].neighbour;
            self.send_logo(&neighbour);
            self.end(now, index, Cause::User, None);
        }
    }

    /// Logs out everywhere, for the end of the program: others need not wait for our silence. There
    /// are no logins from now on.
    pub fn log_out(&mut self) {
        self.is_over = true;
        for index in 0..self.peers.len() {
            let Peer { neighbour, login, is_reported, .. } = self.peers[index];
            if login.is_some() {
                self.send_logo(&neighbour);
            }
            if is_reported {
                let logged_out = Event::LoggedOut(neighbour.wwpn, Cause::User);
                self.outputs.events.push_back(logged_out);
            }
        }
        self.peers.clear();
        self.held.clear();
        (self.timer, self.held_at) = (None, None);
    }

    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.timer.is_none_or(|at| now < at) {
            return;
        }
        for index in 0..self.peers.len() {
            if self.peers[index].at.is_some_and(|at| at <= now) {
                self.peers[index].at = None;
                self.expire(now, index);
            }
        }
        if self.held_at.is_some_and(|at| at <= now) {
            self.admit_held(now);
        }
        let first = self.peers.iter().filter_map(|it| it.at).min();
        self.timer = earliest(first, self.held_at);
    }

    fn expire(&mut self, now: Instant, index: usize) {
        match self.peers[index].stage {
            Stage::Pause | Stage::PlogiWait => self.start(now, index),
            Stage::LoggedIn if self.lacks(index).target => self.begin(now, index, Stage::Prli),
            // Both ends have another opinion of where they are.
            Stage::LoggedIn => self.give_up(now, index),
            // No answer, or the other end was busy.
            Stage::Flogi | Stage::Plogi | Stage::Prli | Stage::Rtv | Stage::Adisc => {
                self.repeat(now, index);
            }
            Stage::Draining => unreachable!("only the user ends it"),
        }
    }

    /// Ends a login that the other end does not complete.
    fn give_up(&mut self, now: Instant, index: usize) {
        if self.is_in_fabric() {
            // There is no FLOGI, which would tell it.
            let neighbour = self.peers[index].neighbour;
            self.send_logo(&neighbour);
        }
        self.end(now, index, Cause::Anew, None);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outputs.events.pop_front()
    }

    /// Writes the next frame to send, from its destination address on; returns its link and length.
    pub fn poll_transmit(&mut self, buffer: &mut [u8; FRAME_LEN_MAX]) -> Option<(Carrier, usize)> {
        loop {
            let frame = self.outputs.next_frame()?;
            // Without an address of our own, nothing can be sent any more.
            if let Some(own) = &self.own {
                return Some(frame.emit((own.enode, &own.address), buffer));
            }
        }
    }

    fn find(&self, wwpn: Wwn) -> Option<usize> {
        self.peers.iter().position(|it| it.neighbour.wwpn == wwpn)
    }

    /// The peer with that N_Port_ID. One that is gone may still drain, and another have taken its
    /// N_Port_ID: that one, then.
    fn find_id(&self, id: PortId) -> Option<usize> {
        let peers = self.peers.iter().enumerate().filter(|(_, it)| it.neighbour.id == id);
        peers.min_by_key(|(_, it)| it.is_gone).map(|(index, _)| index)
    }

    fn set_timer(&mut self, index: usize, at: Instant) {
        self.peers[index].at = Some(at);
        self.timer = earliest(self.timer, Some(at));
    }

    fn pause(&mut self, index: usize, until: Instant) {
        self.peers[index].stage = Stage::Pause;
        self.set_timer(index, until);
    }

    /// Begins a login.
    fn start(&mut self, now: Instant, index: usize) {
        if !self.is_in_fabric() {
            self.begin(now, index, Stage::Flogi);
        } else if self.config.functions.initiator && self.peers[index].neighbour.functions.target {
            self.begin(now, index, Stage::Plogi);
        } else {
            // An initiator asks, whenever it likes.
            (self.peers[index].stage, self.peers[index].at) = (Stage::PlogiWait, None);
        }
    }

    /// Begins a stage with its request.
    fn begin(&mut self, now: Instant, index: usize, stage: Stage) {
        let peer = &mut self.peers[index];
        (peer.stage, peer.repeats) = (stage, 0);
        if stage == Stage::Flogi {
            (peer.has_answered, peer.login, peer.plogi) = (false, None, None);
        }
        self.send_request(now, index);
    }

    /// Sends the request of the stage again, or gives up.
    fn repeat(&mut self, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        if peer.repeats < REPEATS_MAX {
            peer.repeats += 1;
            self.send_request(now, index);
        } else {
            self.fail(now, index, Failure::Silence);
        }
    }

    fn send_request(&mut self, now: Instant, index: usize) {
        let Some(own) = self.own else { return };
        let ox_id = self.numbers.take();
        let request = match self.peers[index].stage {
            Stage::Flogi => Request::Flogi(self.offer(own).fabric_request()),
            Stage::Plogi => Request::Plogi(self.offer(own).port_login()),
            Stage::Prli => Request::Prli(Process {
                image_pair: true,
                response: 0,
                parameters: self.parameters(),
            }),
            Stage::Rtv => Request::Rtv,
            Stage::Adisc => Request::Adisc(self.adisc(own)),
            stage => unreachable!("{stage:?} has no request"),
        };
        let peer = &mut self.peers[index];
        peer.ox_id = Some(ox_id);
        let Neighbour { id, enode, .. } = peer.neighbour;
        let (is_flogi, is_adisc) = (peer.stage == Stage::Flogi, peer.stage == Stage::Adisc);
        let way = if is_flogi { Way::Fip(enode, Service::Flogi) } else { Way::Port };
        let header = Header::request(Kind::ElsRequest, own.address.id, id, ox_id);
        self.outputs.ask(way, header, &request);
        // A repeated ADISC does no harm.
        let e_d_tov = peer.login.map(|it| it.e_d_tov).filter(|_| is_adisc);
        let time_out = e_d_tov.unwrap_or(self.config.r_a_tov);
        self.set_timer(index, now + 2 * time_out);
    }

    /// Asks a port to end its login with us; returns the exchange.
    fn send_logo(&mut self, to: &Neighbour) -> Option<Xid> {
        let way = if self.is_in_fabric() { Way::Port } else { Way::Fip(to.enode, Service::Logo) };
        self.send_logo_to(to.id, way)
    }

    fn send_logo_to(&mut self, to: PortId, way: Way) -> Option<Xid> {
        let id = self.own?.address.id;
        let ox_id = self.numbers.take();
        let header = Header::request(Kind::ElsRequest, id, to, ox_id);
        let logo = Request::Logo(Logo { id, wwpn: self.config.wwpn });
        self.outputs.ask(way, header, &logo);
        Some(ox_id)
    }

    /// The attempt has failed: there will be another.
    fn fail(&mut self, now: Instant, index: usize, failure: Failure) {
        let peer = &mut self.peers[index];
        let code = peer.request().expect("only requests fail");
        peer.ox_id = None;
        if code == Code::Rtv {
            // It may be refused: our own time-outs hold.
            self.agree(now, index);
            return;
        }
        self.outputs.events.push_back(Event::Failed(peer.neighbour.wwpn, code, failure));
        if code == Code::Adisc {
            self.end(now, index, Cause::Anew, None);
        } else if code == Code::Prli {
            // The other end may still ask us.
            peer.stage = Stage::LoggedIn;
            self.set_timer(index, now + self.config.r_a_tov);
        } else {
            self.pause(index, now + self.config.e_d_tov);
        }
    }

    /// Our requests are done: reports the login.
    fn agree(&mut self, now: Instant, index: usize) {
        self.settle(now, index);
        self.report(index);
    }

    /// Waits for PRLI of an initiator, if it is missing. A late PLOGI, repeated by the network, may
    /// have ended a login of which the other end still thinks that it is good.
    fn settle(&mut self, now: Instant, index: usize) {
        let lacks = self.lacks(index);
        let peer = &mut self.peers[index];
        (peer.stage, peer.at, peer.ox_id) = (Stage::LoggedIn, None, None);
        let is_idle = peer.login.is_none_or(|it| !it.functions.target);
        if lacks.target || lacks.initiator && (is_idle || peer.has_asked) {
            self.set_timer(index, now + 2 * self.config.r_a_tov);
        }
    }

    /// The functions of a neighbour that are of use to us, and not agreed yet.
    fn lacks(&self, index: usize) -> Functions {
        let Peer { neighbour, login, .. } = &self.peers[index];
        let (ours, theirs) = (self.config.functions, neighbour.functions);
        let agreed = login.map_or(Functions::default(), |it| it.functions);
        Functions {
            initiator: ours.target && theirs.initiator && !agreed.initiator,
            target: ours.initiator && theirs.target && !agreed.target,
        }
    }

    /// Reports a login if it is of use.
    fn report(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let login = peer.login.filter(|it| it.functions.initiator || it.functions.target);
        let is_agreed = matches!(peer.stage, Stage::LoggedIn | Stage::Adisc);
        if let Some(login) = login.filter(|_| is_agreed) {
            peer.is_reported = true;
            self.outputs.events.push_back(Event::LoggedIn(login));
        }
    }

    /// Ends a login, if there is one; then goes on with the request that has caused it.
    fn end(&mut self, now: Instant, index: usize, cause: Cause, withheld: Option<Withheld>) {
        let peer = &mut self.peers[index];
        (peer.at, peer.ox_id) = (None, None);
        // The newest request is the one that the other end waits for.
        peer.withheld = withheld.or(peer.withheld);
        if peer.stage == Stage::Draining {
            return;
        }
        if !peer.is_reported {
            self.proceed(now, index);
            return;
        }
        (peer.stage, peer.is_reported) = (Stage::Draining, false);
        self.outputs.events.push_back(Event::LoggedOut(peer.neighbour.wwpn, cause));
    }

    /// Goes on when the former login has ended.
    fn proceed(&mut self, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        (peer.login, peer.plogi) = (None, None);
        if peer.is_gone {
            self.peers.swap_remove(index);
            return;
        }
        peer.stage = Stage::Pause;
        match peer.withheld.take() {
            Some(request) => self.accept(now, index, &request),
            None => self.start(now, index),
        }
    }

    fn offer(&self, own: Own) -> Offer {
        let LoginsConfig { wwpn, wwnn, e_d_tov, r_a_tov, .. } = self.config;
        Offer { wwpn, wwnn, payload_max: own.payload_max, e_d_tov, r_a_tov }
    }

    fn adisc(&self, own: Own) -> Adisc {
        Adisc { wwpn: self.config.wwpn, wwnn: self.config.wwnn, id: own.address.id }
    }

    /// Our parameters for FCP.
    fn parameters(&self) -> FcpParameters {
        let LoginsConfig { functions, retries, .. } = self.config;
        let all = [
            (functions.initiator, FcpParameters::INITIATOR),
            (functions.target, FcpParameters::TARGET),
            (retries, FcpParameters::RETRY),
            (true, FcpParameters::CONFIRMED_COMPLETION),
        ];
        let set = all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit);
        set.fold(FcpParameters::READ_XFER_RDY_DISABLED, FcpParameters::with)
    }
}

impl<R> std::fmt::Debug for Logins<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stages = self.peers.iter().map(|it| (it.neighbour.wwpn, it.stage));
        f.debug_map().entries(stages).finish()
    }
}
