//! Strangers on the segments: a target and a host that belong to others, and copies of hosts.
//!
//! A frame that is received twice comes twice at the same link here, as from a mirrored port. It
//! never comes to two links of one station: the filter of the socket keeps out frames for another
//! interface of the machine (PROTOCOL.md, "Frames"), and is no part of the state machines.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_proto::{
    Action, ExportConfig, ExportId, Instant, Listener, ListenerConfig, ListenerEvent, Opened,
    Operation, PortConfig, Registry, Rules, Session, SessionConfig, SessionEvent, TargetConfig,
    TargetId,
};
use tyche_wire::{
    Body, ChannelId, Checksums, CommandFlags, ConnectFlags, Control, Geometry, HEAD_LEN, Header,
    Kind, Mac, Name, Opcode, Status, Uuid,
};

use super::forgeries::outside;
use super::recorder::Recorder;
use super::seals::Seals;
use super::witness::Witness;
use super::{Event, World};
use crate::host::{Host, export_name, uuid};
use crate::network::{Delivery, Network, Station};
use crate::plan::{LinkPlan, Plan, StrangerPlan};
use crate::random::Random;

/// Delay of an alarm whose deadline has passed already.
const ALARM_DELAY: Duration = Duration::from_micros(1);
/// The stranger's export, which is none of the target's.
const EXPORT: Uuid = Uuid::from_u64_pair(4, 0x100);
/// Bytes of the stranger's disk, and of a request of its host.
const DISK_LEN: u64 = 1 << 20;
const REQUEST_LEN: u32 = 16 << 10;
/// Mean time between two requests, and their number.
const PAUSE: Duration = Duration::from_millis(10);
const REQUESTS: u32 = 100;
const FRAME_LEN_MAX: usize = 1514;
const RINGS: [u16; 2] = [64, 64];
/// Flags of a Connect, except RESUME.
const CONNECT_FLAGS: [ConnectFlags; 3] =
    [ConnectFlags::READ_ONLY, ConnectFlags::CHECKSUM, ConnectFlags::STAGES];

/// An event of the stranger and its guest.
#[derive(Clone, Copy, Debug)]
pub(super) enum Other {
    StrangerAlarm,
    GuestAlarm,
    /// The guest makes a request.
    Request,
}

/// The participants beside the hosts and the target: a stranger with its guest, and the recorder
/// whose frames are copied and forged. It also has the checkers of sessions and of sealed frames.
pub(super) struct Others<R> {
    pub(super) random: Random,
    pub(super) recorder: Recorder,
    pub(super) witness: Witness,
    pub(super) seals: Seals,
    stranger: Option<Stranger<R>>,
}

/// A target whose disk keeps nothing, and a session of a host of its own.
struct Stranger<R> {
    listeners: Vec<Listener<R>>,
    registry: Registry,
    alarm: Option<Instant>,
    guest: Option<Guest<R>>,
}

