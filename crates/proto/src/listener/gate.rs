//! Gate of a link for hosts without a channel: their frames are bounded in rate and number, and
//! a Connect has to prove that it comes from its source address.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_crypto::Responder;
use tyche_wire::{
    ChannelId, CipherSuite, Connect, Cookie, Discover, Fence, Kind, Mac, Name, Reject,
    SealedConnect, Ticket, Uuid,
};

use crate::access::Proven;
use crate::rules::{Rule, Rules};
use crate::ticket::Tickets;
use crate::time::{Instant, Pace};

/// Questions of hosts without a channel that wait for the registry at once, and as many fences.
/// More are dropped, and their hosts repeat them.
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

/// A question of a host that needs the registry.
pub(super) enum Question {
    Discover(Mac, Discover),
    Connect(Asker, Box<Connect>),
    /// Not opened yet.
    SealedConnect(Sealed),
    /// With the channel that it has come on.
    Fence(ChannelId, Box<Fence>),
}

/// A sealed connect.
pub(super) struct Sealed {
    /// The address that it comes from.
    pub(super) mac: Mac,
    /// When its ticket was issued.
    pub(super) issued: Instant,
    /// The cookie in the header, by which threads of a link divide connects.
    pub(super) cookie: Cookie,
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
    /// The target that was asked.
    pub(super) target: Uuid,
    pub(super) host: Proven,
    /// The name by which the host's user knows the export, if he has named it so.
    pub(super) export_name: Name,
    /// The suite that is fast at the host.
    pub(super) suite: CipherSuite,
    pub(super) handshake: Box<Responder>,
}

/// See the module.
pub(super) struct Gate {
    discovers: Pace,
    hellos: Pace,
    connects: Pace,
    sealed: Pace,
    tickets: Tickets,
    questions: VecDeque<Question>,
}

impl Gate {
    /// `key`: that of the link's tickets.
    pub(super) fn new(key: u128) -> Self {
        Self {
            discovers: Pace::new(DISCOVER_INTERVAL, BURST),
            hellos: Pace::new(HELLO_INTERVAL, BURST),
            connects: Pace::new(CONNECT_INTERVAL, BURST),
            sealed: Pace::new(SEALED_INTERVAL, BURST),
            tickets: Tickets::new(key),
            questions: VecDeque::new(),
        }
    }

    /// Whether to parse the payload of a frame outside of channels, so that a flood costs little.
    pub(super) fn takes(&mut self, now: Instant, kind: Kind) -> bool {
        match kind {
            Kind::Discover => self.discovers.takes(now),
            Kind::Hello => self.hellos.takes(now),
            _ => true,
        }
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
        // After the ticket: only hosts that can receive an answer use up the rate.
        if !self.connects.takes(now) {
            return Err(Reject::Busy);
        }
        let asker = Asker { mac: src, issued, proof: None };
        self.ask(Question::Connect(asker, Box::new(connect)))
    }

