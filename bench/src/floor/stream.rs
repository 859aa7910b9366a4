//! Full frames in one direction, as fast as they arrive.
//!
//! An unlimited sender is faster than a receiver on an equal core: then frames are dropped, the
//! others have left every cache by the time they are read, and the throughput is lower than it
//! could be. So the receiver grants frames, few at a time, and sends nothing else.

use std::io;
use std::time::{Duration, Instant};

use super::batch::{FRAMES, Incoming, Outgoing};
use super::socket::Socket;
use super::{Floor, LOST, Outcome, PAGE, Pages, WARM_UP};

/// Maximum number of frames in flight.
const WINDOW: u32 = 4 * FRAMES as u32;
/// Frames per grant: at this size a grant costs next to nothing.
const GRANT: u32 = FRAMES as u32;

/// Sends the granted frames over each link.
pub(super) fn serve(sockets: &[Socket], floor: &Floor, ready: impl FnOnce()) -> io::Result<()> {
    let (disk, payload) = (Pages::disk(), floor.payload());
    let (mut incoming, mut outgoing) = (Incoming::new(), Outgoing::new());
    let (mut granted, mut next) = (vec![0; sockets.len()], 0);
    ready();
    loop {
        for (socket, granted) in sockets.iter().zip(&mut granted) {
            *granted += incoming.receive(socket)?.map(|(count, _)| count).sum::<u32>();
            while *granted > 0 && !outgoing.is_full() {
                // From one end of the memory to the other, as a sequential read would.
                if next + payload > disk.len() {
                    next = 0;
                }
                outgoing.push(1, disk[next..next + payload].chunks(PAGE));
                next += payload;
                *granted -= 1;
            }
            outgoing.flush(socket)?;
        }
    }
}

/// The frames that arrive on one link.
struct Inflow<'a> {
    socket: &'a Socket,
    /// Frames granted that have not arrived.
    under_way: u32,
    heard: Instant,
}

pub(super) fn ask(sockets: &[Socket], time: Duration) -> io::Result<Outcome> {
    let (mut incoming, mut outgoing) = (Incoming::new(), Outgoing::new());
    let (mut frames, mut bytes, mut lost) = (0u64, 0u64, 0u64);
    let mut now = Instant::now();
    let begin = now + WARM_UP;
    let inflow = |socket| Inflow { socket, under_way: 0, heard: now };
    let mut inflows: Vec<_> = sockets.iter().map(inflow).collect();
    while now < begin + time {
        for Inflow { socket, under_way, heard } in &mut inflows {
            while *under_way + GRANT <= WINDOW {
                outgoing.push(GRANT, std::iter::empty());
                *under_way += GRANT;
            }
            outgoing.flush(socket)?;
            let (mut came, mut payload) = (0u32, 0);
            for (_, len) in incoming.receive(socket)? {
                came += 1;
                payload += len as u64;
            }
            *under_way = under_way.saturating_sub(came);
            now = Instant::now();
            if now >= begin {
                frames += u64::from(came);
                bytes += payload;
            }
            if came > 0 {
                *heard = now;
            } else if now.duration_since(*heard) > LOST {
                lost += u64::from(*under_way);
                (*under_way, *heard) = (0, now);
            }
        }
    }
    Outcome::of_stream(time, (frames, bytes), 1.0, lost)
}
