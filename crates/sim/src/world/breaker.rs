//! A host that breaks the protocol wherever it can, on a channel of its own. Whatever it does, its
//! requests are executed only if they are whole and allowed, the target takes no more resources for
//! it than PROTOCOL.md says, and no other session suffers, which their own checks show.
//!
//! It opens a channel, breaks rules on it for a while, and leaves it for another. Requests in
//! frames that must have no effect are noted as forbidden: the disk must never see them.

mod line;

use std::collections::BTreeSet;

use tyche_proto::{Outgoing, Rules};
use tyche_wire::{
    Accept, Body, ChannelId, Connect, ConnectFlags, Content, Control, Cookie, Entry, FRAME_LEN_MAX,
    Frame, Header, Hello, Kind, Mac, Name, SECTOR_LEN, Tag, Ticket,
};

use super::{Event, World};
use crate::content::fill;
use crate::host::uuid;
use crate::network::{Delivery, Station};
use crate::plan::BreakerPlan;
use crate::random::Random;
use crate::target::CHANNELS_MAX;

use line::{Act, Line};

/// Salt of a seed for the random stream of the breaker.
const BREAKER: u64 = 0x6272_6561_6b00;

/// The first stamp of its modifying requests: no history knows them.
const STAMPS: u64 = 1 << 48;

/// Its host UUID.
const HOST: u64 = 0xbad;

/// Limits of channels of a link that no frame has come for, and of sessions of a host at an export:
/// PROTOCOL.md, "Half-open channels" and "Admission".
const HALF_OPEN_MAX: usize = 64;
const SESSIONS_MAX: usize = 16;

/// Ticks after which it gives up an attempt to get a channel.
const PATIENCE: u32 = 20;

/// Progress towards a channel.
enum Phase {
    /// It has none, and asks for another.
    Idle,
    Asking {
        nonce: u64,
        ticks: u32,
    },
    Connecting {
        connect: Box<Connect>,
        ticks: u32,
    },
    Open(Box<Line>),
}

/// The host that breaks the protocol: its phase and present channel, and the requests that the disk
/// must not execute.
pub(super) struct Breaker {
    plan: BreakerPlan,
    random: Random,
    phase: Phase,
    /// The link that it is plugged in with, and the address that it talks to.
    link: usize,
    peer: Mac,
    sessions: u64,
    stamps: u64,
    /// Frames that it may still send.
    frames: u32,
    /// Requests that must not be executed, by cookie and tag.
    forbidden: BTreeSet<(u64, u32)>,
}

impl Breaker {
    pub(super) fn new(plan: BreakerPlan, seed: u64) -> Self {
        Self {
            random: Random::new(seed ^ BREAKER),
            phase: Phase::Idle,
            link: 0,
            peer: Mac([0; 6]),
            sessions: 0,
            stamps: STAMPS,
            frames: plan.frames,
            forbidden: BTreeSet::new(),
            plan,
        }
    }

    /// Whether a request must not be executed.
    pub(super) fn forbids(&self, cookie: Cookie, tag: Tag) -> bool {
        self.forbidden.contains(&(cookie.0, tag.to_bits()))
    }

    /// Draws its Connect: any valid values, and some that are not.
    fn connect(&mut self, ticket: Ticket, export: usize) -> Connect {
        let random = &mut self.random;
        // A flood is of channels of one session, for a host has few sessions.
        let floods = self.plan.floods;
        if !floods || self.sessions == 0 || random.chance(0.02) {
            self.sessions += 1;
        }
        let channel = ChannelId(if floods { random.below(64) as u16 } else { 0 });
        let session = uuid(2, 1 << 32 | self.sessions);
        let mut flags = ConnectFlags::CHECKSUM;
        flags.set(ConnectFlags::READ_ONLY, !self.plan.writes);
        Connect {
            attempt: random.next(),
            ticket,
            target: uuid(3, 0),
            host: uuid(1, HOST),
            session,
            device: session,
            export: uuid(4, export as u64),
            host_name: Name::new("breaker").expect("a name"),
            cookie: Cookie(random.next() | 1),
            channel,
            queue_size: random.pick(&[1, 4, 32, 1024, 1024, 1024, 0, 65_535]),
            rings: [random.pick(&[16, 4096]), random.pick(&[16, 4096])],
            frame_len: random.pick(&[1514, 1514, FRAME_LEN_MAX as u32, u32::MAX]),
            damq_pages: random.pick(&[0, 1, 256, u32::MAX]),
            flags,
            keep_alive_ms: random.pick(&[100, 1000, 60_000, 60_000, u32::MAX]),
        }
    }
}

