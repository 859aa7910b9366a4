//! The cases of `cargo xtask counts`, for the cost of a 4 KiB request in state that threads share:
//! it runs one side of each under valgrind, and compares with `counts.txt`. By itself this program
//! counts only voluntary context switches.
//!
//! Without arguments it names its cases, and says which sleep under valgrind. With a case, its
//! number of turns and of requests in each, and `traced` under valgrind, it is that case's side, in
//! a network namespace with a veth pair of [`OURS`] and [`THEIRS`]; the other side is a process of
//! its own, neither slowed down nor counted. Threads take turns: one is in its window ([`opened`]
//! to [`closed`]) while the others wait.

#![allow(clippy::unwrap_used, reason = "a count that cannot set its stage has failed")]

use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tyche::{Completion, Extent, FcoeOptions, Mode, Operation, Options, Request, Volume};
use tyche_engine::Exported;
use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::{
    FcoeTarget, FcoeTargetOptions, Interface, PortOptions, TargetUnit, Units, VisibleTo,
};
use tyche_link::Link;
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_native::{Target, TargetExport, TargetOptions};
use tyche_numa::Placement;
use tyche_proto::wire::{ETHERTYPE, Name, Uuid};
use tyche_proto::{Access, Allowed, BatchPolicy, TargetConfig};
use tyche_store::Store;
use tyche_store::null::NullStore;

const OURS: &str = "counts0";
const THEIRS: &str = "counts1";
const SIZE: u64 = 4 << 20;
const PAGE: u64 = 4096;
/// Name of the target's port, and of its node, over FCoE.
const WWPN: Wwn = Wwn(0x2000_0200_0000_0001);
/// Longer than anything takes, even under valgrind, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests at once, of each thread, before those that are counted.
const WARM_UP: u64 = 8;

/// The side that is counted.
struct Case {
    name: &'static str,
    protocol: Protocol,
    side: Side,
    /// Its threads of requests, or of the target's link, each with a queue.
    queues: usize,
    /// Whether several of its threads spin at once. Valgrind runs one thread at a time, each for a
    /// second: there they sleep when they have nothing to do.
    crowded: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Host(Mode),
    Target,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tyche,
    Fcoe,
}

use Protocol::{Fcoe, Tyche};

impl Protocol {
    /// Its name, as an argument of the other side.
    fn name(self) -> &'static str {
        match self {
            Self::Tyche => "tyche",
            Self::Fcoe => "fcoe",
        }
    }

    fn named(name: &str) -> Self {
        if name == Self::Fcoe.name() { Self::Fcoe } else { Self::Tyche }
    }
}

const INLINE: Side = Side::Host(Mode::Inline);
const QUEUE: Side = Side::Host(Mode::Queue);
const TARGET: Side = Side::Target;

const CASES: &[Case] = &[
    Case { name: "inline", protocol: Tyche, side: INLINE, queues: 1, crowded: false },
    Case { name: "inline_2_queues", protocol: Tyche, side: INLINE, queues: 2, crowded: false },
    Case { name: "queue", protocol: Tyche, side: QUEUE, queues: 1, crowded: true },
    Case { name: "target", protocol: Tyche, side: TARGET, queues: 1, crowded: false },
    Case { name: "target_2_threads", protocol: Tyche, side: TARGET, queues: 2, crowded: true },
    Case { name: "fcoe_inline", protocol: Fcoe, side: INLINE, queues: 1, crowded: false },
];

fn main() {
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let number = |index: usize| args[index].parse::<u64>().unwrap();
    match args.first().map(String::as_str) {
        None => {
            let sleeps = |case: &Case| if case.crowded { " sleeps" } else { "" };
            CASES.iter().for_each(|case| println!("{}{}", case.name, sleeps(case)));
        }
        Some("other-target") => {
            let _target =
                RunningTarget::start(Protocol::named(&args[2]), number(1) as usize, false);
            println!("ready");
            await_line(stdin().lock());
        }
        Some("other-host") => {
            let protocol = Protocol::named(&args[2]);
            let threads = Threads::start(protocol, Mode::Inline, number(1) as usize, false);
            println!("ready");
            await_line(stdin().lock());
            threads.run(number(3), number(4));
            println!("done");
            await_line(stdin().lock());
        }
        Some(name) => {
            let case = CASES.iter().find(|case| case.name == name).expect("a case");
            let traced = args.get(3).is_some_and(|arg| arg == "traced");
            measure(case, number(1), number(2), !(traced && case.crowded));
        }
    }
}

/// The window of the calling thread opens: `cargo xtask counts` knows this function by its name.
#[inline(never)]
fn opened() {
    black_box(1);
}

