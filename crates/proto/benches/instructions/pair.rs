//! A host and a target in one process, joined without a link: what one composes is sealed as the
//! engine seals it, and the other takes it. Nothing is lost, nothing overtakes, and the disk has
//! every answer at once.

use std::time::Duration;

use tyche_proto::wire::{
    ChannelId, CommandFlags, ETHERTYPE, Encoder, Geometry, HEAD_LEN, Mac, Name, Opcode, PAGE_LEN,
    Status, Tag, Uuid,
};
use tyche_proto::{
    Action, BatchPolicy, ExportConfig, ExportId, Instant, Listener, ListenerConfig, ListenerEvent,
    Opened, OpenedChannel, Operation, Outgoing, Part, PortConfig, Registry, Session, SessionConfig,
    SessionEvent, TargetConfig, Written,
};

/// Longest frame at an MTU of 9000.
pub(crate) const JUMBO: usize = 9014;
/// Longest frame at an MTU of 1500.
pub(crate) const STANDARD: usize = 1514;
/// As large as the engine chooses them at an MTU of 1500.
const RINGS: [u16; 2] = [256; 2];
/// 32 MiB, as the programs ask for.
const DAMQ_PAGES: u32 = 8192;
/// The most requests at once.
pub(crate) const DEPTH: u16 = 128;
/// Bytes of the disk.
const DISK: u64 = 1 << 30;
/// From one end's turn to the next.
const TURN: Duration = Duration::from_micros(10);

/// A frame as the link would deliver it.
struct Frame {
    head: [u8; HEAD_LEN],
    payload: Vec<u8>,
}

/// The frames that one end sends in its turn. Their memory is used again in the next.
struct Lane {
    src: Mac,
    encoder: Encoder,
    composed: Vec<Outgoing>,
    sealed: Vec<Frame>,
    /// Frames of this turn.
    len: usize,
}

impl Lane {
    fn new(src: Mac) -> Self {
        Self { src, encoder: Encoder::new(), composed: Vec::new(), sealed: Vec::new(), len: 0 }
    }

    fn compose(&mut self, mut poll: impl FnMut(&mut Outgoing) -> bool) {
        loop {
            if self.len == self.composed.len() {
                self.composed.push(Outgoing::new());
                self.sealed.push(Frame { head: [0; HEAD_LEN], payload: Vec::new() });
            }
            if !poll(&mut self.composed[self.len]) {
                return;
            }
            self.len += 1;
        }
    }

    /// `data` finds the bytes of a part.
    fn seal<'a>(&mut self, data: impl Fn(&Part) -> &'a [u8]) {
        for (out, frame) in self.composed.iter().zip(&mut self.sealed).take(self.len) {
            frame.payload.clear();
            out.encode(&mut self.encoder, (self.src, ETHERTYPE), &data, |written| {
                let Written::Clear(encoded) = written else { return };
                let (head, body) = encoded.front.split_first_chunk().expect("a frame has a head");
                frame.head = *head;
                // What the kernel and the card do.
                let data = encoded.data.iter().copied();
                for piece in [body].into_iter().chain(data).chain([encoded.entries]) {
                    frame.payload.extend_from_slice(piece);
                }
            });
        }
    }

    fn take(&mut self) -> &[Frame] {
        &self.sealed[..std::mem::take(&mut self.len)]
    }
}

/// The host: its session, and the memory of its operations.
pub(crate) struct Host {
    session: Session,
    memory: Vec<u8>,
    /// Bytes of an operation.
    len: u32,
    lane: Lane,
    completed: u32,
}

/// The target: its listener, the pages of its channel, and what the disk has.
pub(crate) struct Target {
    listener: Listener,
    registry: Registry,
    channel: ChannelId,
    damq: Vec<u8>,
    /// Where the data of each slot begin in the `damq`.
    slots: Vec<usize>,
    executing: Vec<Tag>,
    lane: Lane,
}

/// A connected host and target whose work the benchmark counts. Composing, sealing and taking
/// frames are separate steps, so that each can be measured alone.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) host: Host,
    pub(crate) target: Target,
}