/// Makes a frame outside of channels.
fn control(destination: Mac, control: Control) -> Outgoing {
    let header = Header::new(control.kind());
    Outgoing { destination, header, content: Content::Control(control), ..Outgoing::new() }
}

impl<R: Rules> World<R> {
    pub(super) fn plan_breaker(&mut self) {
        let Some(breaker) = &mut self.breaker else { return };
        let pause = breaker.random.around(breaker.plan.pause);
        self.plan_in(pause, Event::Breaker);
    }

    /// Has the breaker send its next frame.
    pub(super) fn tick_breaker(&mut self) -> Result<(), String> {
        self.check_bounds()?;
        let Some(breaker) = self.breaker.as_mut().filter(|_| !self.calm) else { return Ok(()) };
        if breaker.frames == 0 {
            return Ok(());
        }
        breaker.frames -= 1;
        let mut forbidden = Vec::new();
        let out = match &mut breaker.phase {
            Phase::Idle => {
                if !breaker.plan.floods {
                    breaker.link = breaker.random.below(breaker.plan.links.len() as u64) as usize;
                }
                let port = self.network.port(Station::Breaker, breaker.link);
                let near = self.network.targets_near(port);
                if !near.is_empty() {
                    breaker.peer = breaker.random.pick(&near);
                    let nonce = breaker.random.next();
                    breaker.phase = Phase::Asking { nonce, ticks: 0 };
                }
                None
            }
            Phase::Asking { nonce, ticks } => {
                *ticks += 1;
                let (frame_len, ticket) = (1514, Ticket([0; Ticket::LEN]));
                let hello = Hello { nonce: *nonce, target: uuid(3, 0), ticket, frame_len };
                if *ticks > PATIENCE {
                    breaker.phase = Phase::Idle;
                }
                Some(control(breaker.peer, Control::Hello(hello)))
            }
            Phase::Connecting { connect, ticks } => {
                *ticks += 1;
                let connect = connect.clone();
                if *ticks > PATIENCE {
                    breaker.phase = Phase::Idle;
                }
                Some(control(breaker.peer, Control::Connect(*connect)))
            }
            Phase::Open(line) => {
                let act = line.draw(&mut breaker.random, &mut breaker.stamps);
                let Some(Act { out, requests, is_forbidden }) = act else {
                    breaker.phase = Phase::Idle;
                    return self.next_of_breaker(None);
                };
                for (tag, stamp) in requests {
                    self.sent.insert((line.cookie().0, tag.to_bits()), stamp);
                    if is_forbidden {
                        forbidden.push((line.cookie().0, tag.to_bits()));
                    }
                }
                Some(out)
            }
        };
        breaker.forbidden.extend(forbidden);
        self.next_of_breaker(out)
    }

