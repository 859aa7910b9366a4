//! Floods of strangers at a target with keys: how long a new host with a key waits beside each, and
//! what a session beside it keeps of its reads.
//!
//! ```text
//! TYCHE_FLOOD_SECONDS=60 cargo test --release -p tyche --test e2e flood::strangers -- --nocapture
//! ```
//!
//! runs each for a minute on a quiet machine, with 20 new hosts, and demands what PROTOCOL.md and
//! docs/reference.md promise. Without the variable the floods are short, and hosts only have to get
//! in.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tyche_link::Link;
use tyche_link::ip::ListenAddress;
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_link::tcp::{TcpClient, TcpOptions};
use tyche_link::udp::{UdpClient, UdpOptions};
use tyche_native::{HostOptions, InlineHost};
use tyche_numa::Placement;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{
    Body, Control, Cookie, ETHERTYPE, ExportInfo, Geometry, Header, Hello, Mac, Name, Offer,
    SealedConnect, Ticket, Uuid, Versions,
};
use tyche_proto::{ExportId, HostKeys, SessionConfig, connect_proof};
use tyche_remote::HostLink;
use tyche_testkit::random::Random;

use super::handshakes::{Flood, SECONDS, measure, summary};
use crate::keys::Keys;
use crate::rig::{DISK, PATIENCE, Rig, Side, Stranger, Target, forged, rig};

/// The longest that a new host may wait, and the least share of its reads that a session keeps.
const WAIT_MAX: Duration = Duration::from_secs(2);
const SHARE_MIN: f64 = 0.5;
/// Addresses of both ends over IP, and of strangers: any of this /64.
const ADDRESSES: [&str; 2] = ["fd00:8650::1", "fd00:8650::2"];
const STRANGERS: &str = "fd00:8650:0:1";
const PORT: u16 = 8650;

/// The target and what is known of it.
struct Stage<'r> {
    rig: &'r Rig,
    target: &'r Target,
    identity: Uuid,
    exports: Vec<Uuid>,
    mac: Mac,
    key: PublicKey,
    keys: Arc<HostKeys>,
}

