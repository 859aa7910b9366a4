//! A flood of handshake frames from made-up hosts and addresses, as fast as one core sends them:
//! its cost for the target, and for a session beside it.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tyche_block::{Completion, Operation, Request};
use tyche_native::InlineHost;
use tyche_proto::SessionConfig;
use tyche_proto::wire::{
    Body, ChannelId, Connect, ConnectFlags, Control, Cookie, Discover, Flags, Header, Hello, Mac,
    Name, Ticket, Uuid,
};
use tyche_testkit::random::Random;

use crate::rig::{DISK, PATIENCE, Rig, Side, Stranger, Target, forged, rig};

/// Environment variable with the seconds that the flood lasts.
pub(super) const SECONDS: &str = "TYCHE_FLOOD_SECONDS";
/// The most that the target may grow, in bytes, as stated in docs/reference.md.
const GROWTH_MAX: usize = 64 << 20;
/// Requests in flight of the session beside the flood.
const DEPTH: u64 = 32;
/// Connects for each ticket.
const PER_TICKET: usize = 4;
/// Number of Discover frames in a round; as many Hello frames, and as many Connect frames without a
/// valid ticket, are sent with them.
const QUESTIONS: usize = 4096;
/// Time limit for new hosts to connect.
const NEWCOMERS_TIME: Duration = Duration::from_secs(15);
/// Frames sent at once.
const BATCH: usize = 64;
/// Number of made-up addresses.
const ADDRESSES: u64 = 1024;

pub(super) struct Flood {
    stranger: Stranger,
    random: Random,
    target: (Mac, Uuid),
    exports: Vec<Uuid>,
    /// Tickets that the target has given to made-up addresses.
    tickets: Vec<(Mac, Ticket)>,
    sent: usize,
    accepted: usize,
    refused: usize,
}

impl Flood {
    /// `target`: its address and UUID.
    pub(super) fn new(stranger: Stranger, target: (Mac, Uuid), exports: Vec<Uuid>) -> Self {
        let (random, tickets) = (Random(7), Vec::new());
        Self { stranger, random, target, exports, tickets, sent: 0, accepted: 0, refused: 0 }
    }

    fn uuid(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.random.next(), self.random.next())
    }

    fn address(&mut self) -> Mac {
        let [.., a, b] = (self.random.next() % ADDRESSES).to_be_bytes();
        Mac([2, 0, 0x5e, 0, a, b])
    }

    fn frame(&self, from: Mac, control: Control) -> Vec<u8> {
        forged((self.target.0, from), Header::new(control.kind()), Some(control))
    }

    fn discover(&mut self) -> Vec<u8> {
        let all = self.random.next().is_multiple_of(2);
        let target = if all { Uuid::nil() } else { self.target.1 };
        let discover = Discover { target, ..Discover::any(self.random.next(), self.uuid()) };
        let from = self.address();
        self.frame(from, Control::Discover(discover))
    }

    fn hello(&mut self) -> Vec<u8> {
        let hello = Hello {
            nonce: self.random.next(),
            target: self.target.1,
            ticket: Ticket::NONE,
            frame_len: 1024,
        };
        let from = self.address();
        self.frame(from, Control::Hello(hello))
    }

    fn connect(&mut self, from: Mac, ticket: Ticket) -> Vec<u8> {
        let export = self.random.next() as usize % self.exports.len();
        let connect = Connect {
            attempt: self.random.next(),
            ticket,
            target: self.target.1,
            host: self.uuid(),
            session: self.uuid(),
            device: self.uuid(),
            export: self.exports[export],
            host_name: Name::new("made-up").unwrap(),
            cookie: Cookie(self.random.next() | 1),
            channel: ChannelId((self.random.next() % 64) as u16),
            queue_size: 1024,
            rings: [4096; 2],
            frame_len: 1514,
            damq_pages: 1 << 20,
            flags: if export == 0 { ConnectFlags::READ_ONLY } else { ConnectFlags::NONE },
            keep_alive_ms: 60_000,
        };
        self.frame(from, Control::Connect(connect))
    }

    /// Collects the tickets in the target's answers.
    fn hear(&mut self) {
        let Self { stranger, tickets, accepted, refused, target, .. } = self;
        stranger.hear(|heard| {
            if heard.source() != target.0 || heard.header.kind.on_channel() {
                return;
            }
            let Body::Control(pdu) = heard.parsed().body else { return };
            match pdu.decode() {
                Control::Hello(hello) if heard.header.flags.contains(Flags::REPLY) => {
                    tickets.push((heard.destination(), hello.ticket));
                }
                Control::Accept(_) => *accepted += 1,
                Control::Reject(_) => *refused += 1,
                _ => {}
            }
        });
    }

    pub(super) fn run(&mut self, over: &AtomicBool) {
        // Built before the loop, so that its time is spent on sending.
        let mut questions = Vec::new();
        for _ in 0..QUESTIONS {
            let (from, stale) = (self.address(), Ticket([7; Ticket::LEN]));
            questions.extend([self.discover(), self.hello(), self.connect(from, stale)]);
        }
        for batch in questions.chunks(BATCH).cycle().take_while(|_| !over.load(Relaxed)) {
            let mut connects = Vec::new();
            for (from, ticket) in std::mem::take(&mut self.tickets) {
                connects.extend((0..PER_TICKET).map(|_| self.connect(from, ticket)));
            }
            self.stranger.send(batch);
            self.stranger.send(&connects);
            self.sent += batch.len() + connects.len();
            self.hear();
        }
    }
}