    fn next_of_breaker(&mut self, out: Option<Outgoing>) -> Result<(), String> {
        if let (Some(out), Some(breaker)) = (out, &self.breaker) {
            let port = self.network.port(Station::Breaker, breaker.link);
            let (sent, cookie) = (&self.sent, out.header.cookie);
            let place = |tag: Tag| {
                let command = |entry: &Entry| match entry {
                    Entry::Command(command) if command.tag == tag => Some(command.offset),
                    _ => None,
                };
                out.content.entries().iter().find_map(command).unwrap_or(Line::place(tag))
            };
            let mut section = Vec::new();
            for entry in out.content.entries() {
                let Entry::Data(data) = entry else { continue };
                let stamp = sent.get(&(cookie.0, data.tag.to_bits())).copied().unwrap_or_default();
                let mut bytes = vec![0; data.total as usize];
                fill(&mut bytes, stamp, place(data.tag) / SECTOR_LEN);
                section.extend_from_slice(&bytes[data.offset as usize..][..data.len as usize]);
            }
            let frame = out.to_bytes(self.network.mac(port), &section);
            self.report.broken += 1;
            self.send(port, frame)?;
        }
        self.plan_breaker();
        Ok(())
    }

    /// Takes a frame for the breaker.
    pub(super) fn breaker_frame(&mut self, frame: &Delivery) -> Result<(), String> {
        let export = self.volumes.len() - 1;
        let Some(breaker) = &mut self.breaker else { return Ok(()) };
        let Ok(Frame { header, body }) = Frame::parse(frame.head(), frame.payload()) else {
            return Ok(());
        };
        let control = match &body {
            Body::Control(pdu) => Some(pdu.decode()),
            _ => None,
        };
        match (&mut breaker.phase, control) {
            (Phase::Asking { nonce, .. }, Some(Control::Hello(hello))) if hello.nonce == *nonce => {
                let export = if breaker.plan.writes { export } else { 0 };
                let connect = Box::new(breaker.connect(hello.ticket, export));
                breaker.phase = Phase::Connecting { connect, ticks: 0 };
            }
            (Phase::Connecting { connect, .. }, Some(Control::Accept(accept)))
                if accept.attempt == connect.attempt =>
            {
                let Accept { queue_size, damq_pages, keep_alive_ms, .. } = accept;
                let most = (connect.queue_size, connect.damq_pages.max(256));
                if queue_size > most.0 || damq_pages > most.1 || keep_alive_ms > 60_000 {
                    return Err(format!("{accept} is the answer to {connect}"));
                }
                // Some are left half-open.
                breaker.phase = if breaker.plan.floods || breaker.random.chance(0.3) {
                    Phase::Idle
                } else {
                    let to = breaker.peer;
                    let line = Line::new::<R>(&mut breaker.random, to, connect, &accept);
                    Phase::Open(Box::new(line))
                };
            }
            (Phase::Connecting { connect, .. }, Some(Control::Reject(rejection)))
                if rejection.attempt == connect.attempt =>
            {
                breaker.phase = Phase::Idle;
            }
            (Phase::Open(line), Some(Control::Reset(reset))) if reset.cookie == line.cookie() => {
                breaker.phase = Phase::Idle;
            }
            (Phase::Open(line), _) if header.cookie == line.own() => {
                if header.kind == Kind::Disconnect {
                    breaker.phase = Phase::Idle;
                } else {
                    line.hear(&header);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the bounds for peers that have proved nothing.
    fn check_bounds(&self) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        // Of hosts without keys, and with them: neither displace the others.
        let mut half_open = vec![[0; 2]; process.links()];
        let mut channels = 0;
        for export in 0..self.volumes.len() {
            let registry = process.registry();
            let sessions = registry.sessions(process.key(export));
            let of_breaker = sessions.iter().filter(|it| it.host.uuid() == uuid(1, HOST)).count();
            if of_breaker > SESSIONS_MAX {
                return Err(format!("a host has {of_breaker} sessions at an export"));
            }
            for session in sessions {
                for (channel, _) in session.channels() {
                    channels += 1;
                    let is_open = process.channels.contains_key(&(channel.link, channel.channel));
                    let class = usize::from(session.key.is_some());
                    half_open[channel.link][class] += usize::from(!is_open);
                }
            }
        }
        let most = half_open.into_iter().flatten().max().unwrap_or_default();
        if channels > CHANNELS_MAX || most > HALF_OPEN_MAX + 1 {
            return Err(format!("{channels} channels, and {most} of a link are half-open"));
        }
        Ok(())
    }
}
