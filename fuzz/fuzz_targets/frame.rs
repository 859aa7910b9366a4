//! Arbitrary bytes as a frame: parsing must not panic, and what it accepts must be emitted to
//! the same bytes again. `crates/wire/tests/corpus.rs` replays the corpus in the normal tests.
//!
//! ```text
//! cargo +nightly fuzz run frame -- -max_total_time=60 -max_len=2048
//! ```

#![no_main]

#[path = "../../crates/wire/tests/frames/mod.rs"]
mod frames;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    frames::check_all(input);
});
