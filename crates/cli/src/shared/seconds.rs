//! Times on the command line, in seconds.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses a time longer than zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number < 1e9 => Ok(number),
        _ => Err("a number of seconds greater than 0".into()),
    }
}

/// Parses a time within a range.
pub(crate) fn within(text: &str, range: &RangeInclusive<Duration>) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|&seconds| {
        Duration::try_from_secs_f64(seconds).is_ok_and(|it| range.contains(&it))
    });
    let [first, last] = [range.start(), range.end()].map(Duration::as_secs_f64);
    seconds.ok_or_else(|| format!("{first} to {last} seconds"))
}
