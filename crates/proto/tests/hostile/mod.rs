//! Sequences of what a network and an adversary on it can do to a living listener and to a living
//! session, and what must hold whatever it is. The fuzz targets and the tests that replay their
//! corpora check inputs by the same function.
//!
//! Host and target may have keys. Then the adversary has none, whatever it says is said in nobody's
//! name, and the rules hold all the same.
//!
//! The input says, byte by byte, what happens: time passes, the good host asks for something, the
//! network delivers, loses, repeats or reorders, the disk answers, links go and come, and the
//! adversary speaks. After each step both ends are drained and everything is checked: no panic, no
//! memory, no event and no frame without bound, no timer without end, and the rules of
//! [`target`], [`host`] and [`ledger`]. In the end the adversary is silent, and the good host must
//! get a request through, or have been told why not.

#![allow(dead_code, reason = "each fuzz target uses a part")]

mod adversary;
mod bytes;
mod content;
mod forgery;
mod frames;
mod host;
mod ledger;
mod mutation;
mod seals;
mod target;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use tyche_proto::wire::{CommandFlags, Echo, Opcode, SECTOR_LEN, STATUS_LEN_MAX, Status};
use tyche_proto::{Operation, Rules};
use tyche_testkit::allocations::Counting;

use bytes::Bytes;
use host::{Habits, Host};
use target::Target;
pub(crate) use world::Victim;
use world::{LINKS, World};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Steps of one input.
const STEPS_MAX: usize = 200;
/// The upper bits of an input's setup in which host and target have keys.
const KEYED: u16 = 0xa;
/// Time until a request is through or has failed once the adversary is silent: what an operation
/// of a living session has, twice, and the longest that a channel of a silent host lives.
const RECOVERY: Duration = Duration::from_secs(90);
/// Time in which all channels of the adversary die.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(65);

/// What became of an input, to see what a corpus reaches.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Names of the frames' defects that were found.
    pub(crate) rejects: BTreeSet<&'static str>,
    /// Requests that the disk got, and modifications of the good host among them.
    pub(crate) executions: usize,
    pub(crate) modifications: usize,
    /// Operations of the good host that have succeeded, and that have failed.
    pub(crate) succeeded: usize,
    pub(crate) failed: usize,
    /// The adversary has never spoken in the good ends' name.
    pub(crate) is_clean: bool,
    /// Why the good host's session has failed, if it has.
    pub(crate) failure: Option<String>,
}

/// The input in which the same happens between ends with keys.
pub(crate) fn with_keys(input: &[u8]) -> Vec<u8> {
    let mut input = input.to_vec();
    if let Some(upper) = input.get_mut(1) {
        *upper = *upper & 0xf | (KEYED << 4) as u8;
    }
    input
}

/// Lets happen what the input says.
pub(crate) fn check<R: Rules>(victim: Victim, input: &[u8]) -> Report {
    let mut bytes = Bytes::new(input);
    let setup = bytes.u16();
    let bit = |n: u16| setup >> n & 1 != 0;
    let habits = Habits {
        read_only: setup & 0xf == 0xf,
        checksum: !bit(4),
        stages: bit(5),
        channels: if bit(6) { 2 } else { 1 },
        knows_target: bit(7),
        keyed: setup >> 12 == KEYED,
    };
    let (shared, write_cache, outsider, is_late) = (bit(8), bit(9), !bit(10), bit(11));
    let start = tyche_proto::Instant(1_000_000_000);
    let (host, target) =
        (Host::new(habits, 0, start), Target::new(shared, write_cache, habits.keyed));
    let mut world: World<R> = World::new(victim, outsider, host, target);
    world.settle();
    if !is_late {
        world.run(Duration::from_millis(80), true);
        assert!(world.host.session.is_live(), "nothing keeps the two from each other");
    }
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() {
            break;
        }
        step(&mut world, &mut bytes);
        world.settle();
    }
    recover(&mut world, habits);
    report(&world)
}

/// Something happens.
fn step<R: Rules>(world: &mut World<R>, bytes: &mut Bytes<'_>) {
    const TIMES_US: [u64; 10] =
        [10, 200, 1_000, 5_000, 20_000, 60_000, 120_000, 300_000, 1_100_000, 3_000_000];
    match bytes.below(20) {
        0 => world.sleep(Duration::from_micros(bytes.pick(&TIMES_US))),
        1 | 2 => {
            let how = bytes.u8();
            let time = TIMES_US[usize::from(how >> 1) % TIMES_US.len()];
            world.run(Duration::from_micros(time), how & 1 == 0);
        }
        3 | 4 => {
            let operation = operation(bytes);
            world.host.submit(world.now, operation, &mut world.ledger);
        }
        5 | 6 => {
            let how = bytes.u8();
            for _ in 0..=how >> 4 {
                world.deliver(usize::from(how & 1), usize::from(how >> 1 & 7));
            }
        }
        7 => network(world, bytes),
        8 | 9 => {
            let (job, how) = (bytes.below(world.target.jobs.len()), bytes.u8());
            if how & 1 != 0 {
                world.finish_jobs();
            } else if job < world.target.jobs.len() {
                let status = if how & 2 == 0 { Status::Success } else { bytes.pick(Status::ALL) };
                world.complete(job, status);
            }
        }
        10 => owner(world, bytes),
        11..=14 => {
            if let Some((link, frame)) = mutation::mutate(&world.adversary, bytes) {
                world.attack(link, &frame);
            }
        }
        _ => {
            let victim = world.victim();
            if let Some((link, frame)) = forgery::forge(&mut world.adversary, victim, bytes) {
                world.attack(link, &frame);
            }
        }
    }
}