/// The window of the calling thread closes. A thread that has none never calls it.
#[inline(never)]
fn closed() {
    black_box(0);
}

fn measure(case: &Case, turns: u64, requests: u64, spins: bool) {
    // This thread only waits: what it does in the windows of others does not count.
    closed();
    let total = case.queues as u64 * turns * requests;
    let switches = match case.side {
        Side::Host(mode) => {
            let queues = case.queues.to_string();
            let mut other = Other::start(&["other-target", &queues, case.protocol.name()]);
            let threads = Threads::start(case.protocol, mode, case.queues, spins);
            let before = switches_of_library();
            let switches = threads.run(turns, requests);
            let switches = switches + switches_of_library() - before;
            other.tell();
            switches
        }
        Side::Target => {
            let _target = RunningTarget::start(case.protocol, case.queues, spins);
            let [queues, turns, requests] =
                [case.queues as u64, turns, requests].map(|it| it.to_string());
            let args = ["other-host", &queues, case.protocol.name(), &turns, &requests];
            let mut other = Other::start(&args);
            let before = switches_of_library();
            opened();
            other.tell();
            other.await_line();
            closed();
            let switches = switches_of_library() - before;
            other.tell();
            switches
        }
    };
    println!("requests {total}\nswitches {switches}");
    print!("{}", fs::read_to_string("/proc/self/maps").unwrap());
}

/// The other side, in a process of its own.
struct Other(Child, BufReader<std::process::ChildStdout>);

impl Other {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut other = Self(child, said);
        other.await_line();
        other
    }

    fn tell(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn await_line(&mut self) {
        await_line(&mut self.1);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.wait().unwrap();
    }
}

fn await_line(mut from: impl BufRead) {
    from.read_line(&mut String::new()).unwrap();
}

/// A target, which ends when it is dropped.
#[expect(dead_code, reason = "only held")]
enum RunningTarget {
    Tyche(Box<Target>),
    Fcoe(FcoeTarget),
}

impl RunningTarget {
    /// Starts one with so many threads for its interface: one over FCoE.
    fn start(protocol: Protocol, threads: usize, spins: bool) -> Self {
        match protocol {
            Tyche => Self::Tyche(Box::new(target(threads, spins))),
            Fcoe => Self::Fcoe(fcoe_target(spins)),
        }
    }
}

fn store() -> Arc<dyn Store> {
    Arc::new(NullStore::new(SIZE, 512).unwrap())
}

fn fcoe_target(spins: bool) -> FcoeTarget {
    let unit = TargetUnit {
        number: 0,
        exported: Arc::new(Exported::new("disk".to_owned(), store())),
        uuid: Uuid::from_u128(7),
        shared: false,
        initiators: VisibleTo::default(),
        continues: false,
        generation: None,
    };
    FcoeTarget::start(FcoeTargetOptions {
        port: PortOptions::new(Interface::open(THEIRS, false).unwrap(), (WWPN, WWPN), PATIENCE),
        further_threads: Vec::new(),
        units: Arc::new(Units::new(vec![unit])),
        spin: spin(spins),
    })
    .unwrap()
}

fn target(threads: usize, spins: bool) -> Target {
    let name = |text| Name::new(text).unwrap();
    let link = || Box::new(PacketLink::open(&PacketOptions::new(THEIRS)).unwrap()) as Box<dyn Link>;
    Target::start(TargetOptions {
        keys: None,
        silent: false,
        access: Access::default(),
        target: TargetConfig {
            uuid: Uuid::from_u128(1),
            name: name("target"),
            // Little memory: valgrind is slow to touch it, and the host does not wait that long.
            queue_size_max: 8,
            damq_pages_max: 256,
            memory_pages: 4096,
            batch: BatchPolicy::default(),
        },
        exports: vec![TargetExport {
            name: name("disk"),
            uuid: Uuid::from_u128(7),
            generation: Uuid::from_u128(8),
            store: store(),
            shared: false,
            last_writer: None,
            allowed: Allowed::default(),
            offline: None,
        }],
        links: vec![link()],
        further_threads: (1..threads).map(|_| vec![link()]).collect(),
        beacons: Vec::new(),
        placement: Placement::default(),
        ethertype: ETHERTYPE,
        spin: spin(spins),
        remember_writer: Box::new(|_, _| Ok(())),
        renew_generation: Box::new(|_, _| Uuid::from_u128(9)),
    })
    .unwrap()
}

fn spin(spins: bool) -> Duration {
    if spins { PATIENCE } else { Duration::ZERO }
}

fn options_of_tyche() -> Options {
    let mut options = Options::new("disk");
    options.native.host = Some(Uuid::from_u128(2));
    options.native.keep_alive = PATIENCE;
    options
}

