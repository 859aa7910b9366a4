//! Inputs of fuzzers for attachments, and the properties that hold for all of them. The fuzz
//! targets and the tests that replay their corpora share the checks.

#![allow(dead_code, reason = "each fuzz target uses a part")]

pub(crate) mod guest;
pub(crate) mod ledger;
pub(crate) mod nbd;

use tyche_testkit::allocations::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
