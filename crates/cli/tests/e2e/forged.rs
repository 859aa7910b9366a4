//! Frames forged by somebody who hears the segment, while writes are late: from another address, on
//! another link, and with everything right. No block ever falls back, whatever the session suffers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tyche_proto::wire::{
    Accept, Body, Connect, Control, Fenced, Flags, Header, Kind, Mac, Reason, Rejection, Reset,
    Text, Versions,
};

use crate::links::{await_live, connect};
use crate::load::{LOAD_SIZE, Load};
use crate::rig::{DISK, Rig, Side, Stranger, forged, rig};

/// Interfaces of the target, the host and the stranger, on one hub each.
const SEGMENTS: [[&str; 3]; 2] = [["tye-t0", "tye-h0", "tye-s0"], ["tye-t1", "tye-h1", "tye-s1"]];
/// For how long frames of a sort are forged, and how often.
const PHASE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
/// How often a session is hit by frames with everything right.
const HITS: Duration = Duration::from_millis(300);

/// What somebody who hears a segment knows of the channel there.
struct Overheard {
    stranger: Stranger,
    target: Mac,
    host: Mac,
    connect: Option<Connect>,
    accept: Option<Accept>,
    /// The newest frame of the channel, each way.
    to_target: Option<Header>,
    to_host: Option<Header>,
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
        }
    }

    fn listen(&mut self) {
        let Self { stranger, target, host, connect, accept, to_target, to_host } = self;
        stranger.hear(|heard| {
            let header = heard.header;
            match (heard.source(), heard.destination()) {
                (src, dst) if (src, dst) == (*host, *target) && header.kind.on_channel() => {
                    *to_target = Some(header);
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

    /// Frames to a host with that address, from `from`, about the channel on this segment.
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

    /// The same, to a target.
    fn to_target(&self, from: Mac, to: Mac) -> [Vec<u8>; 2] {
        let connect = Control::Connect(self.connect.clone().unwrap());
        [
            forged((to, from), next(self.to_target, Kind::Disconnect), None),
            forged((to, from), Header::new(Kind::Connect), Some(connect)),
        ]
    }
}

fn reset(accept: &Accept) -> Control {
    let Accept { cookie, channel, target, .. } = *accept;
    Control::Reset(Reset { cookie, channel, target })
}

/// A header of a channel like the newest one that was heard, for a frame out of sequence.
fn next(heard: Option<Header>, kind: Kind) -> Header {
    let mut header = heard.expect("frames of the channel were heard");
    header.packet.0 += 1000;
    header.position.0 = 0;
    Header { kind, flags: Flags::NONE, ..header }
}

/// Sends what `forge` makes of what both segments tell, over and over.
fn storm(
    both: &mut [Overheard; 2],
    pause: Duration,
    forge: impl Fn(&[Overheard; 2]) -> [Vec<Vec<u8>>; 2],
) {
    let end = Instant::now() + PHASE;
    while Instant::now() < end {
        both.iter_mut().for_each(Overheard::listen);
        for (on, frames) in forge(both).iter().enumerate() {
            both[on].stranger.send(frames);
        }
        let next = Instant::now() + pause;
        while Instant::now() < next {
            both[0].stranger.wait(pause);
            both.iter_mut().for_each(Overheard::listen);
        }
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
    let export = format!("{DISK}=sparse:{LOAD_SIZE}");
    let links = ["--link", SEGMENTS[0][0], "--link", SEGMENTS[1][0]];
    let late = ["--export", &export, "--fault", "delay=20ms,side=receive"];
    let _target = rig.serve_on(&links, &late);
    let hosts = SEGMENTS.map(|[_, host, _]| host);
    let only = ["--link", hosts[0], "--link", hosts[1], "--io-policy", "round-robin"];
    let session = connect(&rig, &only);
    await_live(&rig, &hosts);
    let load = Load::start(&session.device);

    // From an address that is nobody's, on the same link.
    storm(&mut both, PAUSE, |both| {
        let [one, _] = both;
        let from = one.stranger.mac();
        let frames = [&one.to_host(from, one.host)[..], &one.to_target(from, one.target)].concat();
        [frames, Vec::new()]
    });
    // On the other link: from the addresses of the one, and from those that belong there.
    storm(&mut both, PAUSE, |both| {
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

    // With everything right: the channel is lost, and comes back.
    storm(&mut both, HITS, |both| {
        [0, 1].map(|on| {
            let it = &both[on];
            let disconnects = [it.to_host(it.target, it.host)[4].clone()];
            let reset = forged(
                (it.host, it.target),
                Header::new(Kind::Reset),
                Some(reset(it.accept.as_ref().unwrap())),
            );
            [&disconnects[..], &[reset], &it.to_target(it.host, it.target)[..1]].concat()
        })
    });
    await_live(&rig, &hosts);
    load.await_progress();
    println!("a request took {:?} at most", load.longest());
    load.finish();
    let losses = rig.logs().matches("channel lost").count();
    println!("{losses} channels were lost to frames with everything right");
    assert!(losses > 2, "{}", rig.logs());
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
}
