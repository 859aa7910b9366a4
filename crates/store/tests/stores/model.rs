//! Random operations, several in flight, against a store and against a plain vector.

use std::fs;
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};
use tyche_block::{Operation, StatusRun, status_runs};
use tyche_store::Store;
use tyche_store::fault::FaultStore;
use tyche_store::file::{Direct, FileOptions, FileStore};
use tyche_store::memory::MemoryStore;
use tyche_testkit::random::Random;

use crate::drive::Driver;

/// Bytes of every disk here: larger than the chunks of any store, and not round.
pub(crate) const SIZE: u64 = (3 << 20) + (24 << 10);
const DEPTH: usize = 16;
/// The token of a request for the status of a range; requests of the model have small ones.
const STATUS: u64 = u64::MAX - 1;
/// The longest range of one request, larger than a step of zeroing.
const LEN_MAX: u64 = 5 << 18;

/// The expected content of a disk. Discarded bytes may be anything.
pub(crate) struct Oracle {
    pub(crate) bytes: Vec<u8>,
    defined: Vec<bool>,
    block: u64,
}

impl Oracle {
    pub(crate) fn new(size: u64, block_size: u32) -> Self {
        let block = u64::from(block_size);
        Self { bytes: vec![0; size as usize], defined: vec![true; (size / block) as usize], block }
    }

    fn define(&mut self, offset: u64, len: usize, defined: bool) {
        let first = (offset / self.block) as usize;
        self.defined[first..first + len / self.block as usize].fill(defined);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        self.define(offset, bytes.len(), true);
    }

    /// Checks that what is told as holes reads as zeroes, except for `changing` ranges.
    fn check_holes(
        &self,
        offset: u64,
        runs: impl IntoIterator<Item = StatusRun>,
        changing: &[(u64, usize)],
    ) -> u64 {
        let mut at = offset;
        for StatusRun { len, is_hole, is_zero } in runs {
            for start in (at..at + len).step_by(self.block as usize) {
                let is_changing =
                    |&(from, len): &(u64, usize)| (from..from + len as u64).contains(&start);
                let number = (start / self.block) as usize;
                let found = &self.bytes[start as usize..][..self.block as usize];
                let matters = self.defined[number] && !changing.iter().any(is_changing);
                let is_data = matters && found.iter().any(|&byte| byte != 0);
                assert!(!is_data || !(is_hole || is_zero), "block {number} is told as a hole");
            }
            at += len;
        }
        at
    }

    pub(crate) fn check(&self, offset: u64, read: &[u8]) {
        let block = self.block as usize;
        for (index, found) in read.chunks(block).enumerate() {
            let number = offset as usize / block + index;
            if self.defined[number] {
                let expected = &self.bytes[number * block..][..block];
                assert!(found == expected, "block {number} is not what was written");
            }
        }
    }
}

/// Ranges that do not overlap, in random order.
fn ranges(random: &mut Random, size: u64, block: u64) -> Vec<(u64, usize)> {
    let mut ranges = Vec::new();
    let mut at = random.below(size / 4) / block * block;
    while at < size && ranges.len() < DEPTH {
        // Mostly small: there alignment is odd.
        let most = if random.chance(8) { LEN_MAX } else { 16 << 10 };
        let len = (random.below(most) / block * block + block).min(size - at);
        ranges.push((at, len as usize));
        at += len + random.below(size / 8) / block * block;
    }
    for index in (1..ranges.len()).rev() {
        ranges.swap(index, random.below(index as u64 + 1) as usize);
    }
    ranges
}

fn operation(random: &mut Random) -> Operation {
    let fua = random.chance(4);
    match random.below(16) {
        0..6 => Operation::Read,
        6..12 => Operation::Write { fua },
        12 => Operation::Discard,
        _ => Operation::WriteZeroes { fua, may_unmap: random.chance(2) },
    }
}

