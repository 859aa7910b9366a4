//! Tests whether the kernel returns a slot of a TX ring while the frame's memory is still in use.
//!
//! The receiver sleeps, so all frames wait in its queue. A thread on another CPU overwrites each
//! slot the moment it is returned: a frame that arrives damaged was sent from memory that was no
//! longer the kernel's.

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::io::{self, HEAD};
use crate::pin;
use crate::ring::{Ring, Way};

const FRAMES: usize = 20_000;
const SLOTS: usize = 8;
const LEN: usize = 8256;
const OVERWRITTEN: u8 = 0xEE;

struct Slots {
    ring: Ring,
    /// By slot: sent, and not yet overwritten.
    sent: [bool; SLOTS],
}

pub(crate) fn run(from: &str, to: &str) -> Result<(), Box<dyn Error>> {
    let receiver = io::socket()?;
    io::set(&receiver, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
    io::set(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &(1 << 29))?;
    io::bind(&receiver, to, 0xF000)?;
    let sender = io::socket()?;
    io::set(&sender, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)?;
    let ring = Ring::new(&sender, Way::Out, SLOTS, LEN)?;
    io::bind(&sender, from, 0)?;

    let (slots, stop) = (Mutex::new(Slots { ring, sent: [false; SLOTS] }), AtomicBool::new(false));
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        scope.spawn(|| {
            pin(1).expect("a second CPU");
            while !stop.load(Ordering::Acquire) {
                overwrite(&mut slots.lock().expect("no thread panics with the lock"));
            }
        });
        pin(0)?;
        let result = (0..FRAMES).try_for_each(|frame| {
            while !fill(&mut slots.lock().expect("no thread panics with the lock"), frame) {
                std::hint::spin_loop();
            }
            io::flush(&sender)
        });
        stop.store(true, Ordering::Release);
        Ok(result?)
    })?;
    let mut frame = [0; LEN];
    let (mut arrived, mut damaged) = (0, 0);
    while io::receive_one(&receiver, &mut frame)? {
        arrived += 1;
        damaged += usize::from(frame[HEAD..].contains(&OVERWRITTEN));
    }
    println!("{FRAMES} frames through {SLOTS} slots: {arrived} arrived, {damaged} damaged");
    Ok(())
}

/// Puts a frame into its slot, unless the slot is still to be overwritten.
fn fill(slots: &mut Slots, frame: usize) -> bool {
    let Slots { ring, sent } = slots;
    if sent[frame % SLOTS] || !ring.ours(frame) {
        return false;
    }
    let bytes = ring.frame(frame);
    bytes[..12].fill(0xFF);
    bytes[12..14].copy_from_slice(&0xF000_u16.to_be_bytes());
    bytes[HEAD..LEN].fill(1);
    ring.hand_over(frame, LEN);
    sent[frame % SLOTS] = true;
    true
}

fn overwrite(slots: &mut Slots) {
    let Slots { ring, sent } = slots;
    for (slot, sent) in sent.iter_mut().enumerate() {
        if *sent && ring.ours(slot) {
            ring.frame(slot)[HEAD..LEN].fill(OVERWRITTEN);
            *sent = false;
        }
    }
}
