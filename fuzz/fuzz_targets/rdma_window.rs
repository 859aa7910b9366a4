//! A peer that writes what it wants into the window of a connection over RDMA, and announces what
//! it wants. `crates/link/tests/hostile_windows.rs` replays the corpus in the normal tests. Without
//! a sanitizer it is ten times as fast: the only unsafe code is that of `Region`, which looks.
//!
//! ```text
//! cargo +nightly fuzz run -s none -a rdma_window -- -max_total_time=600 -max_len=512
//! ```

#![no_main]

#[path = "../../crates/link/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    hostile::check(input);
});
