//! Arbitrary bytes as a virtqueue, its tables and the guest's memory, served as vhost-user does.
//! `crates/attach/tests/hostile_corpora.rs` replays the corpus in the normal tests.
//!
//! ```text
//! cargo +nightly fuzz run virtqueue_chain -- -max_total_time=60 -max_len=16384
//! ```

#![no_main]

#[path = "../../crates/attach/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    hostile::guest::check(input);
});
