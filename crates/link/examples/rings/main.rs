//! Compares methods to send and receive raw frames, by system calls or by rings shared with the
//! kernel, under the load of a target that answers reads: requests one way, checksummed data the
//! other.
//!
//! ```text
//! ip link add ra mtu 9000 type veth peer name rb mtu 9000
//! ip link set ra up; ip link set rb up
//! rings ra rb [BLOCK_BYTES]        compares; blocks are 4096 bytes
//! rings reuse ra rb                is a slot of a TX ring given back while its frame is in use?
//! ```
//!
//! Run it in a network namespace of its own (`unshare --net`): it uses any EtherTypes. One thread
//! on CPU 0 is the host, one on CPU 1 the target, and both spin. Machines drift by more than the
//! differences measured here, so the methods run in short turns, round robin, and ratios are
//! medians of the ratios within a round.
//!
//! All data are copied between two places of 64 MiB, at random. Both sides compute the CRC-32C, and
//! a wrong one ends the program.

mod io;
mod reuse;
mod ring;

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use io::{BlockMemory, Content, ENTRY, HEAD, In, Out, Wire};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The number of rounds, and the length of each turn.
const ROUNDS: usize = 25;
const TURN: Duration = Duration::from_millis(40);

/// Blocks in flight, blocks per frame of requests, and blocks per frame of data.
struct Load {
    depth: usize,
    commands: usize,
    blocks: usize,
}

/// The methods by name: how both sides send and receive.
const WAYS: [(&str, Out, In); 7] = [
    ("sendmmsg / recvmmsg", Out::Calls { linear: false }, In::Calls { placed: false }),
    ("sendmmsg / recvmmsg in place", Out::Calls { linear: false }, In::Calls { placed: true }),
    ("sendmmsg linear / recvmmsg", Out::Calls { linear: true }, In::Calls { placed: false }),
    ("TX ring / recvmmsg", Out::Ring, In::Calls { placed: false }),
    ("sendmmsg / RX ring", Out::Calls { linear: false }, In::Ring),
    ("sendmmsg linear / RX ring", Out::Calls { linear: true }, In::Ring),
    ("TX ring / RX ring", Out::Ring, In::Ring),
];

/// State shared by the threads of a load.
#[derive(Default)]
struct Shared {
    /// The method that runs now.
    way: AtomicUsize,
    ready: AtomicBool,
    stop: AtomicBool,
    /// Nanoseconds that the target has spent on frames, over all methods.
    target_ns: AtomicUsize,
}

/// One turn's nanoseconds per block: elapsed, and spent on frames by host and target.
#[derive(Clone, Copy)]
struct Turn([f64; 3]);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (host, target, block) = match arguments[..] {
        ["reuse", from, to] => return reuse::run(from, to),
        [host, target] => (host, target, 4096),
        [host, target, block] => (host, target, block.parse()?),
        _ => return Err("usage: rings [reuse] INTERFACE INTERFACE [BLOCK_BYTES]".into()),
    };
    let interfaces = tyche_link::packet::interfaces()?;
    let interface = interfaces.iter().find(|info| info.name == host);
    let mtu = interface.ok_or_else(|| format!("there is no interface {host}"))?.mtu;
    let blocks_max = ((mtu + 14 - HEAD) / (block + ENTRY)).min(16);
    println!("blocks of {block} bytes, MTU {mtu}");
    let mut loads = vec![(1, 1), (32, blocks_max), (128, 1), (128, blocks_max)];
    loads.dedup();
    for (depth, blocks) in loads {
        let load = Load { depth, commands: blocks.max(16 / blocks * blocks).min(depth), blocks };
        let rounds = compare(host, target, block, &load)?;
        report(&load, &rounds);
    }
    Ok(())
}

/// Runs the turns of all methods. Returns them by round and method.
fn compare(
    host: &str,
    target: &str,
    block: usize,
    load: &Load,
) -> Result<Vec<Vec<Turn>>, Box<dyn Error>> {
    let shared = Shared::default();
    let frame_max = HEAD + load.blocks.max(1) * (block + ENTRY) + load.commands * ENTRY;
    thread::scope(|scope| {
        let served = scope.spawn(|| {
            let result = serve(target, frame_max, block, load, &shared);
            shared.ready.store(true, Ordering::Release);
            result.map_err(|error| error.to_string())
        });
        let asked = ask(host, frame_max, block, load, &shared);
        shared.stop.store(true, Ordering::Release);
        served.join().expect("the target's thread does not panic")?;
        asked
    })
}

