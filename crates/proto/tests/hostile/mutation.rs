//! Frames that were heard, changed.

use tyche_proto::wire::{ENTRY_LEN, FRAME_LEN_MAX, HEAD_LEN, Kind, Mac};

use super::adversary::{Adversary, sources};
use super::bytes::Bytes;
use super::frames::{at, mend, mend_header, number, put};
use super::world::LINKS;

/// Changes of one frame.
const CHANGES_MAX: usize = 6;

const HOSTILE: [u64; 12] =
    [0, 1, 2, 16, 0x7f, 0xff, 0x1000, 0x7fff, 0xffff, 0x8000_0000, u32::MAX as u64, u64::MAX];

/// A frame that was heard, changed as the bytes say, and the link that it is sent on.
pub(crate) fn mutate(adversary: &Adversary, bytes: &mut Bytes<'_>) -> Option<(usize, Vec<u8>)> {
    let what = bytes.u8();
    let (link, mut frame) = adversary.recall(what & 1 == 0, usize::from(what >> 1))?;
    let how = bytes.u8();
    for _ in 0..usize::from(how & 7).min(CHANGES_MAX) {
        change(adversary, &mut frame, bytes);
    }
    let link = if how & 8 == 0 { link } else { (link + 1) % LINKS };
    if how & 16 != 0 {
        address(&mut frame, link, bytes);
    }
    match how >> 6 {
        0 | 1 => mend(&mut frame),
        2 => mend_header(&mut frame),
        _ => {}
    }
    Some((link, frame))
}

/// Other addresses.
fn address(frame: &mut [u8], link: usize, bytes: &mut Bytes<'_>) {
    let choice = bytes.u8();
    let source = sources(link)[usize::from(choice & 7) % 6];
    frame[6..12].copy_from_slice(&source.0);
    match choice >> 6 {
        1 => frame[..6].copy_from_slice(&Mac::BROADCAST.0),
        2 => frame[0] |= 1,
        _ => {}
    }
}

fn change(adversary: &Adversary, frame: &mut Vec<u8>, bytes: &mut Bytes<'_>) {
    let len = frame.len();
    let body = |bytes: &mut Bytes<'_>| HEAD_LEN + usize::from(bytes.u16()) % (len - HEAD_LEN + 1);
    let nudge = |frame: &mut [u8], at: usize, by: i8| {
        put::<4>(frame, at, number::<4>(frame, at).wrapping_add_signed(by.into()));
    };
    match bytes.below(18) {
        0 => put::<1>(frame, body(bytes), bytes.u8().into()),
        1 => put::<1>(frame, usize::from(bytes.u16()) % len, bytes.u8().into()),
        2 => put::<2>(frame, bytes.pick(&[at::FLAGS, at::CHANNEL]), bytes.u8().into()),
        3 => put::<2>(frame, bytes.pick(&[at::WINDOW, at::ENTRIES]), bytes.pick(&HOSTILE)),
        4 => nudge(frame, at::POSITION, bytes.i8()),
        5 => nudge(frame, bytes.pick(&at::ACKS), bytes.i8()),
        6 => nudge(frame, at::PACKET, bytes.i8()),
        7 => put::<8>(frame, at::PACKET, bytes.pick(&HOSTILE)),
        8 => put::<1>(frame, at::KIND, bytes.pick(Kind::ALL) as u64),
        9 => {
            let way = bytes.below(adversary.ways.len());
            if let Some(way) = adversary.ways.get(way) {
                put::<2>(frame, at::CHANNEL, way.channel.0.into());
                put::<8>(frame, at::COOKIE, way.cookie.0);
            }
        }
        10 => put::<2>(frame, body(bytes), bytes.pick(&HOSTILE)),
        11 => put::<4>(frame, body(bytes), bytes.pick(&HOSTILE)),
        12 => put::<8>(frame, body(bytes), bytes.pick(&HOSTILE)),
        13 => frame.truncate(body(bytes)),
        14 => {
            let more = usize::from(bytes.u8()) * 8;
            frame.resize((len + more).min(FRAME_LEN_MAX), 0);
        }
        15 => repeat_entry(frame),
        16 => {
            // A piece of another frame, at the same place.
            let from = body(bytes);
            if let Some((_, other)) = adversary.recall(bytes.flag(), bytes.below(32))
                && let Some(piece) = other.get(from..(from + ENTRY_LEN).min(len))
            {
                frame[from..from + piece.len()].copy_from_slice(piece);
            }
        }
        _ => {
            let (source, link) = (bytes.below(6), bytes.below(LINKS));
            let ticket = adversary.tickets.get(&(sources(link)[source], link));
            if let (Some(ticket), Some(field)) =
                (ticket, frame.get_mut(at::CONNECT_TICKET..at::CONNECT_TICKET + 24))
            {
                field.copy_from_slice(&ticket.0);
            }
        }
    }
}

/// The last entry once more.
fn repeat_entry(frame: &mut Vec<u8>) {
    if frame.len() >= HEAD_LEN + ENTRY_LEN {
        frame.extend_from_within(frame.len() - ENTRY_LEN..);
        let entries = number::<2>(frame, at::ENTRIES).wrapping_add(1);
        put::<2>(frame, at::ENTRIES, entries);
    }
}
