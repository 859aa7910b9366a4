//! The steps of a command, one by one, at each end: 16 commands at a time. Sent frames have their
//! CRC, and received ones are parsed and checked.

use std::hint::black_box;

use tyche_fc::initiator::Data;
use tyche_fc::wire::{PAYLOAD_LEN_MAX, crc};
use tyche_testkit::instructions::{Case, Round, case};

use crate::pair::Pair;

const COMMANDS: u32 = 16;

pub(crate) const CASES: &[Case] = &[
    case("crc_of_a_full_frame", 1, crc_of_a_full_frame),
    case("host_send_read_512", COMMANDS, || send(Data::In(512))),
    case("host_send_read_4k", COMMANDS, || send(Data::In(4096))),
    case("host_send_read_64k", COMMANDS, || send(Data::In(64 << 10))),
    case("host_send_write_4k", COMMANDS, || send(Data::Out(4096))),
    case("host_send_4k_of_data", COMMANDS, host_sends_data),
    case("host_take_read_512", COMMANDS, || host_takes_answers(Data::In(512))),
    case("host_take_read_4k", COMMANDS, || host_takes_answers(Data::In(4096))),
    case("host_take_response", COMMANDS, || host_takes_answers(Data::None)),
    case("target_take_read_4k", COMMANDS, || target_takes_commands(Data::In(4096))),
    case("target_take_write_4k", COMMANDS, || target_takes_commands(Data::Out(4096))),
    case("target_take_4k_of_data", COMMANDS, target_takes_data),
    case("target_answer_read_4k", COMMANDS, || target_answers(Data::In(4096))),
    case("target_answer_response", COMMANDS, || target_answers(Data::None)),
];

/// The CRC by itself, the greater part of every frame with data.
fn crc_of_a_full_frame() -> Round {
    let payload = vec![0xa5; PAYLOAD_LEN_MAX];
    Box::new(move |count| {
        count(&mut || {
            black_box(crc([black_box(payload.as_slice())]));
        });
    })
}

/// A step of 16 commands, after those before it.
fn step(
    data: Data,
    before: impl Fn(&mut Pair) + 'static,
    counted: impl Fn(&mut Pair) + 'static,
) -> Round {
    let mut pair = Pair::new(data);
    Box::new(move |count| {
        before(&mut pair);
        count(&mut || counted(&mut pair));
        pair.finish();
    })
}

/// The commands arrive at the target.
fn arrive(pair: &mut Pair) {
    pair.submit(COMMANDS);
    pair.take_at_disk();
}

/// The target has answered: with FCP_XFER_RDY, or with data and response.
fn answered(pair: &mut Pair) {
    arrive(pair);
    pair.answer();
}

/// Each command is submitted by itself, and becomes a frame.
fn send(data: Data) -> Round {
    step(data, |_| {}, |pair| pair.submit(COMMANDS))
}

/// FCP_XFER_RDY is taken, and the data are sent.
fn host_sends_data() -> Round {
    host_takes_answers(Data::Out(4096))
}

/// Data and response are taken, and the data copied where they belong.
fn host_takes_answers(data: Data) -> Round {
    step(data, answered, Pair::take_at_host)
}

/// Commands are taken: of reads what the store is to do, of writes FCP_XFER_RDY.
fn target_takes_commands(data: Data) -> Round {
    step(
        data,
        |pair| pair.submit(COMMANDS),
        |pair| {
            pair.take_at_disk();
            pair.disk.transmit(pair.now, &mut pair.down);
        },
    )
}

/// The data of writes are taken and copied where they belong, up to what the store is to do.
fn target_takes_data() -> Round {
    let asked_for = |pair: &mut Pair| {
        answered(pair);
        pair.take_at_host();
    };
    step(Data::Out(4096), asked_for, Pair::take_at_disk)
}

/// The store is done: data and response are sent.
fn target_answers(data: Data) -> Round {
    step(data, arrive, Pair::answer)
}
