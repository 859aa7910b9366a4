//! The loop, its ports and the stores serve another protocol than Tyche.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use tyche_block::Arena;
use tyche_engine::{BATCH, Batches, EventLoop, Port, Ports, Service};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::{Link, memory};
use tyche_numa::NumaAffinity;
use tyche_store::Store;
use tyche_store::memory::MemoryStore;
use tyche_time::Instant;
use tyche_wake::Spin;

use crate::sectors::{Client, HEAD, SECTOR, SECTORS, Server, WRITE};

/// Runs a loop over one link, to its end.
fn run<T: Service>(service: T, link: impl Link + 'static) -> T {
    let mut ports = Ports::new();
    let batches = Batches { frames: BATCH, head_len: HEAD, pieces_max: 1 };
    ports.insert(0, Port::new(Box::new(link), NumaAffinity::default(), batches));
    EventLoop::new(service, ports, Spin::new(Duration::ZERO)).run()
}

#[test]
fn sectors_are_written_and_read_over_a_lossy_link() {
    let (a, b) = memory::pair(1514).unwrap();
    let plan = FaultPlan::new();
    plan.set_drop_ppm(200_000);
    let lossy = FaultLink::new(a, 1, Side::Both, plan.clone()).unwrap();
    let now = Instant(tyche_wake::now_ns());
    let server = thread::spawn(move || {
        let store = MemoryStore::new(SECTORS * SECTOR as u64, SECTOR as u32).unwrap();
        let (arena, over_at) = (Arena::new(1024), Some(now + Duration::from_secs(60)));
        let mut queue = store.queue(1024).unwrap();
        queue.register(&arena);
        let (done, outbox) = (Vec::new(), Default::default());
        run(Server { queue, arena, over_at, done, outbox }, b);
    });
    let (arena, answers, outbox) = (Arena::new(1024), BTreeMap::new(), Default::default());
    let client = run(Client { arena, code: WRITE, answers, ask_at: now, outbox }, lossy);
    server.join().unwrap();
    assert!(plan.counts().dropped > 0);
    for (sector, data) in client.answers {
        assert_eq!(data, [sector as u8 + 1; SECTOR], "sector {sector}");
    }
}