struct Guest<R> {
    session: Session<R>,
    alarm: Option<Instant>,
    left: u32,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

impl<R: Rules> Stranger<R> {
    fn new(plan: &StrangerPlan, now: Instant, random: &mut Random) -> Self {
        let target = TargetConfig {
            uuid: uuid(3, 1),
            name: name("stranger"),
            queue_size_max: 16,
            damq_pages_max: 256,
            memory_pages: 16 * 320,
            batch: Default::default(),
        };
        let listener = |link: usize| {
            let mut random = random.fork();
            let config =
                ListenerConfig { link, frame_len_max: FRAME_LEN_MAX, rings: RINGS, routed: false };
            Listener::new(config, target.uuid, Box::new(move || random.next()))
        };
        let listeners = (0..plan.segments.len()).map(listener).collect();
        let mut registry = Registry::new(target);
        registry
            .add_export(
                now,
                ExportConfig {
                    name: if plan.namesake { export_name(0) } else { name("another") },
                    uuid: EXPORT,
                    generation: uuid(5, 0),
                    geometry: Geometry::new(DISK_LEN, 512),
                    shared: false,
                },
            )
            .expect("the first");
        let guest = (!plan.segments.is_empty()).then(|| Guest::new(now, random.fork()));
        Self { listeners, registry, alarm: None, guest }
    }
}

impl<R: Rules> Guest<R> {
    fn new(now: Instant, mut random: Random) -> Self {
        let (host, session) = (uuid(1, 0xffff), uuid(2, 0xffff_0000));
        let config = SessionConfig {
            target: TargetId::Uuid(uuid(3, 1)),
            queue_size: 8,
            damq_pages: 256,
            operations_max: 8,
            keep_alive: Duration::from_millis(500),
            reconnect_delay: Duration::from_millis(100),
            ..SessionConfig::new(host, name("guest"), session, ExportId::Uuid(EXPORT))
        };
        let port = PortConfig {
            frame_len_max: FRAME_LEN_MAX,
            rings: RINGS,
            target: None,
            node: None,
            transport: 0,
            routed: false,
            checks_data: false,
        };
        let session = Session::new(config, &[port], Box::new(move || random.next()), now);
        Self { session, alarm: None, left: REQUESTS }
    }
}

impl<R: Rules> Others<R> {
    /// The strangers of a plan, with their links plugged in.
    pub(super) fn new(plan: &Plan, now: Instant, network: &mut Network) -> Self {
        let mut random = Random::new(plan.seed ^ 0x6f74_6865_7273);
        let strangers = &plan.strangers;
        let stranger = strangers.target.as_ref().map(|stranger| {
            let links: Vec<_> =
                stranger.segments.iter().map(|&segment| LinkPlan::clean(segment, 1500)).collect();
            network.plug_others(Station::Stranger, &links, stranger.hears_all);
            network.plug_others(Station::Guest, &links[..links.len().min(1)], false);
            Stranger::new(stranger, now, &mut random)
        });
        if strangers.twice > 0.0 {
            network.receive_twice(|| random.chance(strangers.twice));
        }
        let witness = Witness::new(strangers.clone.is_some());
        let (recorder, seals) = (Recorder::default(), Seals::default());
        Self { random, recorder, witness, seals, stranger }
    }
}

impl<R: Rules> World<R> {
    /// The target that hosts ask for.
    pub(super) fn wanted_target(&self) -> TargetId {
        match &self.plan.strangers.target {
            Some(stranger) if stranger.namesake => TargetId::Name(name("target")),
            _ => TargetId::Any,
        }
    }

    /// Plans the beginning of all strangers.
    pub(super) fn plan_others(&mut self) {
        if let Some(clone) = self.plan.strangers.clone.clone() {
            let (index, mut plan) = (self.hosts.len(), self.plan.hosts[clone.of].clone());
            plan.read_only = false;
            self.network.plug(index, &plan.links);
            let random = self.others.random.fork();
            self.hosts.push(Host::new(index, plan, random).like(clone.of));
            self.plan_in(clone.begins, Event::Start(index));
        }
        if let Some(host) = self.plan.strangers.reads_first {
            self.hosts[host].reads_first = true;
        }
        let wanted = self.wanted_target();
        self.hosts.iter_mut().for_each(|host| host.target = wanted);
        if let Some(forger) = &self.plan.strangers.forger {
            let pause = forger.pause;
            self.plan_in(pause, Event::Forge);
        }
        if self.others.stranger.as_ref().is_some_and(|stranger| stranger.guest.is_some()) {
            self.plan_in(Duration::ZERO, Event::Other(Other::GuestAlarm));
            self.plan_in(PAUSE, Event::Other(Other::Request));
        }
    }

    pub(super) fn other(&mut self, other: Other) -> Result<(), String> {
        let now = self.now;
        match other {
            Other::StrangerAlarm => {
                let Some(stranger) = &mut self.others.stranger else { return Ok(()) };
                stranger.alarm = None;
                stranger.listeners.iter_mut().for_each(|it| it.handle_timeout(now));
                self.drive_stranger()
            }
            Other::GuestAlarm => {
                let stranger = self.others.stranger.as_mut();
                let Some(guest) = stranger.and_then(|it| it.guest.as_mut()) else { return Ok(()) };
                guest.alarm = None;
                guest.session.handle_timeout(now);
                self.drive_guest()
            }
            Other::Request => self.guest_request(),
        }
    }

