//! Bare frames, and bare trains of UDP datagrams: the floor that no protocol made of them can beat.
//!
//! | kind | asks | is answered |
//! |---|---|---|
//! | echo | one frame of 128 bytes at a time | by one of 64 bytes and a page |
//! | exchange | frames of so many commands, up to a depth | by frames of so many pages from anywhere in memory |
//! | stream | now and then for more | by full frames, as fast as they arrive |
//! | UDP exchange, UDP stream | the same | by trains of UDP datagrams, in place of frames |
//!
//! A stream may come over several links at once. There are no checksums, no order and no
//! retransmission, and both sides spin. Each side is a process of its own: `comparison floor serve`
//! answers until it is ended, `comparison floor ask` measures and prints JSON.
//!
//! ```text
//! 0            14      16      20                  64
//! +------------+-------+-------+-------------------+------------------
//! | Ethernet   |       | count | zeroes            | pages, or commands of 32 bytes
//! +------------+-------+-------+-------------------+------------------
//! ```
//!
//! `count` is the number of commands that a frame asks or completes. A frame too short for a page
//! carries a part of one, and the last part completes it.

mod batch;
mod echo;
mod exchange;
mod socket;
mod stream;
mod train;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::network::{Side, address, interface};
use socket::Socket;
use train::TrainSocket;

/// Bytes of data in a page, and in a request.
pub(crate) const PAGE: usize = 4096;
/// Bytes of a frame before its payload.
const HEAD: usize = 64;
/// Bytes of a command.
const COMMAND: usize = 32;
/// Pages in the longest frame.
const PAGES_MAX: usize = 15;
/// Silence after which the asking side counts missing answers as lost.
const LOST: Duration = Duration::from_millis(10);
/// Warm-up before the frames of a stream count.
const WARM_UP: Duration = Duration::from_millis(100);
/// The port of the side that is asked over UDP.
const PORT: u16 = 8700;

/// The kind of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Echo,
    Exchange,
    Stream,
    UdpExchange,
    UdpStream,
}

impl Kind {
    /// Whether datagrams take the place of frames.
    pub(crate) fn is_udp(self) -> bool {
        matches!(self, Self::UdpExchange | Self::UdpStream)
    }
}

/// A measurement of bare frames.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    #[arg(long)]
    pub(crate) kind: Kind,
    /// Bytes of the longest frame, without its Ethernet header.
    #[arg(long)]
    pub(crate) mtu: u32,
    /// Commands under way at once.
    #[arg(long, default_value_t = 1)]
    pub(crate) depth: u16,
    /// Links that a stream comes over.
    #[arg(skip = 1u16)]
    #[serde(default = "one")]
    pub(crate) links: u16,
    /// Send through queueing disciplines.
    #[arg(long)]
    #[serde(default)]
    pub(crate) qdisc: bool,
}

/// Default for results without a number of links.
fn one() -> u16 {
    1
}

impl Floor {
    /// A measurement at depth 1 over one link, past queueing disciplines.
    pub(crate) fn new(kind: Kind, mtu: u32) -> Self {
        Self { kind, mtu, depth: 1, links: 1, qdisc: false }
    }

    /// Pages in a frame; 0: a page takes several frames.
    fn pages(&self) -> usize {
        let fit = ((self.mtu as usize + 14 - HEAD) / PAGE).min(PAGES_MAX);
        // A second page pays only if it need not be waited for.
        if self.kind == Kind::Exchange && self.depth == 1 { fit.min(1) } else { fit }
    }

    /// Commands in a frame: the number that measured best.
    fn commands(&self) -> u16 {
        match self.depth {
            0..=3 => 1,
            4..=15 => 2,
            16..=63 => 8,
            64.. => 16,
        }
    }

    /// The command-line options for this measurement.
    pub(crate) fn args(&self) -> Vec<String> {
        let kind = self.kind.to_possible_value().expect("no kind is hidden");
        let kind = kind.get_name();
        let (mtu, depth) = (self.mtu.to_string(), self.depth.to_string());
        let options = ["--kind", kind, "--mtu", &mtu, "--depth", &depth];
        let mut options: Vec<_> = options.map(str::to_owned).into();
        if self.kind.is_udp() {
            let place = format!("{}:{PORT}", address(Side::Target, 0));
            options.extend(["--address".to_owned(), place]);
            return options;
        }
        options.extend((0..self.links).flat_map(|it| ["--interface".to_owned(), interface(it)]));
        options.extend(self.qdisc.then(|| "--qdisc".to_owned()));
        options
    }

    /// Bytes of data in a full frame.
    fn payload(&self) -> usize {
        match self.pages() {
            0 => self.mtu as usize + 14 - HEAD,
            pages => pages * PAGE,
        }
    }
}

/// The result of a measurement of bare frames.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Answers per second: of 4 KiB, and of one frame in a stream.
    pub(crate) per_s: f64,
    /// Bytes of data per second.
    pub(crate) bytes_per_s: f64,
    /// Mean time from a command to its answer, in nanoseconds; 0 in a stream.
    pub(crate) mean_ns: f64,
    /// Frames per answer, in both directions.
    pub(crate) frames_per_answer: f64,
    /// Number of answers that did not come.
    pub(crate) lost: u64,
}

