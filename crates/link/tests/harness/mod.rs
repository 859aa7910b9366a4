//! Shared by the tests of links: frames with recognisable content, waits, and network namespaces
//! joined by a veth pair.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![allow(dead_code, reason = "every test file uses a part of it")]
#![allow(unreachable_pub, reason = "it is compiled into every test file")]

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tyche_link::packet::{OpenError, PacketLink, PacketOptions, interfaces};
use tyche_link::{HEAD, Link, Mac, RxBatch, TxVectors};
use tyche_testkit::net::{Namespace, lay_cable};
use tyche_testkit::process::run;
use tyche_testkit::random::Random;
use tyche_testkit::wait::{PATIENCE, wait_readable};

pub const ETHERTYPE: u16 = 0x88B5;
pub const BROADCAST: Mac = [0xff; 6];

/// A frame of `len` bytes whose content depends on its length and `seed`.
pub fn frame(dst: Mac, src: Mac, len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Random(seed ^ (len as u64) << 32).bytes(len);
    bytes[..6].copy_from_slice(&dst);
    bytes[6..12].copy_from_slice(&src);
    bytes[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    bytes
}

/// Sends all frames, in batches of up to 64, however few the link takes at a time.
pub fn send_all<L: Link>(link: &mut L, frames: &[Vec<u8>]) {
    let mut vectors = TxVectors::new(64, 3);
    let deadline = Instant::now() + PATIENCE;
    for chunk in frames.chunks(64) {
        let mut batch = vectors.batch();
        for frame in chunk {
            let (head, rest) = frame.split_at(frame.len().min(HEAD));
            // Split at varying places, with and without a tail.
            let tail = (rest.len() % 5) * (rest.len() % 200).min(rest.len() / 5);
            let (data, tail) = rest.split_at(rest.len() - tail);
            let (a, b) = data.split_at(data.len() / 3);
            batch.push(head, [a, b], tail);
        }
        while !batch.is_empty() {
            let sent = link.send(&batch).unwrap();
            batch.skip(sent);
            assert!(Instant::now() < deadline, "{} frames don't go out", batch.len());
        }
    }
}

/// The content of the batch, frame by frame.
pub fn contents(batch: &RxBatch) -> Vec<Vec<u8>> {
    batch.iter().map(|frame| [frame.head, frame.payload].concat()).collect()
}

/// The frame as it arrives: with the source that the receiver assigns.
pub fn from(source: Mac, mut frame: Vec<u8>) -> Vec<u8> {
    frame[6..12].copy_from_slice(&source);
    frame
}

/// Sends all frames while the other end receives them; returns the received ones.
pub fn carry(from: &mut impl Link, to: &mut impl Link, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut vectors, mut came) = (TxVectors::new(64, 1), Vec::new());
    let batch = |frames| RxBatch::new(frames, to.frame_len_max() - HEAD);
    let (mut there, mut back) = (batch(16), batch(1));
    let deadline = Instant::now() + PATIENCE;
    let mut sent = 0;
    while came.len() < frames.len() {
        assert!(Instant::now() < deadline, "{} of {} frames came", came.len(), frames.len());
        let mut batch = vectors.batch();
        for frame in frames[sent..].iter().take(64) {
            let (head, rest) = frame.split_first_chunk::<HEAD>().unwrap();
            batch.push(head, [rest], &[]);
        }
        sent += from.send(&batch).unwrap();
        // This also lets the sender flush its buffer.
        assert_eq!(from.receive(&mut back).unwrap(), 0);
        to.receive(&mut there).unwrap();
        came.extend(contents(&there));
    }
    came
}

/// Whether the link's descriptor becomes readable within `timeout`.
pub fn wait(link: &impl Link, timeout: Duration) -> bool {
    wait_readable(link.wait_fd(), timeout)
}