    pub(super) fn stranger_frame(&mut self, link: usize, frame: &Delivery) -> Result<(), String> {
        let now = self.now;
        let Some(stranger) = &mut self.others.stranger else { return Ok(()) };
        stranger.listeners[link].handle_frame(now, frame.raw(), &mut Opened::default());
        self.drive_stranger()
    }

    pub(super) fn guest_frame(&mut self, frame: &Delivery) -> Result<(), String> {
        let now = self.now;
        let stranger = self.others.stranger.as_mut();
        let Some(guest) = stranger.and_then(|it| it.guest.as_mut()) else { return Ok(()) };
        guest.session.handle_frame(now, 0, frame.raw(), &mut Opened::default());
        self.drive_guest()
    }

    /// Has the guest read or write data that the stranger does not keep.
    fn guest_request(&mut self) -> Result<(), String> {
        let (now, calm) = (self.now, self.calm);
        let Others { random, stranger, .. } = &mut self.others;
        let Some(guest) = stranger.as_mut().and_then(|it| it.guest.as_mut()) else { return Ok(()) };
        if calm || guest.left == 0 {
            return Ok(());
        }
        let pause = random.around(PAUSE);
        let opcode = random.pick(&[Opcode::Read, Opcode::Write, Opcode::Flush]);
        let is_flush = opcode == Opcode::Flush;
        let offset = if is_flush { 0 } else { random.below(32) * u64::from(REQUEST_LEN) };
        let len = if is_flush { 0 } else { REQUEST_LEN };
        let operation = Operation { opcode, flags: CommandFlags::NONE, offset, len };
        if guest.session.is_live() && guest.session.operations() < 8 {
            guest.left -= 1;
            let _ = guest.session.submit(now, operation);
        }
        self.plan_in(pause, Event::Other(Other::Request));
        self.drive_guest()
    }

    fn drive_guest(&mut self) -> Result<(), String> {
        let now = self.now;
        loop {
            let stranger = self.others.stranger.as_mut();
            let Some(guest) = stranger.and_then(|it| it.guest.as_mut()) else { return Ok(()) };
            while let Some(event) = guest.session.poll_event() {
                match event {
                    SessionEvent::Failed(failure) => {
                        return Err(format!("the stranger's session has failed: {failure}"));
                    }
                    SessionEvent::Completed { status, .. } if status != Status::Success => {
                        return Err(format!("a request of the stranger's host ends: {status:?}"));
                    }
                    _ => {}
                }
            }
            if !guest.session.poll_transmit(now, 0, &mut self.out) {
                if let Some(at) = guest.session.poll_timeout().map(|at| at.max(now + ALARM_DELAY))
                    && guest.alarm.is_none_or(|alarm| alarm > at)
                {
                    guest.alarm = Some(at);
                    self.schedule.plan(at, Event::Other(Other::GuestAlarm));
                }
                return Ok(());
            }
            self.send_zeroes(Station::Guest, 0)?;
        }
    }