impl Stage<'_> {
    /// A host with a key, connected over a link; called in the namespace of hosts.
    fn connect(&self, link: &str) -> InlineHost {
        let link: Box<dyn Link> = match link {
            "udp" => {
                let name = format!("udp:[{}]:{PORT}", ADDRESSES[0]);
                let place = ListenAddress::parse(&name, PORT).unwrap().unwrap();
                Box::new(
                    UdpClient::connect(&place, &[target_at()], &UdpOptions::default()).unwrap(),
                )
            }
            "tcp" => Box::new(TcpClient::connect(&[target_at()], &TcpOptions::default()).unwrap()),
            name => Box::new(PacketLink::open(&PacketOptions::new(name)).unwrap()),
        };
        let [name, disk] = ["newcomer", DISK].map(|it| Name::new(it).unwrap());
        let session = SessionConfig {
            read_only: true,
            damq_pages: 256,
            reconnect_delay: Duration::from_millis(100),
            keys: Some(Arc::clone(&self.keys)),
            ..SessionConfig::new(Uuid::new_v4(), name, Uuid::new_v4(), ExportId::Name(disk))
        };
        let mut host = InlineHost::new(HostOptions {
            session,
            links: vec![HostLink { link, target: None }],
            further_queues: Vec::new(),
            placement: Placement::default(),
            ethertype: ETHERTYPE,
            arena_size: 1024.into(),
            spin: Duration::ZERO,
        });
        host.connect(PATIENCE).unwrap();
        host
    }

    fn stranger(&self) -> Stranger {
        Stranger::new(&self.rig.cable, "tye-s")
    }

    /// A frame outside of channels, to the target.
    fn frame(&self, from: Mac, control: Control) -> Vec<u8> {
        forged((self.mac, from), Header::new(control.kind()), Some(control))
    }

    /// Measures what a flood costs those who have a key and use that link.
    fn beside(&self, name: &str, link: &str, flood: impl FnOnce(&AtomicBool) + Send) {
        let seconds = std::env::var(SECONDS).ok().map(|text| text.parse().unwrap());
        let (time, tries) = seconds.map_or((1, 3), |seconds: u64| (seconds, 20));
        let (time, over) = (Duration::from_secs(time), &AtomicBool::new(false));
        let namespace = self.rig.cable.end(Side::Host);
        let (quiet, found) = (time.min(Duration::from_secs(10)), &AtomicBool::new(false));
        let (shares, mut waits) = thread::scope(|scope| {
            namespace.on_thread(|| {
                let mut host = self.connect(link);
                let (alone, _) = measure(&mut host, self.target, quiet);
                // A flood takes a core of this machine as well, which it would not elsewhere.
                let spinner = scope.spawn(move || {
                    while !found.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                let (before, _) = measure(&mut host, self.target, quiet);
                found.store(true, Relaxed);
                spinner.join().unwrap();
                let flood = scope.spawn(move || namespace.on_thread(|| flood(over)));
                let (beside, _) = measure(&mut host, self.target, time);
                let waits = self.waits(link, tries);
                over.store(true, Relaxed);
                flood.join().unwrap();
                host.disconnect(PATIENCE);
                ([alone, before, beside], waits)
            })
        });
        waits.sort_unstable();
        let late = waits.iter().filter(|&&wait| wait > WAIT_MAX).count();
        let [alone, before, beside] = shares;
        println!(
            "{name}: {tries} new hosts, {late} of them later than {WAIT_MAX:?}; least, median, \
             90th percentile and greatest of their waits: {:?}; {beside:.0} reads a second beside \
             it, {before:.0} beside a thread that only takes a core, {alone:.0} alone: {:.2} of \
             what the cores allow",
            summary(&waits),
            beside / before,
        );
        // Only a measurement on an idle machine can tell.
        if seconds.is_some() {
            assert_eq!(late, 0, "{name}");
            assert!(beside / before >= SHARE_MIN, "{name}");
        }
    }

    /// How long new hosts wait, one after the other.
    fn waits(&self, link: &str, tries: usize) -> Vec<Duration> {
        let wait = |_| {
            let began = Instant::now();
            let host = self.connect(link);
            let wait = began.elapsed();
            host.disconnect(PATIENCE);
            wait
        };
        (0..tries).map(wait).collect()
    }

    /// 160 connections, each of which says a byte in 3 s.
    fn drip(over: &AtomicBool) {
        let connect = || TcpStream::connect_timeout(&target_at(), PATIENCE).ok();
        let mut connections: Vec<_> = (0..160).map(|_| connect()).collect();
        let mut next = Instant::now();
        while !over.load(Relaxed) {
            if Instant::now() < next {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            next += Duration::from_secs(3);
            for connection in &mut connections {
                let is_gone = connection.as_mut().is_none_or(|it| it.write_all(&[1]).is_err());
                if is_gone {
                    *connection = connect();
                }
            }
        }
    }

    /// Questions of 1,024 addresses of one /64.
    fn ask_from_many(&self, over: &AtomicBool) {
        // Of this network namespace. They are routed here, but no interface has them.
        std::fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1").unwrap();
        let mut random = Random(11);
        let socket = |number| UdpSocket::bind(format!("[{STRANGERS}::{number:x}]:0")).unwrap();
        let sockets: Vec<_> = (1..=1024).map(socket).collect();
        sockets.iter().for_each(|socket| socket.connect(target_at()).unwrap());
        while !over.load(Relaxed) {
            for socket in &sockets {
                let mut datagram = self.frame(Mac([2; 6]), self.hello(random.next()));
                let len = datagram.len() as u16;
                datagram[..12].fill(0);
                datagram[12..14].copy_from_slice(&len.to_be_bytes());
                let _ = socket.send(&datagram);
            }
        }
    }

    fn hello(&self, nonce: u64) -> Control {
        let (target, ticket) = (self.identity, Ticket::NONE);
        Control::Hello(Hello { nonce, target, ticket, frame_len: 116 })
    }

    /// Sealed connects of one address with good tickets, 10,000 a second.
    fn knock(&self, knows: bool, over: &AtomicBool) {
        let (mut stranger, mut random) = (self.stranger(), Random(12));
        let (mac, mut ticket) = (stranger.mac(), Ticket::NONE);
        let (began, mut sent) = (Instant::now(), 0_u32);
        while !over.load(Relaxed) {
            if sent.is_multiple_of(1000) {
                stranger.send(&[self.frame(mac, self.hello(random.next()))]);
            }
            let mut connect = SealedConnect {
                attempt: random.next(),
                ticket,
                target: self.identity,
                message: [0; SealedConnect::MESSAGE_LEN],
                proof: [0; SealedConnect::PROOF_LEN],
            };
            random.fill(&mut connect.message);
            if knows {
                connect.proof = connect_proof(&self.key, Cookie(0), &connect);
            }
            stranger.send(&[self.frame(mac, Control::SealedConnect(connect))]);
            sent += 1;
            stranger.hear(|heard| {
                if heard.header.kind.on_channel() {
                    return;
                }
                let Body::Control(pdu) = heard.parsed().body else { return };
                if let Control::Hello(hello) = pdu.decode() {
                    ticket = hello.ticket;
                }
            });
            let due = began + Duration::from_micros(100) * sent;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }

    /// A hundred forged offers for each question that is heard, of targets and from addresses that
    /// are made up.
    fn offer(&self, over: &AtomicBool) {
        let (mut stranger, mut random) = (self.stranger(), Random(13));
        while !over.load(Relaxed) {
            stranger.wait(Duration::from_millis(20));
            let mut asked = Vec::new();
            stranger.hear(|heard| {
                if heard.header.kind.on_channel() {
                    return;
                }
                let Body::Control(pdu) = heard.parsed().body else { return };
                if let Control::Discover(discover) = pdu.decode() {
                    asked.push((heard.source(), discover.nonce));
                }
            });
            for (asker, nonce) in asked {
                let mut forge = |_| {
                    let [a, b, c, ..] = random.next().to_be_bytes();
                    let from = Mac([2, 0, 0x5e, a, b, c]);
                    let offer = Control::Offer(self.forged_offer(nonce, &mut random));
                    forged((asker, from), Header::new(offer.kind()), Some(offer))
                };
                stranger.send(&(0..100).map(&mut forge).collect::<Vec<_>>());
            }
        }
    }

    fn forged_offer(&self, nonce: u64, random: &mut Random) -> Offer {
        let export = ExportInfo {
            name: Name::new(DISK).unwrap(),
            uuid: self.exports[0],
            geometry: Geometry::new(16 << 20, 512),
            held: false,
            shared: false,
        };
        Offer {
            nonce,
            versions: Versions::OURS,
            target: Uuid::from_u64_pair(random.next(), random.next()),
            name: Name::new("made-up").unwrap(),
            first: 0,
            total: 1,
            exports: std::iter::once(export).collect(),
            key: None,
        }
    }
}

fn target_at() -> SocketAddr {
    SocketAddr::new(ADDRESSES[0].parse().unwrap(), PORT)
}

/// Gives both ends addresses, and lets the host's end send from any address of the strangers.
fn address(rig: &Rig) {
    for (side, link, own) in
        [(Side::Target, "tye-t", ADDRESSES[0]), (Side::Host, "tye-h", ADDRESSES[1])]
    {
        rig.cable.ip(side, &["address", "add", &format!("{own}/64"), "dev", link, "nodad"]);
    }
    let strangers = &format!("{STRANGERS}::/64");
    rig.cable.ip(Side::Host, &["link", "set", "lo", "up"]);
    rig.cable.ip(Side::Host, &["-6", "route", "add", "local", strangers, "dev", "lo"]);
    rig.cable.ip(Side::Target, &["-6", "route", "add", strangers, "via", ADDRESSES[1]]);
}

#[test]
fn strangers_keep_no_host_with_a_key_out() {
    let rig = rig!(alone);
    let ends = [(Side::Target, "tye-t"), (Side::Host, "tye-h"), (Side::Host, "tye-s")];
    rig.cable.lay_hub("hub", &ends);
    address(&rig);
    let keys = Keys::new(&rig);
    let [udp, tcp] = ["udp", "tcp"].map(|kind| format!("{kind}:[{}]:{PORT}", ADDRESSES[0]));
    let links = ["--link", "tye-t", "--link", &udp, "--link", &tcp];
    let exports = ["--auth", "optional", "--export", "disk=mem:16M", "--export", "free=mem:16M"];
    let mut target = keys.serve_on(&rig, &links, &exports);
    let (identity, exports) = super::handshakes::discovered(&rig);
    let key: PublicKey = keys.target.parse().unwrap();
    let secret = std::fs::read_to_string(rig.path("host.key")).unwrap();
    let stage = Stage {
        rig: &rig,
        target: &target,
        identity,
        exports,
        mac: Mac::parse(&rig.cable.mac(Side::Target, "tye-t")).unwrap(),
        key,
        keys: Arc::new(HostKeys {
            secret: secret.trim().parse().unwrap(),
            target: key,
            target_uuid: None,
        }),
    };
    stage.beside("connections that drip", "tcp", Stage::drip);
    stage.beside("addresses of a /64", "udp", |over| stage.ask_from_many(over));
    stage.beside("random sealed connects", "tye-h", |over| stage.knock(false, over));
    stage.beside("sealed connects with the key", "tye-h", |over| stage.knock(true, over));
    stage.beside("forged offers", "tye-h", |over| stage.offer(over));
    stage.beside("questions and connects", "tye-h", |over| {
        Flood::new(stage.stranger(), (stage.mac, identity), stage.exports.clone()).run(over);
    });
    assert!(target.process.is_running(), "{}", target.log());
}
