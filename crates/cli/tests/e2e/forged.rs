//! Frames forged by a stranger who overhears the segment, while writes are late: from another
//! address, on another link, and with every field right. No block ever returns to older content,
//! whatever happens to the session.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use tyche_proto::wire::{
    Accept, Body, Connect, Control, Entry, Fenced, Flags, Header, Kind, Mac, Opcode, Reason,
    Rejection, Reset, ResetToken, Text, Versions,
};

use crate::links::{await_live, connect};
use crate::load::{LOAD_SIZE, Load};
use crate::rig::{DISK, PATIENCE, Rig, Side, Stranger, forged, rig, wait_until};

/// Interfaces of the target, the host and the stranger, on one hub each.
const SEGMENTS: [[&str; 3]; 2] = [["tye-t0", "tye-h0", "tye-s0"], ["tye-t1", "tye-h1", "tye-s1"]];
/// How long frames of one kind are forged, and the pause between two rounds.
const PHASE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
/// Number of forged frames of each kind with every field right that hit a session, and the pause
/// between two.
const STRIKES: usize = 4;
const BETWEEN: Duration = Duration::from_millis(300);

/// Delay of frames to the target on the first segment, in milliseconds.
const LATE_MS: u64 = 50;
/// Bytes of the hot block, which follows the blocks of the load, and the number of reads of each
/// content.
const HOT_LEN: u64 = 4096;
const LOOKS: usize = 10;

/// A block that is overwritten again and again; each content is read many times, so that a late
/// write that takes effect is seen.
struct HotBlock {
    over: Arc<AtomicBool>,
    worker: JoinHandle<u64>,
}

impl HotBlock {
    fn start(device: &Path) -> Self {
        let file = File::options().read(true).write(true).open(device).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let work = move || {
            let (mut number, mut found) = (0_u64, [0; HOT_LEN as usize]);
            while !is_over.load(Relaxed) {
                number += 1;
                file.write_all_at(&number.to_le_bytes().repeat(512), LOAD_SIZE).unwrap();
                for _ in 0..LOOKS {
                    file.read_exact_at(&mut found, LOAD_SIZE).unwrap();
                    let (words, _) = found.as_chunks::<8>();
                    let fits = words.iter().all(|word| u64::from_le_bytes(*word) == number);
                    let seen = u64::from_le_bytes(words[0]);
                    assert!(fits, "write {number} was answered, and {seen} is there");
                }
            }
            number
        };
        Self { over, worker: thread::spawn(work) }
    }

    fn finish(self) -> u64 {
        self.over.store(true, Relaxed);
        self.worker.join().unwrap()
    }
}

/// The state of a segment's channel, as a stranger overhears it.
struct Overheard {
    stranger: Stranger,
    target: Mac,
    host: Mac,
    connect: Option<Connect>,
    accept: Option<Accept>,
    /// The newest frame of the channel to each end.
    to_target: Option<Header>,
    to_host: Option<Header>,
    /// Writes of the hot block.
    writes: usize,
}

impl Overheard {
    fn new(rig: &Rig, [target, host, stranger]: [&str; 3]) -> Self {
        let mac = |side, link| Mac::parse(&rig.cable.mac(side, link)).unwrap();
        Self {
            stranger: Stranger::new(&rig.cable, stranger),
            target: mac(Side::Target, target),
            host: mac(Side::Host, host),
            connect: None,
            accept: None,
            to_target: None,
            to_host: None,
            writes: 0,
        }
    }