fn options_of_fcoe() -> Options {
    let mut options = Options::new(WWPN.to_string());
    options.fcoe = Some(FcoeOptions { e_d_tov: PATIENCE, ..FcoeOptions::default() });
    options
}

/// Threads with a queue each, which take turns.
struct Threads {
    /// Gives each its turn, of so many requests.
    turns: Vec<Sender<u64>>,
    /// Each thread says that its turn is over, with its voluntary context switches in it.
    over: Receiver<u64>,
}

impl Threads {
    /// Opens the queues, and goes through the requests that are not counted.
    fn start(protocol: Protocol, mode: Mode, queues: usize, spins: bool) -> Self {
        let mut options = match protocol {
            Tyche => options_of_tyche(),
            Fcoe => options_of_fcoe(),
        };
        options.links.push(OURS.to_owned());
        options.mode = mode;
        options.queues = queues;
        options.session.queue_size = 8;
        options.memory = 64 << 10;
        options.spin = spin(spins);
        options.timeout = PATIENCE / 3;
        let first = options.open().unwrap();
        let further: Vec<_> = (1..queues).map(|_| first.open_queue().unwrap()).collect();
        let (sender, over) = channel();
        let polls = mode == Mode::Queue && spins;
        let turns = [first].into_iter().chain(further).map(|volume| {
            let (turn, turns) = channel();
            let sender = sender.clone();
            thread::spawn(move || Caller::new(volume, polls).run(&turns, &sender));
            over.recv().unwrap();
            turn
        });
        Self { turns: turns.collect(), over }
    }

    /// Gives each thread so many turns of so many requests; returns the voluntary context switches
    /// in them.
    fn run(&self, turns: u64, requests: u64) -> u64 {
        let turns = (0..turns).flat_map(|_| &self.turns);
        turns
            .map(|turn| {
                turn.send(requests).unwrap();
                self.over.recv().unwrap()
            })
            .sum()
    }
}

/// A thread that issues requests one after the other.
struct Caller {
    volume: Volume,
    /// Polls with all of its time, because waiting for a queue sleeps.
    polls: bool,
    buffer: Option<Extent>,
    done: Vec<Completion>,
    next: u64,
}

impl Caller {
    fn new(volume: Volume, polls: bool) -> Self {
        let done = Vec::with_capacity(WARM_UP as usize);
        Self { volume, polls, buffer: None, done, next: 0 }
    }

    fn run(mut self, turns: &Receiver<u64>, over: &Sender<u64>) {
        closed();
        self.warm_up();
        over.send(0).unwrap();
        while let Ok(requests) = turns.recv() {
            let before = switches("/proc/thread-self");
            opened();
            (0..requests).for_each(|_| self.request());
            closed();
            over.send(switches("/proc/thread-self") - before).unwrap();
        }
        self.volume.close(PATIENCE);
    }

    /// All at once, for rounds are slow under valgrind while several threads spin.
    fn warm_up(&mut self) {
        for _ in 0..WARM_UP {
            self.buffer = self.volume.arena().alloc(PAGE as usize);
            self.submit();
        }
        while self.volume.in_flight() > 0 {
            self.collect();
        }
        self.buffer = self.done.drain(..).next_back().unwrap().buffer;
    }

    /// A request, with the buffer of the one before.
    fn request(&mut self) {
        self.submit();
        while self.done.is_empty() {
            self.collect();
        }
        let completion = self.done.pop().unwrap();
        completion.result.unwrap();
        self.buffer = completion.buffer;
    }

    /// A read or a write in turn.
    fn submit(&mut self) {
        let number = self.next;
        self.next += 1;
        let operation = match number % 2 {
            0 => Operation::Read,
            _ => Operation::Write { fua: false },
        };
        let offset = number * PAGE % SIZE;
        let request = Request { operation, offset, len: PAGE as u32, buffer: self.buffer.take() };
        self.volume.submit(request, number).unwrap();
    }

    fn collect(&mut self) {
        if self.polls {
            self.volume.poll(&mut self.done, usize::MAX).unwrap();
            thread::yield_now();
        } else {
            self.volume.wait(&mut self.done, 1, usize::MAX, PATIENCE).unwrap();
        }
    }
}

/// Voluntary context switches of the threads that the library has started.
fn switches_of_library() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_its = |name: String| name.starts_with("tyche-") || name.starts_with("fcoe-");
    let tasks = tasks.filter(|task| is_its(fs::read_to_string(task.join("comm")).unwrap()));
    tasks.map(|task| switches(task.to_str().unwrap())).sum()
}

/// Voluntary context switches of a thread.
fn switches(task: &str) -> u64 {
    let status = fs::read_to_string(format!("{task}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}
