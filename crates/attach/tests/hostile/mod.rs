//! Inputs of fuzzers for attachments, and the properties that hold for all of them. The fuzz
//! targets and the tests that replay their corpora share the checks.

#![allow(dead_code, reason = "each fuzz target uses a part")]

pub(crate) mod guest;
pub(crate) mod ledger;
pub(crate) mod nbd;

use tyche_testkit::allocations::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Takes fields off the front of bytes; `None` if they are too few.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }
}
