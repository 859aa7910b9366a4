//! Arbitrary bytes as an encapsulated frame of Fibre Channel, with and without a correct CRC:
//! parsing must not panic, and what it accepts must survive being emitted and parsed again.
//! `crates/fc-wire/tests/corpus.rs` replays the corpus in the normal tests.
//!
//! ```text
//! cargo +nightly fuzz run fc_frame -- -max_total_time=60 -max_len=2200
//! ```

#![no_main]

#[path = "../../crates/fc-wire/tests/frames/mod.rs"]
mod frames;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    frames::fuzz_frame(input);
});
