//! `tyche-lab messages`: messages between the ends of RDMA's double, without the protocol
//! (Marazakis et al., ICS 2006, section 4.2: Figures 6 and 7).
//!
//! The ends are two threads, which poll, on a core each. A message is a frame, or several of two
//! pages each.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tyche_console::error::{Code, Context, Result};
use tyche_console::output::{Format, Table, show};
use tyche_link::rdma::FRAME_LEN_MAX;
use tyche_link::rdma::double::{DoubleClient, DoubleOptions, DoubleServer, Model};
use tyche_link::rdma::window::{UNIT, WORD, units_of};
use tyche_link::{HEAD, Link, Mac, RxBatch, TxVectors};
use tyche_numa::Cpus;

use crate::rdma::RdmaArgs;

/// The messages have 2 to the power of these bytes: 8 to 64 KiB.
const POWERS: std::ops::RangeInclusive<u32> = 3..=16;
/// Bytes of a message in a frame.
const PART: usize = 8 << 10;
/// Frames of the longest message.
const FRAMES: usize = (1 << *POWERS.end()) / PART;
/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// The port that the next link of this process listens at: several may be measured at once.
static PORT: AtomicU16 = AtomicU16::new(1);
/// The part of a write's time in the model until its card knows of it: four words over the bus.
const INITIATION: Duration = Duration::from_nanos(400);

/// Measure messages between two threads of this process, on a core each, over the double of RDMA
/// without the protocol: one way as fast as they go, and to and fro, by their size; and the stages
/// of one of 8 bytes.
#[derive(Args, Debug)]
pub(crate) struct MessagesArgs {
    #[command(flatten)]
    rdma: RdmaArgs,

    /// How long each size is measured, one way and again to and fro.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runtime_ms: u64,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// The output of the command.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "tyche.messages/1")]
struct Output {
    sizes: Vec<Measured>,
    stages: Vec<Stage>,
}

/// Messages of one size.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    bytes: usize,
    /// Bytes of messages that arrive in a second, if they all go one way.
    one_way_bytes_per_s: f64,
    /// To and fro, one after the other: the median, in nanoseconds.
    round_trip_ns: u64,
    /// Writes for each message to and fro, those that report included.
    writes: f64,
    /// Interrupts for each of them.
    interrupts: f64,
}

/// A part of the time of a message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Stage {
    stage: &'static str,
    ns: f64,
}

pub(crate) fn run(args: &MessagesArgs) -> Result<()> {
    let measurement =
        Measurement::new(args.rdma.options(), Duration::from_millis(args.runtime_ms))?;
    let sizes = POWERS.map(|power| measurement.measure(1 << power));
    let sizes = sizes.collect::<io::Result<Vec<_>>>().context(Code::Other, "messages")?;
    let stages = stages(&sizes[0], &measurement.options.model).into();
    let output = Output { sizes, stages };
    let text = text(&output);
    show(args.output, || output, || text)
}

/// The stages of a message that is one frame. Those that the model has add up for all of its
/// writes; what is left is the software of both ends.
fn stages(measured: &Measured, model: &Model) -> [Stage; 5] {
    let Measured { bytes, round_trip_ns, writes, interrupts, .. } = *measured;
    let record = units_of(HEAD + bytes) as usize * UNIT;
    let sent = record as f64 + (writes - 1.0) * WORD as f64;
    let ns = |time: Duration| time.as_nanos() as f64;
    let initiation = model.write.min(INITIATION);
    let modelled = [
        ("initiation", writes * ns(initiation)),
        ("start of DMA", writes * ns(model.write - initiation)),
        ("wire", sent / f64::from(1 << 20) * ns(model.mib)),
        ("interrupt", interrupts * ns(model.interrupt)),
    ];
    let whole: f64 = modelled.iter().map(|it| it.1).sum();
    let [a, b, c, d] = modelled;
    let software = ("software", (round_trip_ns as f64 / 2.0 - whole).max(0.0));
    [a, b, c, d, software].map(|(stage, ns)| Stage { stage, ns })
}

