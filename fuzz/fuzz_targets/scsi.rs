//! Acts of initiators and of an operator on the device server of a target, in any order: logins,
//! CDBs, parameter lists, and disks that come, go and change.
//! `crates/scsi/tests/corpus.rs` replays the corpus in the normal tests.
//!
//! There is no unsafe code to sanitize: without a sanitizer it is ten times as fast.
//!
//! ```text
//! cargo +nightly fuzz run -s none -a scsi -- -max_total_time=600 -max_len=1024
//! ```

#![no_main]

#[path = "../../crates/scsi/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    hostile::check(input);
});