fn operation(bytes: &mut Bytes<'_>) -> Operation {
    let (what, how) = (bytes.u8(), bytes.u8());
    // As many as there were when most of the corpus was found.
    let opcode = match what & 7 {
        5 => Opcode::BlockStatus,
        index => Opcode::ALL[usize::from(index) % 5],
    };
    let fua = matches!(opcode, Opcode::Write | Opcode::WriteZeroes) && what & 8 != 0;
    let flags = if fua { CommandFlags::FUA } else { CommandFlags::NONE };
    let sectors = [1, 2, 8, 8, 9, 32, 128, 512][usize::from(how & 7)];
    let (offset, len) = match opcode {
        Opcode::Flush => (0, 0),
        Opcode::BlockStatus => (u64::from(how >> 3) * SECTOR_LEN, STATUS_LEN_MAX),
        _ => (u64::from(how >> 3) * SECTOR_LEN, sectors * SECTOR_LEN as u32),
    };
    Operation { opcode, flags, offset, len }
}

/// The network does something to frames under way.
fn network<R: Rules>(world: &mut World<R>, bytes: &mut Bytes<'_>) {
    let (what, index) = (bytes.u8(), bytes.below(8));
    let frames = world.under_way(usize::from(what & 1));
    if index >= frames.len() {
        return;
    }
    match what >> 1 & 3 {
        0 => frames.clear(),
        1 => drop(frames.remove(index)),
        2 => {
            let again = frames[index].clone();
            frames.push_back(again);
        }
        _ => frames.swap(0, index),
    }
}

/// The owners of host and target do something.
fn owner<R: Rules>(world: &mut World<R>, bytes: &mut Bytes<'_>) {
    let (what, how) = (bytes.u8(), bytes.u8());
    let link = usize::from(how) % LINKS;
    match what & 15 {
        0 | 1 => world.host.toggle_link(world.now, link, &mut world.ledger),
        2 => world.host.lose_link(world.now, link, how & 2 != 0, &mut world.ledger),
        3 => world.target.keeps = how & 1 == 0,
        4 => world.resize(u64::from(how) << 30),
        5 if how > 0xf0 => world.host.disconnect(world.now, &mut world.ledger),
        6 | 7 => {
            let echo = Echo { sequence: 1, replies: u16::from(how & 7), reply_len: 88 };
            world.host.session.echo(echo, 88 + usize::from(how));
        }
        _ => {}
    }
}

/// The adversary is silent: the good host gets a request through, or was told why not.
fn recover<R: Rules>(world: &mut World<R>, habits: Habits) {
    world.target.keeps = true;
    while let Some(removed) = world.host.ports.iter().position(|used| !used) {
        world.host.toggle_link(world.now, removed, &mut world.ledger);
    }
    if !gets_through(world, habits.read_only) {
        // Its place may be the adversary's as long as that one's channels live.
        assert!(world.host.failure.is_some() || world.host.is_closed, "a session without an end");
        world.run(KEEP_ALIVE_MAX, true);
        world.restart_host(habits, 1);
        let clean = std::mem::replace(&mut world.ledger.is_clean, true);
        assert!(gets_through(world, habits.read_only), "a new session does not get in");
        world.ledger.is_clean = clean;
    }
    assert_eq!(world.host.pending(), 0, "operations that do not end");
}

/// Whether a request of the good host is through before its session fails.
fn gets_through<R: Rules>(world: &mut World<R>, read_only: bool) -> bool {
    let end = world.now + RECOVERY;
    let mut asked = None;
    while world.now < end {
        if world.host.session.is_over() {
            return false;
        }
        // All operations of before end first.
        if asked.is_none() && world.host.pending() == 0 {
            // Whoever forges an offer can make it a device that only reads.
            let export = world.host.session.export();
            let read_only = read_only || export.is_some_and(|export| export.geometry.read_only);
            let opcode = if read_only { Opcode::Read } else { Opcode::Write };
            let operation = Operation { opcode, flags: CommandFlags::NONE, offset: 0, len: 4096 };
            world.host.submit(world.now, operation, &mut world.ledger);
            asked = Some(world.host.succeeded);
            world.settle();
        }
        if asked.is_some_and(|before| world.host.succeeded > before) {
            return true;
        }
        if asked.is_some() && world.host.pending() == 0 {
            // It has ended otherwise: the next may fare better.
            asked = None;
        }
        world.run(Duration::from_millis(20), true);
    }
    panic!("a request is neither through nor has it failed");
}

fn report<R: Rules>(world: &World<R>) -> Report {
    let mut report = Report {
        executions: world.target.executions,
        modifications: world.ledger.modifications(),
        succeeded: world.host.succeeded,
        failed: world.host.completed - world.host.succeeded,
        is_clean: world.ledger.is_clean,
        failure: world.failure.or(world.host.failure).map(|failure| failure.to_string()),
        ..Report::default()
    };
    let listeners = world.target.listeners.iter().flat_map(|listener| listener.rejects().iter());
    for (reject, _) in listeners.chain(world.host.session.rejects().iter()) {
        report.rejects.insert(reject.name());
    }
    report
}
