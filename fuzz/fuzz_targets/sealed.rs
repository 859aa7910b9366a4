//! Arbitrary bytes as the contents of a sealed connect, and of its answer: parsing must not panic,
//! and what it accepts must be emitted to the same bytes again.
//! `crates/wire/tests/sealed_corpus.rs` replays the corpus in the normal tests.
//!
//! ```text
//! cargo +nightly fuzz run sealed -- -max_total_time=60 -max_len=512
//! ```

#![no_main]

#[path = "../../crates/wire/tests/sealed/mod.rs"]
mod sealed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    sealed::check(input);
});