impl Outcome {
    /// The result of an exchange at a depth, with so many answers in `frames` frames since `start`.
    ///
    /// # Errors
    /// If there was no answer.
    fn of_exchange(
        depth: u32,
        (answers, frames): (u64, u64),
        start: Instant,
        lost: u64,
    ) -> io::Result<Self> {
        if answers == 0 {
            return Err(silence());
        }
        let per_s = answers as f64 / start.elapsed().as_secs_f64();
        Ok(Self {
            per_s,
            bytes_per_s: per_s * PAGE as f64,
            mean_ns: f64::from(depth) * 1e9 / per_s,
            frames_per_answer: frames as f64 / answers as f64,
            lost,
        })
    }

    /// The result of a stream, with so many answers and bytes of data in `time`.
    ///
    /// # Errors
    /// If there was no answer.
    fn of_stream(
        time: Duration,
        (answers, bytes): (u64, u64),
        frames_per_answer: f64,
        lost: u64,
    ) -> io::Result<Self> {
        if answers == 0 {
            return Err(silence());
        }
        let seconds = time.as_secs_f64();
        Ok(Self {
            per_s: answers as f64 / seconds,
            bytes_per_s: bytes as f64 / seconds,
            mean_ns: 0.0,
            frames_per_answer,
            lost,
        })
    }
}

/// Where one side sends and receives: interfaces, or the address of the side that is asked.
#[derive(Args, Debug)]
pub(crate) struct Place {
    #[arg(long = "interface", required_unless_present = "address")]
    interfaces: Vec<String>,
    #[arg(long)]
    address: Option<SocketAddr>,
}

/// One side of a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer until ended.
    Serve {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        floor: Floor,
    },
    /// Ask, and print what came of it as JSON.
    Ask {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        floor: Floor,
        #[arg(long)]
        runtime_ms: u64,
    },
}

/// Runs one side.
pub(crate) fn run(command: &Command) -> io::Result<()> {
    match command {
        Command::Serve { place, floor } => {
            let ready = || println!("ready");
            if let Some(address) = place.address {
                return udp::serve(&TrainSocket::listen(address)?, floor, ready);
            }
            let sockets = open(&place.interfaces, floor)?;
            match floor.kind {
                Kind::Echo => echo::serve(&sockets[0], ready),
                Kind::Stream => stream::serve(&sockets, floor, ready),
                _ => exchange::serve(&sockets[0], floor, ready),
            }
        }
        Command::Ask { place, floor, runtime_ms } => {
            let time = Duration::from_millis(*runtime_ms);
            let outcome = match place.address {
                Some(address) => udp::ask(address, floor, time),
                None => ask_frames(&open(&place.interfaces, floor)?, floor, time),
            }?;
            println!("{}", serde_json::to_string(&outcome)?);
            Ok(())
        }
    }
}

fn ask_frames(sockets: &[Socket], floor: &Floor, time: Duration) -> io::Result<Outcome> {
    match floor.kind {
        Kind::Echo => echo::ask(&sockets[0], time),
        Kind::Stream => stream::ask(sockets, time),
        _ => exchange::ask(&sockets[0], floor, time),
    }
}

/// Opens a socket on each interface; the command line demands at least one.
fn open(interfaces: &[String], floor: &Floor) -> io::Result<Vec<Socket>> {
    interfaces.iter().map(|interface| Socket::open(interface, floor.qdisc)).collect()
}

fn silence() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer from the other side of the floor")
}

/// Page-aligned memory, with every page touched.
struct Pages {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Self {
        // Not zeroes: those would share the kernel's zero page until they are written.
        let memory = vec![0x5a; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start, len }
    }

    /// Memory to read from: far larger than caches and TLBs, and no larger, because touching it
    /// takes longer than the measurement.
    fn disk() -> Self {
        Self::new(256 << 20)
    }
}

impl std::ops::Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Xorshift: cheap, and random enough.
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(88_172_645_463_325_252)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_carry_what_fits() {
        let floor = |mtu, depth| Floor { depth, ..Floor::new(Kind::Exchange, mtu) };
        assert_eq!(floor(1500, 32).pages(), 0);
        assert_eq!(floor(1500, 32).payload(), 1450);
        assert_eq!(floor(9000, 1).pages(), 1);
        assert_eq!(floor(9000, 32).pages(), 2);
        assert_eq!(floor(65535, 128).pages(), 15);
        let stream = Floor::new(Kind::Stream, 9000);
        assert_eq!(stream.payload(), 8192);
        let args = Floor { links: 2, qdisc: true, ..stream }.args();
        assert!(args.ends_with(&["--interface", "veth1", "--qdisc"].map(str::to_owned)));
        let args = Floor::new(Kind::UdpExchange, 9000).args();
        assert!(args.ends_with(&["--address", "192.0.2.2:8700"].map(str::to_owned)));
        assert!(args.contains(&"udp-exchange".to_owned()));
    }
}