    /// The same for a sealed one.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub(super) fn connect_sealed<R: Rules>(
        &mut self,
        now: Instant,
        src: Mac,
        cookie: Cookie,
        connect: SealedConnect,
    ) -> Result<(), Reject> {
        let issued = self.check::<R>(now, src, &connect.ticket)?;
        if !self.sealed.takes(now) {
            return Err(Reject::Busy);
        }
        let connect = Box::new(connect);
        self.ask(Question::SealedConnect(Sealed { mac: src, issued, cookie, connect }))
    }

    /// When the ticket of a connect was issued.
    fn check<R: Rules>(&self, now: Instant, src: Mac, ticket: &Ticket) -> Result<Instant, Reject> {
        match self.tickets.check(now, src, ticket) {
            Err(_) if !R::keeps(Rule::CheckTicket) => Ok(now),
            checked => checked,
        }
    }

    /// Queues a question if there is room. Fences have room of their own, because writes wait for
    /// them.
    ///
    /// # Errors
    /// `Busy` if there is no room.
    pub(super) fn ask(&mut self, question: Question) -> Result<(), Reject> {
        let of_channel = |it: &Question| matches!(it, Question::Fence(..));
        let alike = self.questions.iter().filter(|it| of_channel(it) == of_channel(&question));
        if alike.count() >= REQUESTS_MAX {
            return Err(Reject::Busy);
        }
        self.questions.push_back(question);
        Ok(())
    }

    /// Keeps a question that could not be answered yet.
    pub(super) fn keep(&mut self, question: Question) {
        self.questions.push_back(question);
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
    use tyche_wire::{ConnectFlags, Cookie, Name, Uuid};

    use super::*;
    use crate::rules::Sound;

    const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const NOW: Instant = Instant(1_000_000_000);

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
        Question::Discover(HOST, Discover::any(1, Uuid::from_u128(2)))
    }

    fn fence() -> Question {
        let fence = Fence { cookie: Cookie(5), channel: ChannelId(0), tags: Default::default() };
        Question::Fence(ChannelId(1), Box::new(fence))
    }

    #[test]
    fn a_connect_needs_a_ticket_of_its_address() {
        let mut gate = Gate::new(7);
        let ticket = gate.ticket(NOW, HOST);
        let none = connect(Ticket::NONE);
        assert_eq!(gate.connect::<Sound>(NOW, HOST, none), Err(Reject::Ticket));
        let other = Mac([2, 0, 0, 0, 0, 2]);
        assert_eq!(gate.connect::<Sound>(NOW, other, connect(ticket)), Err(Reject::Ticket));
        assert_eq!(gate.waiting(), 0);
        let later = NOW + Duration::from_millis(3);
        assert_eq!(gate.connect::<Sound>(later, HOST, connect(ticket)), Ok(()));
        let question = gate.poll_question();
        let Some(Question::Connect(asker, _)) = question else { panic!("it is a connect") };
        assert_eq!((asker.mac, asker.issued), (HOST, NOW));
    }

    #[test]
    fn hosts_that_cannot_receive_answers_use_up_no_rate() {
        let mut gate = Gate::new(7);
        let ticket = gate.ticket(NOW, HOST);
        for _ in 0..10 * BURST {
            let forged = gate.connect::<Sound>(NOW, HOST, connect(Ticket::NONE));
            assert_eq!(forged, Err(Reject::Ticket));
        }
        for _ in 0..BURST {
            assert_eq!(gate.connect::<Sound>(NOW, HOST, connect(ticket)), Ok(()));
            assert!(gate.poll_question().is_some());
        }
        assert_eq!(gate.connect::<Sound>(NOW, HOST, connect(ticket)), Err(Reject::Busy));
        let later = NOW + CONNECT_INTERVAL;
        assert_eq!(gate.connect::<Sound>(later, HOST, connect(ticket)), Ok(()));
    }

    #[test]
    fn each_kind_has_a_rate_of_its_own() {
        let mut gate = Gate::new(7);
        let mut taken = |kind| (0..10 * BURST).filter(|_| gate.takes(NOW, kind)).count();
        assert_eq!(taken(Kind::Discover), BURST as usize);
        assert_eq!(taken(Kind::Hello), BURST as usize);
        assert_eq!(taken(Kind::Connect), 10 * BURST as usize, "the ticket goes first");
    }

    #[test]
    fn fences_have_room_of_their_own() {
        let mut gate = Gate::new(7);
        for _ in 0..REQUESTS_MAX {
            assert_eq!(gate.ask(discover()), Ok(()));
        }
        assert_eq!(gate.ask(discover()), Err(Reject::Busy));
        for _ in 0..REQUESTS_MAX {
            assert_eq!(gate.ask(fence()), Ok(()));
        }
        assert_eq!(gate.ask(fence()), Err(Reject::Busy));
        assert!(matches!(gate.poll_question(), Some(Question::Discover(..))));
        assert_eq!(gate.ask(fence()), Err(Reject::Busy), "that was another's place");
        assert_eq!(gate.ask(discover()), Ok(()));
    }
}
