//! Full frames, one way, as fast as they go. Counted where they arrive.

use std::io;
use std::time::{Duration, Instant};

use super::batch::{Incoming, Outgoing};
use super::socket::Socket;
use super::{Floor, Outcome, PAGE, Random, SILENCE_MAX, disk};

/// Time to get going before what arrives counts.
const WARM_UP: Duration = Duration::from_millis(100);

/// Begins when asked, and goes on until ended.
pub(super) fn serve(socket: &Socket, floor: &Floor, ready: impl FnOnce()) -> io::Result<()> {
    let (disk, mut random) = (disk(), Random::new());
    let payload = floor.payload();
    let (mut incoming, mut outgoing) = (Incoming::new(), Outgoing::new());
    ready();
    while incoming.receive(socket)?.next().is_none() {}
    // From one end of the memory to the other, as a sequential read would.
    let mut next = (random.next() as usize % disk.len()) / PAGE * PAGE;
    loop {
        while !outgoing.is_full() {
            if next + payload > disk.len() {
                next = 0;
            }
            outgoing.push(1, disk[next..next + payload].chunks(PAGE));
            next += payload;
        }
        outgoing.flush(socket)?;
    }
}

pub(super) fn ask(socket: &Socket, time: Duration) -> io::Result<Outcome> {
    let (mut incoming, mut outgoing) = (Incoming::new(), Outgoing::new());
    outgoing.push(1, std::iter::empty());
    outgoing.flush(socket)?;
    let asked = Instant::now();
    // Nothing counts until the frames flow, and have for a while.
    let mut begun: Option<Instant> = None;
    let (mut frames, mut bytes) = (0u64, 0u64);
    loop {
        let (mut came, mut payload) = (0, 0);
        for (_, len) in incoming.receive(socket)? {
            came += 1;
            payload += len as u64;
        }
        let now = Instant::now();
        match begun {
            None if came > 0 => begun = Some(now + WARM_UP),
            None if now.duration_since(asked) > SILENCE_MAX => return Err(super::silence()),
            Some(begun) if now > begun + time => break,
            Some(begun) if now >= begun => {
                frames += came;
                bytes += payload;
            }
            _ => {}
        }
    }
    let seconds = time.as_secs_f64();
    Ok(Outcome {
        per_s: frames as f64 / seconds,
        bytes_per_s: bytes as f64 / seconds,
        mean_ns: 0.0,
        frames_per_answer: 1.0,
        lost: 0,
    })
}
