//! Load with verified reads and writes, while a test disturbs the network.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tyche_testkit::random::Random;

use crate::rig::wait_until;

/// Bytes of a request: large enough that several links carry a part of each.
const BLOCK: usize = 256 << 10;
/// Concurrent requests, each in blocks of its own.
const WORKERS: u64 = 4;
/// Blocks of a worker.
const BLOCKS: u64 = 32;

/// Minimum size of the device.
pub(crate) const LOAD_SIZE: u64 = WORKERS * BLOCKS * BLOCK as u64;

/// Threads that read and write a device, and check each block that they read. The device is the
/// file of `--as fuse`, which has no cache in front of it.
pub(crate) struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    requests: AtomicU64,
    longest_us: AtomicU64,
}

impl Load {
    /// Starts the load; returns once every worker can run.
    pub(crate) fn start(device: &Path) -> Self {
        let shared = Arc::new(Shared::default());
        let file = Arc::new(File::options().read(true).write(true).open(device).unwrap());
        let start = |number| {
            let (shared, file) = (Arc::clone(&shared), Arc::clone(&file));
            thread::spawn(move || work(&shared, &file, number))
        };
        let load = Self { workers: (0..WORKERS).map(start).collect(), shared };
        load.await_progress();
        load
    }

    /// Waits until requests that begin after this call have ended.
    pub(crate) fn await_progress(&self) {
        let enough = self.shared.requests.load(Relaxed) + 4 * WORKERS;
        wait_until("requests are answered", || {
            assert!(!self.workers.iter().any(JoinHandle::is_finished), "a request failed");
            self.shared.requests.load(Relaxed) >= enough
        });
    }

    /// The longest time of a request since the last call.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.shared.longest_us.swap(0, Relaxed))
    }

    /// Ends the load after a last check of every block.
    ///
    /// # Panics
    /// If a request failed, or a block did not have its last written content.
    pub(crate) fn finish(self) {
        self.shared.over.store(true, Relaxed);
        for worker in self.workers {
            worker.join().unwrap();
        }
        println!("load: {} requests", self.shared.requests.load(Relaxed));
    }
}

fn work(shared: &Shared, file: &File, number: u64) {
    let mut random = Random(number);
    // Seed of the last written content, by block.
    let mut written = BTreeMap::new();
    let (mut content, mut found) = (vec![0; BLOCK], vec![0; BLOCK]);
    while !shared.over.load(Relaxed) {
        let block = number * BLOCKS + random.next() % BLOCKS;
        let (at, reads) = (block * BLOCK as u64, random.next().is_multiple_of(2));
        match written.get(&block).filter(|_| reads) {
            Some(seed) => {
                let began = Instant::now();
                file.read_exact_at(&mut found, at).unwrap();
                shared.note(began);
                Random(*seed).fill(&mut content);
                assert!(found == content, "block {block} differs");
            }
            None => {
                let seed = random.next();
                Random(seed).fill(&mut content);
                let began = Instant::now();
                file.write_all_at(&content, at).unwrap();
                shared.note(began);
                written.insert(block, seed);
            }
        }
    }
    for (block, seed) in written {
        file.read_exact_at(&mut found, block * BLOCK as u64).unwrap();
        Random(seed).fill(&mut content);
        assert!(found == content, "block {block} differs in the end");
    }
}

impl Shared {
    /// Counts a request that began at `began` and has ended.
    fn note(&self, began: Instant) {
        let took = u64::try_from(began.elapsed().as_micros()).unwrap();
        self.longest_us.fetch_max(took, Relaxed);
        self.requests.fetch_add(1, Relaxed);
    }
}
