//! Arbitrary bytes as a client of the NBD server, from the handshake to the last request.
//! `crates/attach/tests/hostile_corpora.rs` replays the corpus in the normal tests.
//!
//! Threads come and go with connections, and one that is about to end looks like a leak.
//!
//! ```text
//! cargo +nightly fuzz run nbd_handshake -- -detect_leaks=0 -max_total_time=60 -max_len=65536
//! ```

#![no_main]

#[path = "../../crates/attach/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    hostile::nbd::check(input);
});
