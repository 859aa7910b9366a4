//! Arbitrary bytes as a guest of a target's control port, before and after the handshake: only the
//! admin's own hello opens it, and only his requests in their order are answered.
//! `crates/control/tests/corpus.rs` replays the corpus in the normal tests; what the requests in it
//! say is read by `crates/cli/src/shared/control/corpus.rs`, which wants one of each kind.
//!
//! There is no unsafe code to sanitize: without a sanitizer it is many times as fast.
//!
//! ```text
//! cargo +nightly fuzz run -s none -a control -- -max_total_time=600 -max_len=1024
//! ```

#![no_main]

#[path = "../../crates/control/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    hostile::check(input);
});
