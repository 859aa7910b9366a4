//! Gate of a link for hosts without a channel: their frames are bounded in rate and number, and
//! a Connect has to prove that it comes from its source address.
//!
//! The rates of an address come before those of the link, and who shows that he knows the target's
//! public key has rates and room of his own: a flood that does not takes nothing from him.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_crypto::{PublicKey, Responder};
use tyche_wire::{
    ChannelId, CipherSuite, Connect, Cookie, Discover, Fence, Kind, Mac, Name, Reject,
    SealedConnect, Ticket, Uuid,
};

use super::keyring::Keyring;
use super::shares::Shares;
use crate::question;
use crate::rules::{Rule, Rules};
use crate::target_end::access::Proven;
use crate::target_end::ticket::Tickets;
use crate::time::{Instant, Pace};

/// Questions of hosts without a channel that wait for the registry at once, as many of those who
/// know the target's key, and as many fences. More are dropped, and their hosts repeat them.
const REQUESTS_MAX: usize = 64;
/// The least time between two frames of a kind that are taken, on average. Lower: sessions get less
/// of the link's thread in a flood. Higher: new hosts wait longer in a flood. A Connect costs most;
/// a Hello does not need the registry.
const DISCOVER_INTERVAL: Duration = Duration::from_micros(100);
const HELLO_INTERVAL: Duration = Duration::from_micros(50);
const CONNECT_INTERVAL: Duration = Duration::from_micros(200);
/// To open a sealed Connect and to seal its answer takes 200 µs.
const SEALED_INTERVAL: Duration = Duration::from_millis(2);
/// Frames of a kind that may come at once.
const BURST: u32 = 64;
/// An address has this part of each of the link's rates, and the same burst. Lower: a single
/// address takes more of a link. Higher: a host with many queues takes longer to connect.
const ADDRESS_PART: u32 = 8;

/// The senders of questions, who have rates and room of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Somebody who has shown nothing.
    Stranger,
    /// Somebody who knows the target's public key, or has heard somebody who does.
    Acquaintance,
}

/// A question of a host that needs the registry.
pub(super) enum Question {
    Discover(Mac, Class, Discover),
    Connect(Asker, Box<Connect>),
    /// Not opened yet.
    SealedConnect(Sealed),
    /// With the channel that it has come on.
    Fence(ChannelId, Box<Fence>),
}

impl Question {
    /// The class of its sender; `None` if that has a channel.
    fn class(&self) -> Option<Class> {
        match self {
            Self::Discover(_, class, _) => Some(*class),
            Self::Connect(Asker { proof: None, .. }, _) => Some(Class::Stranger),
            Self::Connect(..) | Self::SealedConnect(_) => Some(Class::Acquaintance),
            Self::Fence(..) => None,
        }
    }

    /// The places of its class that it may take. For a fence without requests nobody waits.
    fn places(&self) -> usize {
        let is_idle = matches!(self, Self::Fence(_, fence) if fence.tags.is_empty());
        if is_idle { REQUESTS_MAX / 2 } else { REQUESTS_MAX }
    }
}

/// A sealed connect.
pub(super) struct Sealed {
    /// The address that it comes from.
    pub(super) mac: Mac,
    /// When its ticket was issued.
    pub(super) issued: Instant,
    /// The cookie in the header, by which threads of a link divide connects.
    pub(super) cookie: Cookie,
    /// The key of the target that its sender knows, if the target has one.
    pub(super) known: Option<PublicKey>,
    pub(super) connect: Box<SealedConnect>,
}

/// A host that asks for a channel.
pub(super) struct Asker {
    /// Its address.
    pub(super) mac: Mac,
    /// When its ticket was issued.
    pub(super) issued: Instant,
    /// The proof of its identity, if its connect was sealed.
    pub(super) proof: Option<Proof>,
}

/// A host with a key, and what its answer is sealed with.
pub(super) struct Proof {
    /// Of the connect.
    pub(super) attempt: u64,
    /// The key by which the host knows the target.
    pub(super) known: PublicKey,
    /// The target that was asked.
    pub(super) target: Uuid,
    pub(super) host: Proven,
    /// The names by which the host's user knows the target and the export, if he has named them so.
    pub(super) target_name: Name,
    pub(super) export_name: Name,
    /// The suite that is fast at the host.
    pub(super) suite: CipherSuite,
    pub(super) handshake: Box<Responder>,
}

/// The admission filter of one link for frames outside of channels: rate limits, tickets, and the
/// queue of questions for the registry. All that it keeps of unknown hosts is bounded.
pub(super) struct Gate {
    /// By [`Class`].
    discovers: [Pace; 2],
    hellos: [Pace; 2],
    connects: Pace,
    sealed: Pace,
    shares: Shares,
    /// The part of an address that its owner cannot choose.
    origin: fn([u8; 6]) -> [u8; 6],
    tickets: Tickets,
    questions: VecDeque<Question>,
}