    fn listen(&mut self) {
        let Self { stranger, target, host, connect, accept, to_target, to_host, writes } = self;
        stranger.hear(|heard| {
            let header = heard.header;
            match (heard.source(), heard.destination()) {
                (src, dst) if (src, dst) == (*host, *target) && header.kind.on_channel() => {
                    *to_target = Some(header);
                    if let Body::Entries { entries, .. } = heard.parsed().body {
                        *writes += entries.iter().filter(is_hot_write).count();
                    }
                }
                (src, dst) if (src, dst) == (*target, *host) && header.kind.on_channel() => {
                    *to_host = Some(header);
                }
                (src, dst) if [src, dst].contains(target) => {
                    if let Body::Control(pdu) = heard.parsed().body {
                        match pdu.decode() {
                            Control::Connect(it) => *connect = Some(it),
                            Control::Accept(it) => *accept = Some(it),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        });
    }

    /// Forged frames to a host with the address `to`, from `from`, about the channel on this
    /// segment.
    fn to_host(&self, from: Mac, to: Mac) -> [Vec<u8>; 5] {
        let (accept, route) = (self.accept.clone().unwrap(), (to, from));
        let Accept { attempt, target, cookie, channel, .. } = accept;
        let rejection = Rejection {
            attempt,
            versions: Versions::OURS,
            target,
            reason: Reason::SessionLost,
            detail: Text::EMPTY,
        };
        let fenced = Fenced { cookie, channel, outcomes: Default::default() };
        [
            forged(route, Header::new(Kind::Reset), Some(reset(&accept))),
            forged(route, Header::new(Kind::Reject), Some(Control::Reject(rejection))),
            forged(route, Header::new(Kind::Accept), Some(Control::Accept(accept))),
            forged(route, next(self.to_host, Kind::Fenced), Some(Control::Fenced(fenced))),
            forged(route, next(self.to_host, Kind::Disconnect), None),
        ]
    }

    /// Forged frames to a target, likewise.
    fn to_target(&self, from: Mac, to: Mac) -> [Vec<u8>; 2] {
        let connect = Control::Connect(self.connect.clone().unwrap());
        [
            forged((to, from), next(self.to_target, Kind::Disconnect), None),
            forged((to, from), Header::new(Kind::Connect), Some(connect)),
        ]
    }
}

fn is_hot_write(entry: &Entry) -> bool {
    let Entry::Command(command) = entry else { return false };
    command.opcode == Opcode::Write && command.offset == LOAD_SIZE
}

fn reset(accept: &Accept) -> Control {
    let Accept { cookie, channel, target, .. } = *accept;
    Control::Reset(Reset { cookie, channel, token: ResetToken::default(), target })
}

/// A header like the channel's newest overheard one, for a frame out of sequence.
fn next(heard: Option<Header>, kind: Kind) -> Header {
    let mut header = heard.expect("frames of the channel were heard");
    header.packet.0 += 1000;
    header.position.0 = 0;
    Header { kind, flags: Flags::NONE, ..header }
}

/// Listens to both segments for a while.
fn listen(both: &mut [Overheard; 2], time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        both[0].stranger.wait(PAUSE);
        both.iter_mut().for_each(Overheard::listen);
    }
}

/// Repeatedly sends the frames that `forge` makes of both segments' state.
fn storm(both: &mut [Overheard; 2], forge: impl Fn(&[Overheard; 2]) -> [Vec<Vec<u8>>; 2]) {
    let end = Instant::now() + PHASE;
    while Instant::now() < end {
        listen(both, PAUSE);
        for (on, frames) in forge(both).iter().enumerate() {
            both[on].stranger.send(frames);
        }
    }
}

/// Sends the frame that `forge` makes for a segment, with every field right: each time while a
/// write of the hot block is late, and each third time on both segments.
fn strike(both: &mut [Overheard; 2], forge: impl Fn(&Overheard) -> Vec<u8>) {
    for strike in 0..STRIKES {
        let (before, deadline) = (both[0].writes, Instant::now() + PATIENCE);
        while both[0].writes == before {
            assert!(Instant::now() < deadline, "the hot block is written over both segments");
            both[0].stranger.wait(PAUSE);
            both.iter_mut().for_each(Overheard::listen);
        }
        for it in &mut both[..if strike % 3 == 2 { 2 } else { 1 }] {
            let frame = forge(it);
            it.stranger.send(&[frame]);
        }
        listen(both, BETWEEN);
    }
}

fn rejects(links: &[Value]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (name, count) in links.iter().flat_map(|it| it["rejects"].as_object().unwrap()) {
        *counts.entry(name.clone()).or_default() += count.as_u64().unwrap();
    }
    counts
}

fn assert_counted(who: &str, counts: &BTreeMap<String, u64>, names: &[&str]) {
    println!("{who} rejects {counts:?}");
    for name in names {
        assert!(counts.get(*name).is_some_and(|&count| count > 10), "{name}: {counts:?}");
    }
}

#[test]
fn forged_frames_make_no_block_fall_back() {
    let rig = rig!();
    for (hub, [target, host, stranger]) in ["hub0", "hub1"].into_iter().zip(SEGMENTS) {
        let ends = [(Side::Target, target), (Side::Host, host), (Side::Host, stranger)];
        rig.cable.lay_hub(hub, &ends);
    }
    let mut both = SEGMENTS.map(|names| Overheard::new(&rig, names));
    let export = format!("{DISK}=sparse:{}", LOAD_SIZE + HOT_LEN);
    let links = ["--link", SEGMENTS[0][0], "--link", SEGMENTS[1][0]];
    let late = format!("{}:delay={LATE_MS}ms,side=receive", SEGMENTS[0][0]);
    let late = ["--export", &export, "--fault", &late];
    let _target = rig.serve_on(&links, &late);
    let hosts = SEGMENTS.map(|[_, host, _]| host);
    let only = ["--link", hosts[0], "--link", hosts[1], "--io-policy", "round-robin"];
    // The pause for a link that is lost repeatedly grows to 32 times this delay.
    let only = [&only[..], &["--reconnect-delay", "0.01"]].concat();
    let session = connect(&rig, &only);
    await_live(&rig, &hosts);
    let (load, hot) = (Load::start(&session.device), HotBlock::start(&session.device));

    wait_until("frames of both channels are heard, both ways", || {
        listen(&mut both, PAUSE);
        both.iter().all(|it| it.to_host.is_some() && it.to_target.is_some())
    });

    // From an unused address, on the same link.
    storm(&mut both, |both| {
        let [one, _] = both;
        let from = one.stranger.mac();
        let frames = [&one.to_host(from, one.host)[..], &one.to_target(from, one.target)].concat();
        [frames, Vec::new()]
    });
    // On the other link: from the first link's addresses, and from its own.
    storm(&mut both, |both| {
        let [one, other] = both;
        let mut frames = Vec::new();
        for (target, host) in [(one.target, one.host), (other.target, other.host)] {
            frames.extend(one.to_host(target, other.host));
            frames.extend(one.to_target(host, other.target));
        }
        [Vec::new(), frames]
    });
    load.await_progress();
    let (host_stats, target_stats) = rig.stats();
    let of_host = rejects(std::slice::from_ref(&host_stats));
    assert_counted("the host", &of_host, &["source", "unexpected", "channel"]);
    let of_target = rejects(target_stats["links"].as_array().unwrap());
    assert_counted("the target", &of_target, &["source", "ticket"]);
    assert!(!rig.logs().contains("lost"), "the session was disturbed: {}", rig.logs());

    // With every field right: channels are lost, and come back.
    strike(&mut both, |it| {
        let reset = reset(it.accept.as_ref().expect("an accept was heard"));
        forged((it.host, it.target), Header::new(Kind::Reset), Some(reset))
    });
    strike(&mut both, |it| forged((it.host, it.target), next(it.to_host, Kind::Disconnect), None));
    strike(&mut both, |it| {
        forged((it.target, it.host), next(it.to_target, Kind::Disconnect), None)
    });
    await_live(&rig, &hosts);
    load.await_progress();
    println!("a request took {:?} at most", load.longest());
    load.finish();
    println!("a block was written {} times", hot.finish());
    let losses = rig.logs().matches("channel lost").count();
    println!("{losses} channels were lost to frames with everything right");
    assert!(losses > 2, "{}", rig.logs());
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
}
