//! A session and a listener that are connected, and the time: frames are carried by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]
#![allow(dead_code, reason = "every test file uses a part of it")]
#![allow(unreachable_pub, reason = "it is compiled into every test file")]

use std::time::Duration;

use tyche_proto::wire::{Entry, Geometry, Header, Mac, Name, Uuid};
use tyche_proto::{
    BatchPolicy, ExportConfig, ExportId, ExportKey, Instant, Listener, ListenerConfig, Opened,
    Outgoing, PortConfig, RawFrame, Registry, Session, SessionConfig, TargetConfig,
};
use tyche_testkit::random::Random;

pub const FRAME_LEN: usize = 1514;
pub const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub const TARGET: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// A session and the listener that it is connected to, with a simulated clock. A test moves each
/// frame itself, or lets [`step`](Self::step) do it.
pub struct Pair {
    pub session: Session,
    pub listener: Listener,
    pub registry: Registry,
    /// The only export of the target.
    pub export: ExportKey,
    pub now: Instant,
    /// The frame that was composed last.
    pub out: Outgoing,
    /// The header of the last echo that went to the target, for forging more.
    pub asked: Option<Header>,
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn session() -> SessionConfig {
    let export = ExportId::Name(name("disk"));
    SessionConfig {
        queue_size: 8,
        damq_pages: 256,
        operations_max: 8,
        reconnect_delay: Duration::from_millis(20),
        batch: BatchPolicy::Natural,
        ..SessionConfig::new(Uuid::from_u128(1), name("host"), Uuid::from_u128(2), export)
    }
}

/// A target with room for a few channels, and one export.
pub fn registry_of(shared: bool) -> Registry {
    let mut registry = Registry::new(TargetConfig {
        uuid: Uuid::from_u128(3),
        name: name("target"),
        queue_size_max: 8,
        damq_pages_max: 256,
        memory_pages: 4 * 320,
        batch: BatchPolicy::Natural,
    });
    registry
        .add_export(
            Instant(0),
            ExportConfig {
                name: name("disk"),
                uuid: Uuid::from_u128(4),
                generation: Uuid::nil(),
                geometry: Geometry { rotational: true, ..Geometry::new(1 << 20, 512) },
                shared,
            },
        )
        .unwrap();
    registry
}

/// The export of a target that has one.
pub fn only(registry: &Registry) -> ExportKey {
    let (key, _) = registry.exports().next().unwrap();
    key
}

/// The bytes of a frame; those of requests are zeroes.
pub fn seal(out: &Outgoing, src: Mac) -> Vec<u8> {
    let parts = out.content.entries().iter().map(|entry| match entry {
        Entry::Data(part) => part.len as usize,
        _ => 0,
    });
    out.to_bytes(src, &vec![0; parts.sum()])
}

impl Pair {
    pub fn connected(config: SessionConfig) -> Self {
        Self::connected_over(config, false)
    }

    /// As [`connected`](Self::connected), over a link that is reached through routers or not.
    pub fn connected_over(config: SessionConfig, routed: bool) -> Self {
        let mut pair = Self::asking_over(config, routed);
        pair.connect();
        pair
    }

    /// A session that is about to look for the target.
    pub fn asking_over(config: SessionConfig, routed: bool) -> Self {
        let now = Instant(0);
        let rings = [64; 2];
        let (frame_len_max, target) = (FRAME_LEN, Some(TARGET));
        let port = PortConfig {
            frame_len_max,
            rings,
            target,
            node: None,
            transport: 0,
            routed,
            checks_data: false,
        };
        let listener = ListenerConfig { link: 0, frame_len_max, rings, routed };
        let registry = registry_of(false);
        let mut pair = Self {
            export: only(&registry),
            registry,
            session: Session::new(config, &[port], Box::new(Random(1).numbers()), now),
            listener: Listener::new(listener, Uuid::from_u128(3), Box::new(Random(2).numbers())),
            now,
            out: Outgoing::new(),
            asked: None,
        };
        pair.session.handle_timeout(now);
        pair
    }

    pub fn connect(&mut self) {
        while !self.session.is_live() {
            self.step();
        }
        // The first frame opens the channel at the target.
        while let Some(frame) = self.host_sends() {
            self.target_takes(&frame);
        }
        while let Some(frame) = self.target_sends() {
            self.host_takes(&frame);
        }
    }

    /// Lets both say what they have to say, and a millisecond pass.
    pub fn step(&mut self) {
        while let Some(frame) = self.host_sends() {
            self.target_takes(&frame);
        }
        self.serve();
        while let Some(frame) = self.target_sends() {
            self.host_takes(&frame);
        }
        self.now = self.now + Duration::from_millis(1);
        self.session.handle_timeout(self.now);
        self.listener.handle_timeout(self.now);
    }

    /// Lets the target answer what takes the registry.
    pub fn serve(&mut self) {
        while self.listener.has_requests() {
            self.listener.serve_requests(self.now, &mut self.registry);
            while let Some((export, writer)) = self.registry.writer_to_persist() {
                self.registry.writer_persisted(export, writer, Ok(()));
            }
        }
    }

    /// The next frame that the host has to send now.
    pub fn host_sends(&mut self) -> Option<Vec<u8>> {
        self.session.poll_transmit(self.now, 0, &mut self.out).then(|| seal(&self.out, HOST))
    }

    /// The next frame that the target has to send now.
    pub fn target_sends(&mut self) -> Option<Vec<u8>> {
        self.listener.poll_transmit(self.now, &mut self.out).then(|| seal(&self.out, TARGET))
    }

    pub fn host_takes(&mut self, frame: &[u8]) {
        let (head, payload) = frame.split_first_chunk().unwrap();
        self.session.handle_frame(self.now, 0, (head, payload), &mut Opened::default());
    }

    /// The same of frames that the network has marked as congested.
    pub fn host_takes_marked(&mut self, frame: &[u8]) {
        self.session.handle_frame(self.now, 0, marked(frame), &mut Opened::default());
    }

    pub fn target_takes_marked(&mut self, frame: &[u8]) {
        self.listener.handle_frame(self.now, marked(frame), &mut Opened::default());
    }

    pub fn target_takes(&mut self, frame: &[u8]) {
        let (head, payload) = frame.split_first_chunk().unwrap();
        self.listener.handle_frame(self.now, (head, payload), &mut Opened::default());
    }
}

/// A frame that the network has marked as congested.
fn marked(frame: &[u8]) -> RawFrame<'_> {
    let (head, payload) = frame.split_first_chunk().unwrap();
    RawFrame { is_congested: true, ..RawFrame::from((head, payload)) }
}
