//! A sequence of frames, good and hostile, to the living listeners of a target.
//! `crates/proto/tests/hostile_sequences.rs` replays the corpus in the normal tests.
//!
//! There is no unsafe code to sanitize: without a sanitizer it is ten times as fast.
//!
//! ```text
//! cargo +nightly fuzz run -s none -a listener -- -max_total_time=600 -max_len=1024
//! ```

#![no_main]

#[path = "../../crates/proto/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;
use tyche_proto::AllRules;

fuzz_target!(|input: &[u8]| {
    hostile::check::<AllRules>(hostile::Victim::Target, input);
});
