//! Whole commands, from submit to completion, at both ends: all that the lanes, the CRCs and the
//! copies cost, and nothing of the system.

use tyche_fc::initiator::Data;
use tyche_testkit::instructions::{Case, Round, case};

use crate::pair::{DEPTH, Pair};

const AT_ONCE: u32 = DEPTH as u32;

pub(crate) const CASES: &[Case] = &[
    case("read_512_depth_1", 1, || trip(Data::In(512), 1)),
    case("read_4k_depth_1", 1, || trip(Data::In(4096), 1)),
    case("read_4k_depth_128", AT_ONCE, || trip(Data::In(4096), AT_ONCE)),
    case("write_4k_depth_1", 1, || trip(Data::Out(4096), 1)),
    case("write_4k_depth_128", AT_ONCE, || trip(Data::Out(4096), AT_ONCE)),
];

/// `commands` go out together, and the trip is over with the last answer.
fn trip(data: Data, commands: u32) -> Round {
    let mut pair = Pair::new(data);
    Box::new(move |count| {
        count(&mut || {
            pair.submit(commands);
            pair.finish();
        });
    })
}