fn ask(
    interface: &str,
    frame_max: usize,
    block: usize,
    load: &Load,
    shared: &Shared,
) -> Result<Vec<Vec<Turn>>, Box<dyn Error>> {
    pin(0)?;
    let mut ends = open(interface, frame_max)?;
    let mut place = BlockMemory::new(block);
    while !shared.ready.load(Ordering::Acquire) {
        thread::yield_now();
    }
    let mut rounds = Vec::new();
    // The first round warms up.
    for round in 0..=ROUNDS {
        let mut turns = Vec::new();
        for (way, (sender, receiver)) in ends.iter_mut().enumerate() {
            shared.way.store(way, Ordering::Release);
            let target_before = shared.target_ns.load(Ordering::Acquire);
            let start = Instant::now();
            let (mut done, mut asked, mut busy) = (0, 0, Duration::ZERO);
            while start.elapsed() < TURN || done < asked {
                let before = Instant::now();
                let room = (load.depth - (asked - done)) / load.commands;
                let frames = if start.elapsed() < TURN { room } else { 0 };
                sender.send(&mut place, frames, Content { blocks: 0, entries: load.commands })?;
                asked += frames * load.commands;
                let answered = receiver.receive(&mut place, load.blocks)?;
                done += answered;
                if frames + answered > 0 {
                    busy += before.elapsed();
                }
                if start.elapsed() > 20 * TURN {
                    return Err(
                        format!("{}: {} answers are missing", WAYS[way].0, asked - done).into()
                    );
                }
            }
            let took = start.elapsed();
            let target = shared.target_ns.load(Ordering::Acquire) - target_before;
            let per_block = |ns: f64| ns / done as f64;
            turns.push(Turn([
                per_block(took.as_nanos() as f64),
                per_block(busy.as_nanos() as f64),
                per_block(target as f64),
            ]));
        }
        if round > 0 {
            rounds.push(turns);
        }
    }
    Ok(rounds)
}

fn serve(
    interface: &str,
    frame_max: usize,
    block: usize,
    load: &Load,
    shared: &Shared,
) -> Result<(), Box<dyn Error>> {
    pin(1)?;
    let mut ends = open(interface, frame_max)?;
    let mut place = BlockMemory::new(block);
    shared.ready.store(true, Ordering::Release);
    while !shared.stop.load(Ordering::Acquire) {
        let (sender, receiver) = &mut ends[shared.way.load(Ordering::Acquire)];
        let before = Instant::now();
        let wanted = receiver.receive(&mut place, 0)?;
        if wanted == 0 {
            continue;
        }
        let content = Content { blocks: load.blocks, entries: load.blocks };
        sender.send(&mut place, wanted / load.blocks, content)?;
        let ns = before.elapsed().as_nanos() as usize;
        shared.target_ns.fetch_add(ns, Ordering::AcqRel);
    }
    Ok(())
}

/// One end of every method, each with an EtherType of its own.
fn open(
    interface: &str,
    frame_max: usize,
) -> Result<Vec<(io::Sender, io::Receiver)>, Box<dyn Error>> {
    let open = |(ethertype, (_, out, input)): (u16, &(_, Out, In))| {
        let wire = Wire { interface, ethertype, frame_max };
        Ok((io::Sender::open(wire, *out)?, io::Receiver::open(wire, *input)?))
    };
    (0xF000..).zip(&WAYS).map(open).collect()
}

fn report(load: &Load, rounds: &[Vec<Turn>]) {
    let Load { depth, commands, blocks } = load;
    let unit = if *depth == 1 { "µs" } else { "thousand/s" };
    println!("\ndepth {depth}, {commands} commands and {blocks} blocks a frame\n");
    println!("| way | {unit} | ratio | host, ns | target, ns |\n|---|---|---|---|---|");
    for (way, (name, ..)) in WAYS.iter().enumerate() {
        let column = |what: usize| median(rounds.iter().map(|round| round[way].0[what]));
        let ratio = median(rounds.iter().map(|round| round[0].0[0] / round[way].0[0]));
        let (took, host, target) = (column(0), column(1), column(2));
        let rate =
            if *depth == 1 { format!("{:.1}", took / 1e3) } else { format!("{:.0}", 1e6 / took) };
        println!("| {name} | {rate} | {ratio:.2} | {host:.0} | {target:.0} |");
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn pin(cpu: usize) -> Result<(), Box<dyn Error>> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
