//! A target on one link, and hosts that knock: connects as they come, and the target's answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]
#![allow(dead_code, reason = "every test file uses a part of it")]
#![allow(unreachable_pub, reason = "it is compiled into every test file")]

use std::time::Duration;

use tyche_proto::wire::{
    Accept, ChannelId, Connect, ConnectFlags, Content, Control, Cookie, Flags, Header, Hello, Kind,
    Mac, PacketNumber, Reason, Rejection, Ticket, Uuid,
};
use tyche_proto::{
    ExportKey, Instant, Listener, ListenerConfig, ListenerEvent, Opened, Outgoing, Registry,
};
use tyche_testkit::random::Random;

use crate::pair::{FRAME_LEN, HOST, TARGET, name, only, registry_of, seal};

pub const WRITER: ConnectFlags = ConnectFlags::NONE;
pub const READER: ConnectFlags = ConnectFlags::READ_ONLY;
pub const RESUME: ConnectFlags = ConnectFlags::RESUME;
pub const IDENTITY: Uuid = Uuid::from_u128(3);

/// A listener with its registry and a simulated clock. Methods send it single frames in the name of
/// any host, and return its answers.
pub struct Door {
    pub listener: Listener,
    pub registry: Registry,
    /// The first export of the target.
    pub export: ExportKey,
    pub now: Instant,
    /// Why writers can't be kept, if they can't.
    pub not_kept: Option<String>,
    /// Of the channels whose first frame has come: the generation that they were opened with.
    pub generations: Vec<Uuid>,
    attempts: u64,
}

pub fn session(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

impl Door {
    pub fn new(shared: bool) -> Self {
        Self::on_link(shared, false)
    }

    /// As [`new`](Self::new), on a link that is reached through routers or not.
    pub fn on_link(shared: bool, routed: bool) -> Self {
        let frame_len_max = FRAME_LEN;
        let config = ListenerConfig { link: 0, frame_len_max, rings: [64; 2], routed };
        let listener = Listener::new(config, IDENTITY, Box::new(Random(2).numbers()));
        let registry = registry_of(shared);
        let (now, export) = (Instant(1_000_000), only(&registry));
        let (not_kept, generations) = (None, Vec::new());
        Self { listener, registry, export, now, not_kept, generations, attempts: 0 }
    }

    pub fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.listener.handle_timeout(self.now);
        self.serve();
    }

    fn serve(&mut self) {
        while self.listener.has_requests() || self.registry.called_links().next().is_some() {
            self.listener.serve_requests(self.now, &mut self.registry);
            while let Some((export, writer)) = self.registry.writer_to_persist() {
                let result = self.not_kept.as_deref().map_or(Ok(()), Err);
                self.registry.writer_persisted(export, writer, result);
            }
        }
        while let Some(event) = self.listener.poll_event() {
            if let ListenerEvent::Opened(opened) = event {
                let generation = opened.generation;
                self.generations.push(generation);
            }
        }
    }

    /// Has the target take a frame, and returns what it sends.
    pub fn give(&mut self, src: Mac, header: Header, control: Option<Control>) -> Vec<Outgoing> {
        let mut out = Outgoing::new();
        let content = control.map_or(Content::Empty, Content::Control);
        (out.destination, out.header, out.content) = (TARGET, header, content);
        self.give_bytes(&seal(&out, src))
    }

    /// The same with the bytes of a frame.
    pub fn give_bytes(&mut self, frame: &[u8]) -> Vec<Outgoing> {
        let (head, payload) = frame.split_first_chunk().unwrap();
        self.listener.handle_frame(self.now, (head, payload), &mut Opened::default());
        self.serve();
        let mut sent = Vec::new();
        let mut out = Outgoing::new();
        while self.listener.poll_transmit(self.now, &mut out) {
            sent.push(std::mem::take(&mut out));
        }
        sent
    }

    /// A ticket for who has that address.
    pub fn ticket(&mut self, src: Mac) -> Ticket {
        let frame_len = FRAME_LEN as u32;
        let hello = Hello { nonce: 1, target: IDENTITY, ticket: Ticket::NONE, frame_len };
        let sent = self.give(src, Header::new(Kind::Hello), Some(Control::Hello(hello)));
        let answer = sent.iter().find_map(|out| match out.content.control() {
            Some(Control::Hello(hello)) if out.header.flags == Flags::REPLY => Some(hello.ticket),
            _ => None,
        });
        answer.expect("a hello is answered")
    }

    /// A connect of a session of that number and device, whose host is the number of hundreds.
    pub fn connect(&mut self, number: u128, device: Uuid, flags: ConnectFlags) -> Connect {
        self.attempts += 1;
        self.now = self.now + Duration::from_millis(1);
        Connect {
            attempt: self.attempts,
            ticket: self.ticket(HOST),
            target: IDENTITY,
            host: Uuid::from_u128(number / 100),
            session: session(number),
            device,
            export: Uuid::from_u128(4),
            host_name: name("host"),
            cookie: Cookie(self.attempts),
            channel: ChannelId(0),
            queue_size: 8,
            rings: [64; 2],
            frame_len: FRAME_LEN as u32,
            damq_pages: 256,
            flags,
            keep_alive_ms: 3000,
        }
    }

    /// The answer to one frame of a connect, if there is one.
    pub fn knock(&mut self, src: Mac, connect: &Connect) -> Option<Result<Accept, Rejection>> {
        let control = Control::Connect(connect.clone());
        let sent = self.give(src, Header::new(Kind::Connect), Some(control));
        sent.into_iter().find_map(|out| match out.content {
            Content::Control(Control::Accept(accept)) => Some(Ok(accept)),
            Content::Control(Control::Reject(rejection)) => Some(Err(rejection)),
            _ => None,
        })
    }

    /// The answer to a connect that is repeated as a host does it.
    pub fn insist(&mut self, connect: &Connect) -> Option<Result<Accept, Rejection>> {
        for repeat in 0..6 {
            if let Some(answer) = self.knock(HOST, connect) {
                return Some(answer);
            }
            self.wait(Duration::from_millis(20 << repeat));
        }
        None
    }

    /// What the target answers to such a session.
    pub fn ask(&mut self, number: u128, device: Uuid, flags: ConnectFlags) -> Result<(), Reason> {
        let connect = self.connect(number, device, flags);
        let answer = self.insist(&connect).expect("nothing is with the disk");
        answer.map(drop).map_err(|rejection| rejection.reason)
    }

    /// A frame of a host on its channel: a keepalive of that number.
    pub fn keepalive(accept: &Accept, packet: u64) -> Header {
        Header {
            channel: accept.channel,
            cookie: accept.cookie,
            packet: PacketNumber(packet),
            window: 64,
            ..Header::new(Kind::Keepalive)
        }
    }

    /// The sessions that are connected.
    pub fn sessions(&self) -> Vec<Uuid> {
        self.registry.sessions(self.export).iter().map(|it| it.session).collect()
    }
}