/// Random reads per second at depth [`DEPTH`], and the target's peak memory meanwhile.
pub(super) fn measure(host: &mut InlineHost, target: &Target, time: Duration) -> (f64, usize) {
    let (mut random, mut done, mut count, mut peak) = (Random(1), Vec::<Completion>::new(), 0, 0);
    let began = Instant::now();
    let mut look = began;
    let mut begin = |host: &mut InlineHost| {
        let buffer = host.arena().alloc(4096);
        let offset = random.next() % (16 << 8) * 4096;
        let request = Request { operation: Operation::Read, offset, len: 4096, buffer };
        host.submit(request, 0).unwrap();
    };
    (0..DEPTH).for_each(|_| begin(host));
    while began.elapsed() < time {
        host.wait(&mut done, Duration::from_millis(100));
        assert!(done.iter().all(|it| it.result.is_ok()), "{done:?}");
        count += done.len();
        done.drain(..).for_each(|_| begin(host));
        if look <= Instant::now() {
            peak = peak.max(resident(target));
            look += Duration::from_millis(100);
        }
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let (mut rest, deadline) = (0, Instant::now() + PATIENCE);
    while rest < DEPTH as usize {
        assert!(Instant::now() < deadline, "{rest} of the last requests are answered");
        host.wait(&mut done, Duration::from_millis(100));
        rest += done.drain(..).count();
    }
    (rate, peak)
}

/// Connects hosts that the target does not know, one after the other, and returns how long each has
/// waited.
fn newcomers(rig: &Rig, over: &AtomicBool) -> Vec<Duration> {
    let mut waits = Vec::new();
    while !over.load(Relaxed) {
        let began = Instant::now();
        // The new host itself uses little memory.
        let change = |session: &mut SessionConfig| {
            (session.read_only, session.damq_pages) = (true, 256);
        };
        let host = rig.inline_host(&["tye-h"], change);
        waits.push(began.elapsed());
        host.disconnect(PATIENCE);
    }
    waits
}

/// The first and the last core that this thread may run on: one for the flood and the session's
/// host, the other for the target. A flood from another machine would not take the target's core
/// either.
fn cores() -> [CpuSet; 2] {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let first = cpus.next().expect("a thread has a core");
    [first, cpus.next_back().unwrap_or(first)].map(|cpu| {
        let mut set = CpuSet::new();
        set.set(cpu);
        set
    })
}

/// The least, the median, the 90th percentile and the greatest of times that are sorted.
pub(super) fn summary(times: &[Duration]) -> [Duration; 4] {
    let last = times.len() - 1;
    [0, last / 2, last * 9 / 10, last].map(|index| times[index])
}

/// The target's resident memory in bytes.
fn resident(target: &Target) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", target.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// The target and its exports; the session's export comes first.
pub(super) fn discovered(rig: &Rig) -> (Uuid, Vec<Uuid>) {
    let found = rig.ask(&["discover", "--link", "tye-h", "--timeout", "0.5"]);
    let mut exports = found["exports"].as_array().unwrap().clone();
    exports.sort_by_key(|it| it["export"] != DISK);
    let uuid = |text: &serde_json::Value| text.as_str().unwrap().parse().unwrap();
    (uuid(&exports[0]["target"]), exports.iter().map(|it| uuid(&it["uuid"])).collect())
}

#[test]
fn a_flood_costs_little_memory_and_leaves_a_session_its_share() {
    let seconds = std::env::var(SECONDS).map_or(5, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds);
    let rig = rig!(alone);
    let ends = [(Side::Target, "tye-t"), (Side::Host, "tye-h"), (Side::Host, "tye-s")];
    rig.cable.lay_hub("hub", &ends);
    let exports = ["--export", "disk=mem:16M", "--export", "free=mem:16M"];
    let [ours, targets] = cores();
    // Processes and threads inherit this thread's affinity.
    sched_setaffinity(None, &targets).unwrap();
    let mut target = rig.serve(&exports);
    sched_setaffinity(None, &ours).unwrap();
    let mut host = rig.inline_host(&["tye-h"], |_| {});
    let (identity, exports) = discovered(&rig);
    let mac = Mac::parse(&rig.cable.mac(Side::Target, "tye-t")).unwrap();
    let mut flood = Flood::new(Stranger::new(&rig.cable, "tye-s"), (mac, identity), exports);
    let (quiet, before) = measure(&mut host, &target, time.min(Duration::from_secs(10)));
    let over = AtomicBool::new(false);
    // The rate of a session that shares its core with other work that sends nothing.
    let (shared, _) = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        let measured = measure(&mut host, &target, time.min(Duration::from_secs(10)));
        over.store(true, Relaxed);
        measured
    });
    over.store(false, Relaxed);
    let ((disturbed, peak), mut waits) = thread::scope(|scope| {
        scope.spawn(|| flood.run(&over));
        let measured = measure(&mut host, &target, time);
        // After the measurement: the new hosts use CPU time of its core themselves.
        let newcomers = scope.spawn(|| newcomers(&rig, &over));
        let _ = measure(&mut host, &target, time.min(NEWCOMERS_TIME));
        over.store(true, Relaxed);
        (measured, newcomers.join().unwrap())
    });
    waits.sort_unstable();
    println!(
        "{} new hosts got in beside it; least, median, 90th percentile and greatest of their \
         waits: {:?}",
        waits.len(),
        summary(&waits)
    );
    let growth = peak.saturating_sub(before);
    let [share, of_core] = [quiet, shared].map(|rate| disturbed / rate);
    let Flood { sent, accepted, refused, .. } = flood;
    println!(
        "{sent} frames in {seconds} s, {accepted} accepted, {refused} refused; the target grew by \
         {} KiB from {} KiB; {disturbed:.0} reads per second beside it, {quiet:.0} without: \
         {share:.2}; {shared:.0} beside a loop on the flood's core that sends nothing: \
         {of_core:.2}",
        growth >> 10,
        before >> 10,
    );
    println!("the target rejects {}", rig.ask(&["stats"])["targets"][0]["links"][0]["rejects"]);
    assert!(target.process.is_running(), "{}", target.log());
    assert!(accepted > 100, "tickets were good");
    assert!(growth < GROWTH_MAX, "{growth} bytes");
    // Only a measurement on an idle machine can tell the share.
    assert!(share > 0.0, "the session stands still beside it");
    // After the flood other hosts can connect.
    rig.inline_host(&["tye-h"], |session| session.read_only = true).disconnect(PATIENCE);
    host.disconnect(PATIENCE);
}