impl Pair {
    /// Both ends, connected, for operations of `len` bytes in frames of up to `frame_len`.
    pub(crate) fn connected(len: u32, frame_len: usize) -> Self {
        let now = Instant(1_000_000_000);
        let host = Host::new(len, frame_len, now);
        let mut pair = Self { now, host, target: Target::new(frame_len) };
        // Nothing is lost, so each step of the handshake takes a turn or two.
        for _ in 0..100 {
            if pair.target.channel != ChannelId::NONE {
                return pair;
            }
            pair.now = pair.now + Duration::from_millis(1);
            pair.host.session.handle_timeout(pair.now);
            pair.exchange();
        }
        unreachable!("nothing keeps the two from each other")
    }

    /// A turn of each end.
    pub(crate) fn exchange(&mut self) {
        self.now = self.now + TURN;
        self.host.compose(self.now);
        self.host.seal();
        self.target.handle_frames(self.now, &mut self.host);
        self.now = self.now + TURN;
        self.target.complete();
        self.target.compose(self.now);
        self.target.seal();
        self.host.handle_frames(self.now, &mut self.target);
    }

    /// Lets everything that was submitted end.
    pub(crate) fn finish(&mut self) {
        while self.host.session.operations() > 0 {
            self.exchange();
        }
    }
}

/// Numbers that are no secret: the same in every run.
fn random() -> Box<dyn FnMut() -> u64 + Send> {
    let mut state = 0_u64;
    Box::new(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state ^ state >> 29
    })
}

fn name(name: &str) -> Name {
    Name::new(name).expect("short enough")
}

impl Host {
    fn new(len: u32, frame_len_max: usize, now: Instant) -> Self {
        let export = ExportId::Name(name("disk"));
        let config = SessionConfig {
            queue_size: DEPTH,
            damq_pages: DAMQ_PAGES,
            operations_max: DEPTH.into(),
            reconnect_delay: Duration::from_millis(100),
            batch: BatchPolicy::Natural,
            ..SessionConfig::new(Uuid::from_u128(1), name("host"), Uuid::from_u128(2), export)
        };
        let port = PortConfig {
            frame_len_max,
            rings: RINGS,
            target: None,
            node: None,
            transport: 0,
            routed: false,
            checks_data: false,
        };
        Self {
            session: Session::new(config, &[port], random(), now),
            memory: vec![0xa5; len as usize * usize::from(DEPTH)],
            len,
            lane: Lane::new(Mac([2, 0, 0, 0, 0, 1])),
            completed: 0,
        }
    }

    /// Begins an operation on the `index`th part of the disk.
    pub(crate) fn submit(&mut self, now: Instant, opcode: Opcode, index: u32) {
        let (flags, offset) = (CommandFlags::NONE, u64::from(index) * u64::from(self.len) % DISK);
        let operation = Operation { opcode, flags, offset, len: self.len };
        self.session.submit(now, operation).expect("no more than `DEPTH` at once");
    }

    pub(crate) fn compose(&mut self, now: Instant) {
        let session = &mut self.session;
        self.lane.compose(|out| session.poll_transmit(now, 0, out));
    }

    pub(crate) fn seal(&mut self) {
        let (memory, stride) = (&self.memory, self.len as usize);
        self.lane.seal(|part| {
            let first = part.request as usize * stride + part.offset as usize;
            &memory[first..first + part.len as usize]
        });
    }

    /// Takes what the target has sent, and puts data where they belong.
    pub(crate) fn handle_frames(&mut self, now: Instant, target: &mut Target) {
        for frame in target.lane.take() {
            self.session.handle_frame(
                now,
                0,
                (&frame.head, &frame.payload[..]),
                &mut Opened::default(),
            );
            while let Some(event) = self.session.poll_event() {
                match event {
                    SessionEvent::Data { op, offset, len, source } => {
                        let first = op.0 as usize * self.len as usize + offset as usize;
                        let data = &frame.payload[source as usize..][..len as usize];
                        self.memory[first..first + len as usize].copy_from_slice(data);
                    }
                    SessionEvent::Completed { status, .. } => {
                        assert_eq!(status, Status::Success);
                        self.completed += 1;
                    }
                    SessionEvent::Joined(..)
                    | SessionEvent::Connected
                    | SessionEvent::ResumeStateChanged
                    | SessionEvent::NextKey(_) => {}
                    other => unreachable!("nothing goes wrong here: {other:?}"),
                }
            }
        }
    }
}