impl Gate {
    /// `key`: that of the link's tickets.
    pub(super) fn new(key: u128) -> Self {
        Self {
            discovers: [(); 2].map(|()| Pace::new(DISCOVER_INTERVAL, BURST)),
            hellos: [(); 2].map(|()| Pace::new(HELLO_INTERVAL, BURST)),
            connects: Pace::new(CONNECT_INTERVAL, BURST),
            sealed: Pace::new(SEALED_INTERVAL, BURST),
            shares: Shares::new(key),
            origin: |mac| mac,
            tickets: Tickets::new(key),
            questions: VecDeque::new(),
        }
    }

    /// Sets which addresses count as one: those that `origin` returns the same for.
    pub(super) fn set_origin(&mut self, origin: fn([u8; 6]) -> [u8; 6]) {
        self.origin = origin;
    }

    /// The address that the sender counts as.
    pub(super) fn origin(&self, src: Mac) -> Mac {
        Mac((self.origin)(src.0))
    }

    /// Whether to parse the payload of a frame outside of channels, so that a flood costs little.
    pub(super) fn takes(&mut self, now: Instant, src: Mac, kind: Kind, class: Class) -> bool {
        let index = class as usize;
        let who = ((kind as u8) << 1 | class as u8, self.origin(src));
        let (pace, interval) = match kind {
            Kind::Discover => (&mut self.discovers[index], DISCOVER_INTERVAL),
            Kind::Hello => (&mut self.hellos[index], HELLO_INTERVAL),
            // Their tickets come first.
            _ => return true,
        };
        self.shares.takes(now, who, (interval * ADDRESS_PART, BURST)) && pace.takes(now)
    }

    /// Whether an address has its share of connects of a kind.
    fn shares(&mut self, now: Instant, src: Mac, kind: Kind, interval: Duration) -> bool {
        let who = ((kind as u8) << 1, self.origin(src));
        self.shares.takes(now, who, (interval * ADDRESS_PART, BURST))
    }

    /// A ticket for the host at an address.
    pub(super) fn ticket(&self, now: Instant, to: Mac) -> Ticket {
        self.tickets.issue(now, to)
    }

    /// Queues a Connect with a good ticket.
    ///
    /// # Errors
    /// `Ticket`, or `Busy` if there were too many.
    pub(super) fn connect<R: Rules>(
        &mut self,
        now: Instant,
        src: Mac,
        connect: Connect,
    ) -> Result<(), Reject> {
        let issued = self.check::<R>(now, src, &connect.ticket)?;
        // After the ticket: only hosts that can receive an answer use up the rates.
        if !self.shares(now, src, Kind::Connect, CONNECT_INTERVAL) || !self.connects.takes(now) {
            return Err(Reject::Busy);
        }
        let asker = Asker { mac: src, issued, proof: None };
        self.ask(Question::Connect(asker, Box::new(connect)))
    }

    /// The same for a sealed one. `keyring`: the target's keys, if it has any.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); and `Forged` if it does not show that its sender knows one
    /// of the keys.
    pub(super) fn connect_sealed<R: Rules>(
        &mut self,
        now: Instant,
        src: Mac,
        (cookie, connect): (Cookie, SealedConnect),
        keyring: Option<&Keyring>,
    ) -> Result<(), Reject> {
        let issued = self.check::<R>(now, src, &connect.ticket)?;
        let proves = |key: &_| question::connect_proof(key, cookie, &connect) == connect.proof;
        let known = match keyring {
            Some(keyring) => Some(keyring.find(proves).ok_or(Reject::Forged)?),
            None => None,
        };
        if !self.shares(now, src, Kind::SealedConnect, SEALED_INTERVAL) || !self.sealed.takes(now) {
            return Err(Reject::Busy);
        }
        let connect = Box::new(connect);
        self.ask(Question::SealedConnect(Sealed { mac: src, issued, cookie, known, connect }))
    }

    /// When the ticket of a connect was issued.
    fn check<R: Rules>(&self, now: Instant, src: Mac, ticket: &Ticket) -> Result<Instant, Reject> {
        match self.tickets.check(now, src, ticket) {
            Err(_) if !R::keeps(Rule::CheckTicket) => Ok(now),
            checked => checked,
        }
    }

    /// Queues a question if there is room. Fences have room of their own, because writes wait for
    /// them, and so have those who know the target's key.
    ///
    /// # Errors
    /// `Busy` if there is no room.
    pub(super) fn ask(&mut self, question: Question) -> Result<(), Reject> {
        let class = question.class();
        let alike = self.questions.iter().filter(|it| it.class() == class);
        if alike.count() >= question.places() {
            return Err(Reject::Busy);
        }
        self.questions.push_back(question);
        Ok(())
    }

