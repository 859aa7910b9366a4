//! Shared by the test of sealed bodies and their fuzzer: what is read of them is the only encoding
//! of its meaning.

use tyche_wire::{Introduction, Verdict};

/// Checks bytes as the contents of a sealed connect, and of its answer; returns as how many they
/// were accepted.
pub(crate) fn check(bytes: &[u8]) -> usize {
    let introduction = Introduction::parse(bytes).is_ok_and(|it| {
        assert_eq!(it.to_bytes(), bytes, "a second encoding of {it:?}");
        true
    });
    let verdict = Verdict::parse(bytes).is_ok_and(|it| {
        assert_eq!(it.to_bytes(), bytes, "a second encoding of {it:?}");
        true
    });
    usize::from(introduction) + usize::from(verdict)
}
