//! Random reads of 4 KiB as bare frames.

use std::io;
use std::time::{Duration, Instant};

use super::batch::{FRAMES, Incoming, Outgoing};
use super::socket::Socket;
use super::{COMMAND, Floor, LOST, Outcome, PAGE, Pages, Random};

pub(super) fn serve(socket: &Socket, floor: &Floor, ready: impl FnOnce()) -> io::Result<()> {
    let (disk, mut random) = (Pages::disk(), Random::new());
    let pages_in_all = (disk.len() / PAGE) as u64;
    let mut any_page = || {
        let start = (random.next() % pages_in_all) as usize * PAGE;
        &disk[start..start + PAGE]
    };
    let (mut incoming, mut outgoing) = (Incoming::new(), Outgoing::new());
    let mut asked = 0u32;
    ready();
    loop {
        asked += incoming.receive(socket)?.map(|(count, _)| count).sum::<u32>();
        while asked > 0 && !outgoing.is_full() {
            let pages = (floor.pages() as u32).min(asked);
            if pages > 0 {
                outgoing.push(pages, (0..pages).map(|_| any_page()));
                asked -= pages;
                continue;
            }
            // Frames too short for a page: all parts of a page go into one batch.
            let parts = PAGE.div_ceil(floor.payload());
            if outgoing.len() + parts > FRAMES {
                break;
            }
            for (number, part) in (1..).zip(any_page().chunks(floor.payload())) {
                outgoing.push(u32::from(number == parts), std::iter::once(part));
            }
            asked -= 1;
        }
        outgoing.flush(socket)?;
    }
}

pub(super) fn ask(socket: &Socket, floor: &Floor, time: Duration) -> io::Result<Outcome> {
    let commands = [1u8; 64 * COMMAND];
    let in_a_frame = u32::from(floor.commands());
    let commands = &commands[..in_a_frame as usize * COMMAND];
    let depth = u32::from(floor.depth).max(in_a_frame);
    let (mut incoming, mut outgoing) = (Incoming::new(), Outgoing::new());
    let (mut under_way, mut lost) = (0u32, 0u64);
    let (mut answers, mut frames) = (0u64, 0u64);
    let start = Instant::now();
    let mut heard = start;
    let mut now = start;
    while now.duration_since(start) < time {
        while under_way + in_a_frame <= depth && !outgoing.is_full() {
            outgoing.push(in_a_frame, std::iter::once(commands));
            under_way += in_a_frame;
        }
        frames += outgoing.len() as u64;
        if outgoing.len() > 0 {
            outgoing.flush(socket)?;
        }
        let mut came = 0;
        for (count, _) in incoming.receive(socket)? {
            frames += 1;
            came += count;
        }
        answers += u64::from(came);
        // Late answers to commands given up as lost still count, but are no longer awaited.
        under_way = under_way.saturating_sub(came);
        now = Instant::now();
        if came > 0 {
            heard = now;
        } else if under_way > 0 && now.duration_since(heard) > LOST {
            lost += u64::from(under_way);
            under_way = 0;
            heard = now;
        }
    }
    Outcome::of_exchange(depth, (answers, frames), start, lost)
}