fn text(output: &Output) -> String {
    let mut sizes = Table::new(["bytes", "one way MB/s", "to and fro us", "writes", "interrupts"]);
    for it in &output.sizes {
        sizes.row([
            it.bytes.to_string(),
            format!("{:.1}", it.one_way_bytes_per_s / 1e6),
            format!("{:.2}", it.round_trip_ns as f64 / 1e3),
            format!("{:.2}", it.writes),
            format!("{:.2}", it.interrupts),
        ]);
    }
    let mut stages = Table::new(["stage", "ns"]);
    for it in &output.stages {
        stages.row([it.stage.to_owned(), format!("{:.0}", it.ns)]);
    }
    format!("{sizes}\n{stages}")
}

/// An end of a link.
struct End<L> {
    link: L,
    core: Cpus,
    /// The address of the other end, once something has come from there.
    peer: Mac,
    vectors: TxVectors,
    came: RxBatch,
}

/// The options of the link, and how long and where it is measured.
struct Measurement {
    options: DoubleOptions,
    /// How long each size takes, one way and again to and fro.
    time: Duration,
    /// The cores of the server and of the client.
    cores: [Cpus; 2],
}

impl Measurement {
    /// Each end has a core to itself, if there are two.
    fn new(options: DoubleOptions, time: Duration) -> io::Result<Self> {
        let all = tyche_numa::allowed_cpus().map_err(io::Error::other)?;
        let core = |number| all.iter().nth(number).or(all.iter().next()).into_iter().collect();
        Ok(Self { options, time, cores: [core(0), core(1)] })
    }

    fn measure(&self, bytes: usize) -> io::Result<Measured> {
        let message = vec![0x5a; bytes];
        let one_way_bytes_per_s = self.one_way(&message)?;
        let (mut round_trips, [writes, interrupts]) = self.ping_pong(&message)?;
        let messages = 2.0 * round_trips.len() as f64;
        round_trips.sort_unstable();
        Ok(Measured {
            bytes,
            one_way_bytes_per_s,
            round_trip_ns: round_trips[round_trips.len() / 2],
            writes: writes as f64 / messages,
            interrupts: interrupts as f64 / messages,
        })
    }

    /// Sends messages one way; returns the bytes that arrive in a second.
    fn one_way(&self, message: &[u8]) -> io::Result<f64> {
        let (mut server, mut client) = self.ends()?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                client.pin()?;
                while client.send(message, &stop)? {}
                Ok(())
            });
            let counted = server.pin().and_then(|()| server.count(self.time));
            stop.store(true, Ordering::Relaxed);
            sender.join().expect("it does not panic").and(counted)
        })
    }

    /// Sends a message to and fro, at least once; returns how long each round trip took, in
    /// nanoseconds, and the writes and the interrupts of both ends.
    fn ping_pong(&self, message: &[u8]) -> io::Result<(Vec<u64>, [u64; 2])> {
        let (mut server, mut client) = self.ends()?;
        let stop = AtomicBool::new(false);
        let round_trips = thread::scope(|scope| {
            let echo = scope.spawn(|| {
                server.pin()?;
                while server.take(message.len(), &stop)? && server.send(message, &stop)? {}
                Ok(())
            });
            let asked = client.pin().and_then(|()| client.ask(message, self.time, &stop));
            stop.store(true, Ordering::Relaxed);
            echo.join().expect("it does not panic").and(asked)
        })?;
        let count = |name| server.counted(name) + client.counted(name);
        Ok((round_trips, ["rdma_writes", "rdma_interrupts"].map(count)))
    }

    /// A connected link, whose ends are in this process.
    fn ends(&self) -> io::Result<(End<DoubleServer>, End<DoubleClient>)> {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let at = [SocketAddr::from(([127, 2, high, low], port))];
        let [first, second] = self.cores.clone();
        let server = DoubleServer::listen(&at, &self.options).map_err(io::Error::other)?;
        let mut server = End::new(server, first);
        let client = thread::scope(|scope| {
            let client = scope.spawn(|| DoubleClient::connect(&at, &self.options));
            // It accepts while it receives.
            while !client.is_finished() {
                server.receive()?;
            }
            client.join().expect("it does not panic").map_err(io::Error::other)
        })?;
        Ok((server, End::new(client, second)))
    }
}

impl<L: Link> End<L> {
    fn new(link: L, core: Cpus) -> Self {
        let came = RxBatch::new(2 * FRAMES, FRAME_LEN_MAX - HEAD);
        Self { link, core, peer: [0; 6], vectors: TxVectors::new(FRAMES, 1), came }
    }

    /// Has the calling thread run on the core of this end.
    fn pin(&self) -> io::Result<()> {
        tyche_numa::pin(&self.core).map_err(io::Error::other)
    }

