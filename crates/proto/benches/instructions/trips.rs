//! Whole requests, from submit to completion, at both ends: all that the protocol, the checksums
//! and the copies cost, and nothing of the system.

use tyche_proto::wire::{Opcode, PAGE_LEN, REQUEST_LEN_MAX};
use tyche_testkit::instructions::{Case, Round, case};

use crate::pair::{DEPTH, JUMBO, Pair, STANDARD};

const PAGE: u32 = PAGE_LEN as u32;
const AT_ONCE: u32 = DEPTH as u32;

pub(crate) const CASES: &[Case] = &[
    case("read_4k_depth_1", 1, || trip(Opcode::Read, PAGE, 1, JUMBO)),
    case("read_4k_depth_128", AT_ONCE, || trip(Opcode::Read, PAGE, AT_ONCE, JUMBO)),
    case("write_4k_depth_1", 1, || trip(Opcode::Write, PAGE, 1, JUMBO)),
    case("write_4k_depth_128", AT_ONCE, || trip(Opcode::Write, PAGE, AT_ONCE, JUMBO)),
    case("read_1m", 1, || trip(Opcode::Read, REQUEST_LEN_MAX, 1, JUMBO)),
    case("write_1m", 1, || trip(Opcode::Write, REQUEST_LEN_MAX, 1, JUMBO)),
    case("read_1m_mtu_1500", 1, || trip(Opcode::Read, REQUEST_LEN_MAX, 1, STANDARD)),
    case("write_1m_mtu_1500", 1, || trip(Opcode::Write, REQUEST_LEN_MAX, 1, STANDARD)),
];

/// `requests` of `len` bytes go out together, in frames of up to `frame_len`, and the trip is over
/// with the last answer.
fn trip(opcode: Opcode, len: u32, requests: u32, frame_len: usize) -> Round {
    let mut pair = Pair::connected(len, frame_len);
    Box::new(move |count| {
        count(&mut || {
            for index in 0..requests {
                pair.host.submit(pair.now, opcode, index);
            }
            pair.finish();
        });
    })
}
