//! Raw frames one way through a packet link, at full speed: the upper bound for everything that is
//! built on top.
//!
//! ```text
//! blast rx INTERFACE FRAME_BYTES SECONDS     counts what comes, up to FRAME_BYTES a frame
//! blast tx INTERFACE FRAME_BYTES SECONDS     sends broadcasts
//! ```
//!
//! Start the receiver first, on the other end of the cable.

use std::error::Error;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_link::{HEAD, Link, RxBatch, TxVectors};

/// Frames per system call.
const BATCH: usize = 64;

/// The receiver stops after this time without a frame.
const SILENCE: Duration = Duration::from_secs(5);

const USAGE: &str = "usage: blast rx|tx INTERFACE FRAME_BYTES SECONDS";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, interface, len, seconds] = &arguments[..] else { return Err(USAGE.into()) };
    let len: usize = len.parse()?;
    let time = Duration::from_secs_f64(seconds.parse()?);
    if len < HEAD {
        return Err(format!("a frame has at least {HEAD} bytes").into());
    }
    let options = PacketOptions { send_buffer: 64 << 20, ..PacketOptions::new(interface) };
    let mut link = PacketLink::open(&options)?;
    if let Some(shortfall) = link.shortfall() {
        eprintln!("warning: {shortfall}");
    }
    let Count { frames, bytes, took } = match mode.as_str() {
        "rx" => receive(&mut link, len, time)?,
        "tx" => send(&mut link, len, time)?,
        _ => return Err(USAGE.into()),
    };
    let per_second = |count: u64| count as f64 / took.as_secs_f64();
    println!(
        "{mode}: {:.0} kframes/s {:.2} GB/s lost {}",
        per_second(frames) / 1e3,
        per_second(bytes) / 1e9,
        link.overruns()
    );
    Ok(())
}

/// Traffic in one direction, and its duration.
struct Count {
    frames: u64,
    bytes: u64,
    took: Duration,
}

fn send(link: &mut PacketLink, len: usize, time: Duration) -> Result<Count, Box<dyn Error>> {
    let mut head = [0; HEAD];
    head[..6].fill(0xff);
    head[6..12].copy_from_slice(&link.mac());
    head[12..14].copy_from_slice(&0x88B5_u16.to_be_bytes());
    // Every frame has data of its own, like blocks of a disk.
    let stride = len.next_multiple_of(4096);
    let data = vec![1; stride * BATCH];
    let mut vectors = TxVectors::new(BATCH, 1);
    let start = Instant::now();
    let mut frames = 0;
    while start.elapsed() < time {
        let mut batch = vectors.batch();
        for area in data.chunks_exact(stride) {
            batch.push(&head, [&area[..len - HEAD]], &[]);
        }
        frames += link.send(&batch)? as u64;
    }
    Ok(Count { frames, bytes: frames * len as u64, took: start.elapsed() })
}

fn receive(link: &mut PacketLink, len: usize, time: Duration) -> Result<Count, Box<dyn Error>> {
    let mut batch = RxBatch::new(BATCH, len - HEAD);
    let mut first = None;
    let mut last = Instant::now();
    let (mut frames, mut bytes) = (0, 0);
    loop {
        let received = link.receive(&mut batch)?;
        let now = Instant::now();
        let start = *first.get_or_insert(now);
        if received > 0 {
            frames += received as u64;
            bytes += batch.iter().map(|frame| frame.len() as u64).sum::<u64>();
            last = now;
        } else {
            let fd = link.wait_fd();
            let timeout = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout))?;
            if frames == 0 {
                first = None;
            }
        }
        let idle = now - last;
        let over = frames > 0 && (now - start > time || idle > Duration::from_millis(500));
        if over || idle > SILENCE {
            return Ok(Count { frames, bytes, took: last - start });
        }
    }
}