    /// Keeps a question that could not be answered yet.
    pub(super) fn keep(&mut self, question: Question) {
        self.questions.push_back(question);
    }

    /// Drops all questions: the link ends.
    pub(super) fn forget_questions(&mut self) {
        self.questions.clear();
    }

    /// Questions that wait.
    pub(super) fn waiting(&self) -> usize {
        self.questions.len()
    }

    /// The next question.
    pub(super) fn poll_question(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::{ConnectFlags, Cookie, Name, Tag, Uuid};

    use super::*;
    use crate::rules::AllRules;

    const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const NOW: Instant = Instant(1_000_000_000);
    /// The request that a fence is for.
    const NEEDED: [Tag; 1] = [Tag { slot: 1, generation: 1 }];

    fn connect(ticket: Ticket) -> Connect {
        Connect {
            attempt: 1,
            ticket,
            target: Uuid::from_u128(1),
            host: Uuid::from_u128(2),
            session: Uuid::from_u128(3),
            device: Uuid::from_u128(3),
            export: Uuid::from_u128(4),
            host_name: Name::EMPTY,
            cookie: Cookie(5),
            channel: ChannelId(0),
            queue_size: 8,
            rings: [256; 2],
            frame_len: 1514,
            damq_pages: 256,
            flags: ConnectFlags::NONE,
            keep_alive_ms: 3000,
        }
    }

    fn discover() -> Question {
        Question::Discover(HOST, Class::Stranger, Discover::any(1, Uuid::from_u128(2)))
    }

    fn fence(tags: &[Tag]) -> Question {
        let tags = tags.iter().copied().collect();
        let fence = Fence { cookie: Cookie(5), channel: ChannelId(0), tags };
        Question::Fence(ChannelId(1), Box::new(fence))
    }

    #[test]
    fn a_connect_needs_a_ticket_of_its_address() {
        let mut gate = Gate::new(7);
        let ticket = gate.ticket(NOW, HOST);
        let none = connect(Ticket::NONE);
        assert_eq!(gate.connect::<AllRules>(NOW, HOST, none), Err(Reject::Ticket));
        let other = Mac([2, 0, 0, 0, 0, 2]);
        assert_eq!(gate.connect::<AllRules>(NOW, other, connect(ticket)), Err(Reject::Ticket));
        assert_eq!(gate.waiting(), 0);
        let later = NOW + Duration::from_millis(3);
        assert_eq!(gate.connect::<AllRules>(later, HOST, connect(ticket)), Ok(()));
        let question = gate.poll_question();
        let Some(Question::Connect(asker, _)) = question else { panic!("it is a connect") };
        assert_eq!((asker.mac, asker.issued), (HOST, NOW));
    }

    #[test]
    fn hosts_that_cannot_receive_answers_use_up_no_rate() {
        let mut gate = Gate::new(7);
        let ticket = gate.ticket(NOW, HOST);
        for _ in 0..10 * BURST {
            let forged = gate.connect::<AllRules>(NOW, HOST, connect(Ticket::NONE));
            assert_eq!(forged, Err(Reject::Ticket));
        }
        for _ in 0..BURST {
            assert_eq!(gate.connect::<AllRules>(NOW, HOST, connect(ticket)), Ok(()));
            assert!(gate.poll_question().is_some());
        }
        assert_eq!(gate.connect::<AllRules>(NOW, HOST, connect(ticket)), Err(Reject::Busy));
        let later = NOW + CONNECT_INTERVAL * ADDRESS_PART;
        assert_eq!(gate.connect::<AllRules>(later, HOST, connect(ticket)), Ok(()));
    }

    #[test]
    fn each_kind_and_class_has_a_rate_of_its_own() {
        let mut gate = Gate::new(7);
        let (stranger, known) = (Class::Stranger, Class::Acquaintance);
        let mut taken =
            |kind, class| (0..640).filter(|_| gate.takes(NOW, HOST, kind, class)).count();
        for kind in [Kind::Discover, Kind::Hello] {
            assert_eq!(taken(kind, stranger), BURST as usize);
            assert_eq!(taken(kind, known), BURST as usize);
        }
        assert_eq!(taken(Kind::Connect, stranger), 640, "the ticket goes first");
    }

    /// Counts what is taken of a flood of one address, and of a host beside it that asks once in
    /// 10 ms, in 10 s.
    fn beside_a_flood(mut takes: impl FnMut(&mut Gate, Instant, Mac) -> bool) -> [usize; 2] {
        let (mut gate, flooder) = (Gate::new(7), Mac([2, 0, 0, 0, 0, 9]));
        let mut taken = [0; 2];
        for tick in 0..100_000 {
            let now = NOW + Duration::from_micros(100) * tick;
            taken[0] += usize::from(takes(&mut gate, now, flooder));
            if tick % 100 == 0 {
                taken[1] += usize::from(takes(&mut gate, now, HOST));
            }
            while gate.poll_question().is_some() {}
        }
        taken
    }

    #[test]
    fn a_flood_of_one_address_leaves_others_the_link() {
        let stranger = Class::Stranger;
        let [flood, host] = beside_a_flood(|gate, now, src| {
            (0..4).fold(false, |_, _| gate.takes(now, src, Kind::Hello, stranger))
        });
        assert!(flood < 100_000 && host == 1000, "{flood} {host}");
        let [flood, host] = beside_a_flood(|gate, now, src| {
            let ticket = gate.ticket(now, src);
            gate.connect::<AllRules>(now, src, connect(ticket)).is_ok()
        });
        assert!((6_000..6_400).contains(&flood) && host == 1000, "{flood} {host}");
    }

    fn sealed(gate: &Gate, now: Instant, src: Mac, key: Option<&PublicKey>) -> SealedConnect {
        let (ticket, target) = (gate.ticket(now, src), Uuid::from_u128(1));
        let (message, proof) = ([7; SealedConnect::MESSAGE_LEN], [7; SealedConnect::PROOF_LEN]);
        let mut connect = SealedConnect { attempt: now.0, ticket, target, message, proof };
        if let Some(key) = key {
            connect.proof = question::connect_proof(key, Cookie(0), &connect);
        }
        connect
    }

    /// No frame of somebody who does not know the key costs a multiplication on the curve, and
    /// who knows it takes the share of one address.
    #[test]
    fn a_flood_of_sealed_connects_leaves_others_the_link() {
        let key = tyche_crypto::SecretKey::from_random([1; 32]);
        let (keyring, key) = (Keyring::new(key.clone().into()), key.public());
        for knows in [false, true] {
            let [flood, host] = beside_a_flood(|gate, now, src| {
                let known = Some(&key).filter(|_| knows || src == HOST);
                let connect = sealed(gate, now, src, known);
                // A host asks seldom.
                if src == HOST && !now.0.is_multiple_of(100_000_000) {
                    return true;
                }
                let keyring = Some(&keyring);
                gate.connect_sealed::<AllRules>(now, src, (Cookie(0), connect), keyring).is_ok()
            });
            let most = if knows { 10_000 / 16 + BURST as usize } else { 0 };
            assert!(flood <= most && host == 1000, "{flood} {host}");
        }
    }

    #[test]
    fn a_changed_sealed_connect_shows_nothing() {
        let (mut gate, key) = (Gate::new(7), tyche_crypto::SecretKey::from_random([1; 32]));
        let (keyring, key) = (Keyring::new(key.clone().into()), key.public());
        let connect = sealed(&gate, NOW, HOST, Some(&key));
        let mut ask = |cookie, connect: SealedConnect| {
            gate.connect_sealed::<AllRules>(NOW, HOST, (Cookie(cookie), connect), Some(&keyring))
        };
        assert_eq!(ask(1, connect.clone()), Err(Reject::Forged));
        let changed = SealedConnect { attempt: 1, ..connect.clone() };
        assert_eq!(ask(0, changed), Err(Reject::Forged));
        let mut changed = connect.clone();
        changed.message[9] ^= 1;
        assert_eq!(ask(0, changed), Err(Reject::Forged));
        assert_eq!(ask(0, connect), Ok(()));
    }

    #[test]
    fn strangers_take_no_room_of_those_who_know_the_key() {
        let mut gate = Gate::new(7);
        while gate.ask(discover()).is_ok() {}
        let known = Discover::any(1, Uuid::from_u128(2));
        let ask = Question::Discover(HOST, Class::Acquaintance, known);
        assert_eq!(gate.ask(ask), Ok(()));
    }

    #[test]
    fn fences_have_room_of_their_own() {
        let mut gate = Gate::new(7);
        for _ in 0..REQUESTS_MAX {
            assert_eq!(gate.ask(discover()), Ok(()));
        }
        assert_eq!(gate.ask(discover()), Err(Reject::Busy));
        // Nobody waits for those of channels without requests.
        for _ in 0..REQUESTS_MAX / 2 {
            assert_eq!(gate.ask(fence(&[])), Ok(()));
        }
        assert_eq!(gate.ask(fence(&[])), Err(Reject::Busy));
        for _ in 0..REQUESTS_MAX / 2 {
            assert_eq!(gate.ask(fence(&NEEDED)), Ok(()));
        }
        assert_eq!(gate.ask(fence(&NEEDED)), Err(Reject::Busy));
        assert!(matches!(gate.poll_question(), Some(Question::Discover(..))));
        assert_eq!(gate.ask(fence(&NEEDED)), Err(Reject::Busy), "that was another's place");
        assert_eq!(gate.ask(discover()), Ok(()));
    }
}