    /// Serves the events of the stranger's listeners: its disk executes everything at once, and
    /// keeps nothing.
    fn drive_stranger(&mut self) -> Result<(), String> {
        let now = self.now;
        loop {
            let Some(stranger) = &mut self.others.stranger else { return Ok(()) };
            let Stranger { listeners, registry, .. } = stranger;
            let mut busy = false;
            for (link, listener) in listeners.iter_mut().enumerate() {
                while let Some(event) = listener.poll_event() {
                    busy = true;
                    let ListenerEvent::Action { channel, action } = event else { continue };
                    if let Action::Execute { command } = action {
                        listener.complete(channel, command.tag, Status::Success);
                    }
                }
                if listener.has_requests() || registry.called_links().any(|it| it == link) {
                    busy = true;
                    listener.serve_requests(now, registry);
                }
            }
            while let Some((export, writer)) = registry.writer_to_persist() {
                registry.writer_persisted(export, writer, Ok(()));
            }
            let sends = (0..listeners.len())
                .find(|&link| listeners[link].poll_transmit(now, &mut self.out));
            if let Some(link) = sends {
                self.send_zeroes(Station::Stranger, link)?;
            } else if !busy {
                break;
            }
        }
        let Some(stranger) = &mut self.others.stranger else { return Ok(()) };
        let deadline = stranger.listeners.iter().filter_map(Listener::poll_timeout).min();
        if let Some(at) = deadline.map(|at| at.max(now + ALARM_DELAY))
            && stranger.alarm.is_none_or(|alarm| alarm > at)
        {
            stranger.alarm = Some(at);
            self.schedule.plan(at, Event::Other(Other::StrangerAlarm));
        }
        Ok(())
    }

    /// Sends the frame that was composed; all its data are zero.
    fn send_zeroes(&mut self, station: Station, link: usize) -> Result<(), String> {
        let port = self.network.port(station, link);
        let len: u32 = self.out.parts.iter().map(|part| part.len).sum();
        let frame = self.out.to_bytes(self.network.mac(port), &vec![0; len as usize]);
        self.send(port, frame)
    }
}

/// Turns the Connect of a host into that of another implementation, which opens the first of its
/// channels for reading only, and knows it. Ours opens all alike, and does not learn of it, so its
/// writes there are refused. A host that has only read is not one that wrote before: `writes` if it
/// is one. `attempts`: those of the session, with whether each is to be admitted for writing.
///
/// `is_lost`: the host has lost all channels, and opens whichever comes first for reading only. It
/// may be refused for writing for as long as another host writes, and its reads must end.
pub(super) fn reads_first(
    frame: Vec<u8>,
    writes: bool,
    is_lost: bool,
    attempts: &mut BTreeMap<u64, bool>,
) -> Vec<u8> {
    let Some((header, Control::Connect(mut connect))) = control(&frame, Kind::Connect) else {
        return frame;
    };
    let for_writing = connect.channel != ChannelId(0) && !is_lost;
    // A Connect that is sent again asks for the same.
    if !*attempts.entry(connect.attempt).or_insert(for_writing) {
        connect.flags.set(ConnectFlags::READ_ONLY, true);
    } else if !writes {
        let others = CONNECT_FLAGS.into_iter().filter(|flag| connect.flags.contains(*flag));
        connect.flags = others.fold(ConnectFlags::NONE, |flags, flag| flags | flag);
    }
    again(&frame, header, Control::Connect(connect))
}

/// Turns the answer to such a host into one that ours takes; returns it with its attempt.
pub(super) fn reads_all(delivery: &Delivery) -> Option<(Delivery, u64)> {
    let frame = &delivery.frame;
    let Some((header, Control::Accept(mut accept))) = control(frame, Kind::Accept) else {
        return None;
    };
    let attempt = accept.attempt;
    accept.geometry.read_only = false;
    let frame = again(frame, header, Control::Accept(accept));
    Some((Delivery { frame, ..delivery.clone() }, attempt))
}

/// The body of a frame of that kind, if it is valid.
pub(super) fn control(frame: &[u8], kind: Kind) -> Option<(Header, Control)> {
    let header = Header::parse(frame.first_chunk()?).ok().filter(|header| header.kind == kind)?;
    match Body::parse(&header, &frame[HEAD_LEN..], &Checksums) {
        Ok(Body::Control(pdu)) => Some((header, pdu.decode())),
        _ => None,
    }
}

/// A frame with another body.
fn again(frame: &[u8], header: Header, control: Control) -> Vec<u8> {
    let head = frame.first_chunk().expect("frames are at least a head long");
    outside((Mac::destination(head), Mac::source(head)), header.flags, control)
}
