//! The steps of a request, one by one: 16 requests of 4 KiB at a time, as each end's part of the
//! protocol sees them. Frames are sealed outside of what is counted.

use tyche_proto::wire::{Opcode, PAGE_LEN};
use tyche_testkit::instructions::{Case, Round, case};

use crate::pair::{JUMBO, Pair};

const REQUESTS: u32 = 16;

pub(crate) const CASES: &[Case] = &[
    case("host_submit_read", REQUESTS, || submit(Opcode::Read)),
    case("host_submit_write", REQUESTS, || submit(Opcode::Write)),
    case("target_take_16_commands", REQUESTS, target_takes_commands),
    case("target_answer_16_reads", REQUESTS, target_answers_reads),
    case("host_take_16_pages", REQUESTS, host_takes_pages),
];

fn pair() -> Pair {
    Pair::connected(PAGE_LEN as u32, JUMBO)
}

/// Each request is submitted by itself, and composed into a frame of its own.
fn submit(opcode: Opcode) -> Round {
    let mut pair = pair();
    Box::new(move |count| {
        count(&mut || {
            for index in 0..REQUESTS {
                pair.host.submit(pair.now, opcode, index);
                pair.host.compose(pair.now);
            }
        });
        pair.host.seal();
        pair.finish();
    })
}

/// Reads on their way to the target, in one frame.
fn send_reads(pair: &mut Pair) {
    for index in 0..REQUESTS {
        pair.host.submit(pair.now, Opcode::Read, index);
    }
    pair.host.compose(pair.now);
    pair.host.seal();
}

/// A frame with the commands is checked and taken, and what is to be executed handed out.
fn target_takes_commands() -> Round {
    let mut pair = pair();
    Box::new(move |count| {
        send_reads(&mut pair);
        count(&mut || pair.target.handle_frames(pair.now, &mut pair.host));
        pair.finish();
    })
}

/// The disk has executed the reads, and the answers are composed: two pages in a frame.
fn target_answers_reads() -> Round {
    let mut pair = pair();
    Box::new(move |count| {
        send_reads(&mut pair);
        pair.target.handle_frames(pair.now, &mut pair.host);
        count(&mut || {
            pair.target.complete();
            pair.target.compose(pair.now);
        });
        pair.target.seal();
        pair.finish();
    })
}

/// The frames with the answers are checked and taken, and the data copied where they belong.
fn host_takes_pages() -> Round {
    let mut pair = pair();
    Box::new(move |count| {
        send_reads(&mut pair);
        pair.target.handle_frames(pair.now, &mut pair.host);
        pair.target.complete();
        pair.target.compose(pair.now);
        pair.target.seal();
        count(&mut || pair.host.handle_frames(pair.now, &mut pair.target));
        pair.finish();
    })
}