/// Receives until `count` frames have come.
pub fn receive_all<L: Link>(link: &mut L, batch: &mut RxBatch, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while frames.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(wait(link, left), "{} frames came, not {count}", frames.len());
        link.receive(batch).unwrap();
        frames.extend(contents(batch));
    }
    frames
}

/// Sends a last frame to a link; returns the frames received before it.
pub fn received_until_now(far: &mut PacketLink, near: &mut PacketLink) -> Vec<Vec<u8>> {
    let last = frame(near.mac(), far.mac(), 111, 1);
    send_all(far, std::slice::from_ref(&last));
    let (mut batch, mut came) = (RxBatch::new(16, 1500), Vec::new());
    // A link's frames stay in order.
    while came.last() != Some(&last) {
        came.extend(receive_all(near, &mut batch, 1));
    }
    came.pop();
    came
}

/// Two namespaces joined by a veth pair, its ends called [`NAMES`].
pub struct Cable {
    namespaces: [Namespace; 2],
}

pub const NAMES: [&str; 2] = ["tyl0", "tyl1"];

impl Cable {
    /// A cable whose ends are up.
    pub fn new(mtu: usize) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("tyl-{}-{number}{side}", process::id());
        let cable = Self { namespaces: ['a', 'b'].map(|side| Namespace::new(name(side))) };
        cable.plug(mtu);
        cable
    }

    /// Creates the interfaces and brings them up.
    pub fn plug(&self, mtu: usize) {
        let mtu = mtu.try_into().unwrap();
        lay_cable([0, 1].map(|side| (&self.namespaces[side], NAMES[side], mtu)));
    }

    /// Runs `ip` in a namespace.
    pub fn ip(&self, side: usize, args: &[&str]) {
        self.namespaces[side].ip(args);
    }

    /// Runs `tc` in a namespace.
    pub fn tc(&self, side: usize, args: &[&str]) {
        run(self.namespaces[side].command("tc").args(args));
    }

    /// The addresses, besides its own, that an interface receives frames to.
    pub fn addresses(&self, side: usize) -> Vec<Mac> {
        let mut bridge = self.namespaces[side].command("bridge");
        let shown = run(bridge.args(["fdb", "show", "dev", NAMES[side]]));
        let first = shown.lines().filter_map(|line| line.split(' ').next());
        first.map(parse_mac).collect()
    }

    /// Adds rules of nftables in a namespace.
    pub fn nft(&self, side: usize, rules: &str) {
        self.namespaces[side].nft(rules);
    }

    /// Runs `action` on a thread inside a namespace.
    pub fn inside<T: Send>(&self, side: usize, action: impl FnOnce() -> T + Send) -> T {
        self.namespaces[side].on_thread(action)
    }

    /// Opens a link on one end.
    pub fn open(&self, side: usize) -> PacketLink {
        self.open_with(side, |_| {})
    }

    pub fn open_with(&self, side: usize, adjust: impl FnOnce(&mut PacketOptions)) -> PacketLink {
        let mut options = PacketOptions::new(NAMES[side]);
        options.ethertype = ETHERTYPE;
        adjust(&mut options);
        self.try_open(side, &options).unwrap()
    }

    /// Opens any link on one end.
    pub fn try_open(&self, side: usize, options: &PacketOptions) -> Result<PacketLink, OpenError> {
        self.inside(side, || PacketLink::open(options))
    }
}

fn parse_mac(text: &str) -> Mac {
    let bytes: Vec<_> = text.split(':').map(|it| u8::from_str_radix(it, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Sends any frame, also one that no link would send.
pub fn send_raw(interface: &str, frame: &[u8]) {
    let index = interfaces().unwrap().iter().find(|info| info.name == interface).unwrap().index;
    // SAFETY: a socket is opened and closed here; address and frame outlive the call.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index;
        let address_len = size_of_val(&address) as libc::socklen_t;
        let address = (&raw const address).cast();
        let sent = libc::sendto(fd, frame.as_ptr().cast(), frame.len(), 0, address, address_len);
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
        libc::close(fd);
    }
}
