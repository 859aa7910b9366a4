//! `tyche-lab bottleneck`: a slow path between two interfaces, on kernels without netem.
//!
//! ```text
//! near ── half of the round trip ───────────────────────────> far
//!      <─ half of the round trip ── rate of the path ── queue ─
//! ```
//!
//! Frames from far meet in one queue before the path; those from near are late only.

mod codel;
mod queue;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};
use tyche_console::error::{Code, Context, Error, Result};
use tyche_console::output::announce;

use self::queue::{Queue, Queued};

/// How far the path may catch up when its thread has woken late.
const BURST: Duration = Duration::from_millis(2);
/// Frames that an interface keeps until they are taken from it.
const INTERFACE_FRAMES: u32 = 10_000;
/// More than the longest frame.
const BUFFER_LEN: usize = 1 << 16;

/// Make two interfaces (TAP) with a slow path between them. What is sent on FAR waits in a queue
/// until the path is free, and arrives at NEAR half of the round trip later; what is sent on NEAR
/// arrives at FAR half of the round trip later. Move each to the network namespace that shall have
/// it. Runs until it is stopped; then both are gone.
#[derive(Args, Debug)]
pub(crate) struct BottleneckArgs {
    /// The interface on the side to which the path is slow.
    near: String,

    /// The interface on the other side.
    far: String,

    /// The rate of the path to NEAR.
    #[arg(long, value_name = "MBIT/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,

    /// The round trip without the queue.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    round_trip: u32,

    /// The size of the queue, in time at the rate.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    queue: u32,

    /// The discipline of the queue.
    #[arg(long, default_value = "drop-tail")]
    kind: Kind,
}

/// A discipline of the queue.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One queue; what does not fit is dropped.
    DropTail,
    /// A queue for each flow, each kept short by dropping (RFC 8290, RFC 8289).
    FqCodel,
    /// The same, with marks on packets that may be marked instead of drops (RFC 3168).
    FqCodelEcn,
}

pub(crate) fn run(args: &BottleneckArgs) -> Result<()> {
    let (near, far) = (open(&args.near)?, open(&args.far)?);
    let delay = Duration::from_millis(args.round_trip.into()) / 2;
    let bytes_per_s = u64::from(args.rate) * 125_000;
    let room = bytes_per_s * u64::from(args.queue) / 1000;
    let path = Path { queue: Mutex::new(Queue::new(args.kind, room)), arrived: Condvar::new() };
    let ((to_near, at_near), (to_far, at_far)) = (channel(), channel());
    let text = format!("tyche-lab: a slow path from {} to {}\n", args.far, args.near);
    announce(&text).context(Code::Other, "standard output")?;
    thread::scope(|scope| {
        scope.spawn(|| deliver(at_near, &near));
        scope.spawn(|| deliver(at_far, &far));
        scope.spawn(|| path.forward(bytes_per_s, delay, &to_near));
        scope.spawn(|| take(&far, |frame| path.put(frame)));
        take(&near, |frame| drop(to_far.send((Instant::now() + delay, frame))));
    });
    Ok(())
}

fn open(name: &str) -> Result<SyncDevice> {
    let builder = DeviceBuilder::new().name(name).layer(Layer::L2).tx_queue_len(INTERFACE_FRAMES);
    builder.build_sync().map_err(|error| Error::new(Code::Link, format!("{name}: {error}")))
}

/// Hands over each frame that is sent on an interface.
fn take(interface: &SyncDevice, mut put: impl FnMut(Vec<u8>)) {
    let mut buffer = vec![0; BUFFER_LEN];
    // It fails while the interface is down.
    loop {
        match interface.recv(&mut buffer) {
            Ok(len) => put(buffer[..len].to_vec()),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Has frames received by an interface, each at its time.
fn deliver(frames: Receiver<(Instant, Vec<u8>)>, interface: &SyncDevice) {
    for (due, frame) in frames {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // An interface that is down loses it.
        let _ = interface.send(&frame);
    }
}

/// The slow direction.
struct Path {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

impl Path {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, frame: Vec<u8>) {
        self.lock().put(Queued { since: Instant::now(), frame });
        self.arrived.notify_one();
    }

    /// The next frame, once there is one.
    fn next(&self) -> Vec<u8> {
        let mut queue = self.lock();
        loop {
            if let Some(frame) = queue.take(Instant::now()) {
                return frame;
            }
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn forward(&self, bytes_per_s: u64, delay: Duration, to: &Sender<(Instant, Vec<u8>)>) {
        let mut free = Instant::now();
        loop {
            let frame = self.next();
            let begins = Instant::now().checked_sub(BURST).map_or(free, |early| free.max(early));
            free = begins + Duration::from_nanos(frame.len() as u64 * 1_000_000_000 / bytes_per_s);
            if to.send((free + delay, frame)).is_err() {
                return;
            }
            thread::sleep(free.saturating_duration_since(Instant::now()));
        }
    }
}