/// Runs the model; returns the expected content.
pub(crate) fn run(store: &dyn Store, seed: u64, register: bool, rounds: usize) -> Oracle {
    // Printed only if the run fails: the seed repeats it.
    println!("seed {seed}");
    let geometry = store.geometry();
    let (size, block) = (geometry.size, u64::from(geometry.block_size));
    let mut random = Random(seed);
    let mut oracle = Oracle::new(size, geometry.block_size);
    let mut driver = Driver::new(store, DEPTH + 2);
    if register {
        driver.queue.register(&driver.arena.clone());
    }
    for _ in 0..rounds {
        let mut requests = Vec::new();
        for (offset, len) in ranges(&mut random, size, block) {
            let operation = operation(&mut random);
            let bytes = random.bytes(if operation.has_data() { len } else { 0 });
            // Reads get a buffer of the same rubbish, so that one left unfilled is noticed.
            let buffer = operation.has_data().then(|| driver.buffer(&bytes));
            driver.submit_with(requests.len() as u64, operation, offset, len, buffer);
            requests.push((operation, offset, len, bytes));
            if random.chance(3) {
                driver.queue.kick().unwrap();
            }
        }
        if random.chance(4) {
            driver.submit(u64::MAX, Operation::Flush, 0, 0);
        }
        let (asked, len) = (random.below(size / block) * block, block as usize);
        driver.submit(STATUS, Operation::BlockStatus, asked, len);
        let mut status = Vec::new();
        for completion in driver.finish() {
            if completion.token == STATUS {
                completion.result.expect("a status");
                let answer = completion.buffer.expect("its buffer");
                let runs = status_runs(&answer[..len], asked, geometry.block_size);
                status.extend(runs.expect("a list of runs"));
                continue;
            }
            completion.result.expect("every request of the model succeeds");
            let Some((operation, offset, len, bytes)) = requests.get(completion.token as usize)
            else {
                continue;
            };
            match operation {
                Operation::Read => oracle.check(*offset, &completion.buffer.unwrap()),
                Operation::Write { .. } => oracle.store(*offset, bytes),
                Operation::WriteZeroes { .. } => oracle.store(*offset, &vec![0; *len]),
                Operation::Discard => oracle.define(*offset, *len, false),
                Operation::Flush | Operation::BlockStatus => {
                    unreachable!("these have tokens of their own")
                }
            }
        }
        let changing: Vec<_> = requests.iter().map(|&(_, offset, len, _)| (offset, len)).collect();
        oracle.check_holes(asked, status, &changing);
        let mut at = 0;
        while at < size {
            at = oracle.check_holes(at, driver.status(at, size), &[]);
        }
    }
    if register {
        driver.queue.unregister(&driver.arena.clone());
    }
    let all = driver.read(0, size as usize);
    oracle.check(0, &all);
    driver.assert_nothing_is_lent();
    oracle
}

#[test]
fn memory_is_a_disk() {
    for (seed, block_size) in [(1, 512), (2, 4096)] {
        run(&MemoryStore::new(SIZE, block_size).unwrap(), seed, true, 200);
    }
}

#[test]
fn a_fault_store_without_faults_is_a_disk() {
    run(&FaultStore::new(MemoryStore::new(SIZE, 512).unwrap()), 3, false, 50);
    let inner = MemoryStore::new(SIZE, 4096).unwrap();
    run(&FaultStore::with_volatile_cache(inner).unwrap(), 4, false, 50);
    let (file, options) = (file_in(&std::env::temp_dir()), FileOptions::default());
    run(&FaultStore::new(FileStore::open(file.path(), &options).unwrap()), 5, false, 20);
}

fn file_in(dir: &Path) -> NamedTempFile {
    let file = NamedTempFile::new_in(dir).unwrap();
    // Not a multiple of any block size: the bytes beyond the last whole block are not ours.
    file.as_file().set_len(SIZE + 100).unwrap();
    file
}

fn file_model(dir: &Path, seed: u64, options: &FileOptions) {
    let file = file_in(dir);
    let oracle = {
        let store = FileStore::open(file.path(), options).unwrap();
        println!("{store:?}");
        assert_eq!(store.geometry().size, SIZE);
        run(&store, seed, seed.is_multiple_of(2), 25)
    };
    let content = fs::read(file.path()).unwrap();
    assert_eq!(content.len() as u64, SIZE + 100, "the file keeps its size");
    oracle.check(0, &content[..SIZE as usize]);
    assert_eq!(content[SIZE as usize..], [0; 100]);
}

#[test]
fn a_file_is_a_disk() {
    let mut seed = 100;
    for direct in [Direct::Auto, Direct::Off] {
        for block_size in [512, 4096] {
            for write_back in [true, false] {
                let block_size = Some(block_size);
                let options =
                    FileOptions { direct, write_back, block_size, ..FileOptions::default() };
                file_model(&std::env::temp_dir(), seed, &options);
                file_model(&std::env::temp_dir(), seed + 1, &options);
                seed += 2;
            }
        }
    }
}

/// A filesystem that can punch holes but not zero ranges: the fallback that writes zeroes.
#[test]
fn a_file_in_memory_is_a_disk() {
    let Ok(dir) = TempDir::new_in("/dev/shm") else {
        println!("SKIPPED: no /dev/shm");
        return;
    };
    for (seed, direct) in [(200, Direct::Off), (201, Direct::Auto)] {
        file_model(dir.path(), seed, &FileOptions { direct, ..FileOptions::default() });
    }
}