    /// Sends a message, and waits for room; false if that is over.
    fn send(&mut self, message: &[u8], stop: &AtomicBool) -> io::Result<bool> {
        let mut head = [0; HEAD];
        head[..self.peer.len()].copy_from_slice(&self.peer);
        let mut frames = self.vectors.batch();
        message.chunks(PART).for_each(|part| frames.push(&head, [part], &[]));
        while !stop.load(Ordering::Relaxed) {
            let sent = self.link.send(&frames)?;
            frames.skip(sent);
            if frames.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Receives what has come; returns the bytes of messages.
    fn receive(&mut self) -> io::Result<usize> {
        self.link.receive(&mut self.came)?;
        let Some(last) = self.came.iter().last() else { return Ok(0) };
        self.peer = last.head[6..12].try_into().expect("six bytes");
        Ok(self.came.iter().map(|frame| frame.payload.len()).sum())
    }

    /// Receives a message of that length; false if that is over.
    fn take(&mut self, len: usize, stop: &AtomicBool) -> io::Result<bool> {
        let (asked, mut came) = (Instant::now(), 0);
        while came < len {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match self.receive()? {
                0 if asked.elapsed() > PATIENCE => return Err(io::ErrorKind::TimedOut.into()),
                bytes => came += bytes,
            }
        }
        Ok(true)
    }

    /// Receives messages for that long, from the first on; returns their bytes in a second.
    fn count(&mut self, time: Duration) -> io::Result<f64> {
        self.take(1, &AtomicBool::new(false))?;
        let (began, mut bytes) = (Instant::now(), 0);
        loop {
            bytes += self.receive()?;
            let elapsed = began.elapsed();
            if elapsed >= time {
                return Ok(bytes as f64 / elapsed.as_secs_f64());
            }
        }
    }

    /// Sends messages that come back, one after the other; returns the nanoseconds of each.
    fn ask(&mut self, message: &[u8], time: Duration, stop: &AtomicBool) -> io::Result<Vec<u64>> {
        let (began, mut round_trips) = (Instant::now(), Vec::new());
        while round_trips.is_empty() || began.elapsed() < time {
            let sent = Instant::now();
            self.send(message, stop)?;
            self.take(message.len(), stop)?;
            round_trips.push(sent.elapsed().as_nanos() as u64);
        }
        Ok(round_trips)
    }

    fn counted(&self, name: &str) -> u64 {
        let counters = self.link.counters();
        counters.into_iter().find(|(metric, _)| metric.name == name).map_or(0, |it| it.1)
    }
}

#[cfg(test)]
mod tests {
    use tyche_link::rdma::double::Interrupts;
    use tyche_link::rdma::{QueueKind, RdmaOptions};

    use super::*;

    fn measured(options: DoubleOptions, bytes: usize) -> Measured {
        Measurement::new(options, Duration::from_millis(5)).unwrap().measure(bytes).unwrap()
    }

    #[test]
    fn messages_of_one_frame_and_of_several_arrive() {
        for bytes in [8, 1 << 16] {
            let measured = measured(DoubleOptions::default(), bytes);
            assert!(measured.one_way_bytes_per_s > 0.0 && measured.round_trip_ns > 0);
            assert!(measured.writes >= 1.0 && measured.interrupts == 0.0, "{measured:?}");
        }
    }

    #[test]
    fn the_stages_add_up_to_the_time_of_a_message() {
        let rdma = RdmaOptions { kind: QueueKind::Base, ..RdmaOptions::default() };
        let model = Model::ICS_2006;
        let options = DoubleOptions { rdma, interrupts: Interrupts::Each, model };
        let measured = measured(options, 8);
        // The frame, how far the ring is filled, and how far the other one was emptied.
        assert!((measured.writes - 3.0).abs() < 0.1, "{measured:?}");
        assert!((measured.interrupts - 1.0).abs() < 0.1, "{measured:?}");
        let exact = Measured { writes: 3.0, interrupts: 1.0, round_trip_ns: 20_000, ..measured };
        let stages = stages(&exact, &model);
        let all: f64 = stages.iter().map(|it| it.ns).sum();
        assert!((all - 10_000.0).abs() < 1e-6, "{stages:?}");
        assert_eq!((stages[0].ns, stages[1].ns, stages[3].ns), (1200.0, 1500.0, 5000.0));
    }
}