impl Target {
    fn new(frame_len_max: usize) -> Self {
        let uuid = Uuid::from_u128(3);
        let mut registry = Registry::new(TargetConfig {
            uuid,
            name: name("target"),
            queue_size_max: DEPTH,
            damq_pages_max: DAMQ_PAGES,
            memory_pages: 1 << 16,
            batch: BatchPolicy::Natural,
        });
        registry
            .add_export(
                Instant(0),
                ExportConfig {
                    name: name("disk"),
                    uuid: Uuid::from_u128(4),
                    generation: Uuid::from_u128(5),
                    geometry: Geometry { discard: true, ..Geometry::new(DISK, 512) },
                    shared: false,
                },
            )
            .expect("the name and the UUID are free");
        let config = ListenerConfig { link: 0, frame_len_max, rings: RINGS, routed: false };
        Self {
            listener: Listener::new(config, uuid, random()),
            registry,
            channel: ChannelId::NONE,
            damq: Vec::new(),
            slots: Vec::new(),
            executing: Vec::with_capacity(DEPTH.into()),
            lane: Lane::new(Mac([2, 0, 0, 0, 0, 2])),
        }
    }

    /// Takes what the host has sent, puts data where they belong, and gives the disk what is to
    /// be executed.
    pub(crate) fn handle_frames(&mut self, now: Instant, host: &mut Host) {
        for frame in host.lane.take() {
            self.listener.handle_frame(
                now,
                (&frame.head, &frame.payload[..]),
                &mut Opened::default(),
            );
            while let Some(event) = self.listener.poll_event() {
                match event {
                    ListenerEvent::Opened(opened) => {
                        let OpenedChannel { channel, damq_pages, queue_size, .. } = *opened;
                        self.channel = channel;
                        self.damq = vec![0; damq_pages as usize * PAGE_LEN];
                        self.slots = vec![0; queue_size.into()];
                    }
                    ListenerEvent::Action { action, .. } => self.act(action, &frame.payload),
                    ListenerEvent::Closed { .. } => unreachable!("nobody closes it"),
                }
            }
            while self.listener.has_requests() {
                self.listener.serve_requests(now, &mut self.registry);
                while let Some((export, writer)) = self.registry.writer_to_persist() {
                    self.registry.writer_persisted(export, writer, Ok(()));
                }
            }
        }
    }

    fn act(&mut self, action: Action, payload: &[u8]) {
        match action {
            Action::Claim { slot, page, .. } => {
                self.slots[usize::from(slot)] = page as usize * PAGE_LEN;
            }
            Action::Release { .. } | Action::Credit { .. } => {}
            Action::Place { slot, offset, len, source } => {
                let first = self.slots[usize::from(slot)] + offset as usize;
                let data = &payload[source as usize..][..len as usize];
                self.damq[first..first + len as usize].copy_from_slice(data);
            }
            Action::Execute { command } => self.executing.push(command.tag),
        }
    }

    /// The disk has executed everything that it has.
    pub(crate) fn complete(&mut self) {
        for tag in self.executing.drain(..) {
            self.listener.complete(self.channel, tag, Status::Success);
        }
    }

    pub(crate) fn compose(&mut self, now: Instant) {
        let listener = &mut self.listener;
        self.lane.compose(|out| listener.poll_transmit(now, out));
    }

    pub(crate) fn seal(&mut self) {
        let (damq, slots) = (&self.damq, &self.slots);
        self.lane.seal(|part| {
            let first = slots[part.request as usize] + part.offset as usize;
            &damq[first..first + part.len as usize]
        });
    }
}
