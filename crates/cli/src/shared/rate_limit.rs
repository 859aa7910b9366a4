//! Limits of requests and bytes in a second, as they are written in files and on command lines.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use bytesize::ByteSize;
use serde::de::{Deserialize, Deserializer, Error};

use crate::size;

/// The requests that a limit may be. Fewer: those that a host may have in flight would wait for
/// longer than it waits for an answer.
const IOPS: RangeInclusive<u64> = 10..=1_000_000_000;
/// The bytes that a limit may be, from the longest request up.
const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;

fn checked_iops(iops: u64) -> Result<NonZeroU64, String> {
    let valid = NonZeroU64::new(iops).filter(|_| IOPS.contains(&iops));
    valid.ok_or_else(|| format!("write {} to {}", IOPS.start(), IOPS.end()))
}

fn checked_bytes(bytes: u64) -> Result<NonZeroU64, String> {
    let valid = NonZeroU64::new(bytes).filter(|_| BYTES.contains(&bytes));
    let [least, most] = [BYTES.start(), BYTES.end()].map(|it| ByteSize(*it));
    valid.ok_or_else(|| format!("write {least} to {most}"))
}

/// Parses requests in a second on a command line.
pub(crate) fn parse_iops(text: &str) -> Result<NonZeroU64, String> {
    checked_iops(text.parse().map_err(|_| "write a number".to_owned())?)
}

/// Parses bytes in a second on a command line.
pub(crate) fn parse_bytes_per_second(text: &str) -> Result<NonZeroU64, String> {
    checked_bytes(size::parse(text).map_err(|error| format!("{error}; write 200M"))?)
}

/// Reads requests in a second in a file.
pub(crate) fn iops<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    checked_iops(u64::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

/// Reads bytes in a second in a file.
pub(crate) fn bytes_per_second<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<NonZeroU64>, D::Error> {
    checked_bytes(size::deserialize(from)?).map(Some).map_err(D::Error::custom)
}
