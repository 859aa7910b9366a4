//! Hosts that run in the test itself.

use std::time::{Duration, Instant};

use tyche_block::{Completion, Operation, Request};
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_native::{HostOptions, InlineHost};
use tyche_numa::Placement;
use tyche_proto::wire::{ETHERTYPE, Name};
use tyche_proto::{ExportId, SessionConfig};
use tyche_remote::HostLink;
use uuid::Uuid;

use super::{DISK, PATIENCE, Rig, Side};

/// Requests in flight.
const QUEUE_SIZE: u16 = 128;
/// Room for the data of requests, in pages.
const ARENA_PAGES: usize = 1024;

impl Rig {
    /// A host with a live session on [`DISK`] over these links at the host's end; `change` adjusts
    /// its configuration.
    pub(crate) fn inline_host(
        &self,
        links: &[&str],
        change: impl FnOnce(&mut SessionConfig),
    ) -> InlineHost {
        let open = |name: &&str| {
            let options = PacketOptions::new(*name);
            let link = self.cable.end(Side::Host).on_thread(|| PacketLink::open(&options)).unwrap();
            HostLink { link: Box::new(link), target: None }
        };
        let [name, disk] = ["inline", DISK].map(|it| Name::new(it).unwrap());
        let (host, session) = (Uuid::new_v4(), Uuid::new_v4());
        let mut session = SessionConfig {
            queue_size: QUEUE_SIZE,
            operations_max: QUEUE_SIZE.into(),
            // Long enough for a test that does something else in between.
            keep_alive: Duration::from_secs(60),
            reconnect_delay: Duration::from_millis(100),
            ..SessionConfig::new(host, name, session, ExportId::Name(disk))
        };
        change(&mut session);
        let mut host = InlineHost::new(HostOptions {
            session,
            links: links.iter().map(open).collect(),
            further_queues: Vec::new(),
            placement: Placement::default(),
            ethertype: ETHERTYPE,
            arena_size: ARENA_PAGES.into(),
            spin: Duration::ZERO,
        });
        host.connect(PATIENCE).unwrap();
        host
    }
}

/// Submits a request for `len` bytes at `offset`: a write of `fill`, or else a read. Its token is
/// the offset.
pub(crate) fn submit(host: &mut InlineHost, offset: u64, len: u32, fill: Option<u8>) {
    let mut buffer = host.arena().alloc(len as usize);
    let operation = match (fill, &mut buffer) {
        (None, _) => Operation::Read,
        (Some(fill), buffer) => {
            buffer.as_mut().unwrap().fill(fill);
            Operation::Write { fua: false }
        }
    };
    host.submit(Request { operation, offset, len, buffer }, offset).unwrap();
}

/// Waits until `count` requests have ended, none of them with an error.
pub(crate) fn await_done(host: &mut InlineHost, count: usize) -> Vec<Completion> {
    let (mut done, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while done.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} requests are done", done.len());
        host.wait(&mut done, Duration::from_millis(100));
    }
    assert!(done.iter().all(|it: &Completion| it.result.is_ok()), "{done:?}");
    done
}
