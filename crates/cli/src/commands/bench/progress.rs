//! The line that shows a measurement's progress on a terminal.

use std::time::{Duration, Instant};

use crate::output::{has_terminal, write_error};

/// Interval between two updates.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// The progress line of one measurement, which goes away when this is dropped. It shows nothing
/// without a terminal.
pub(super) struct Progress {
    terminal: bool,
    request_len: u32,
    end: Instant,
    /// Time of the last update, and the requests answered by then.
    last: (Instant, u64),
}

impl Progress {
    /// A measurement that takes `time` from now on, with requests of `request_len` bytes.
    pub(super) fn new(request_len: u32, time: Duration) -> Self {
        let now = Instant::now();
        let terminal = has_terminal();
        Self { terminal, request_len, end: now + time, last: (now, 0) }
    }

    /// Shows the rates since the last update; `answered` is the number of requests so far.
    pub(super) fn show(&mut self, answered: u64) {
        let now = Instant::now();
        let (before, count) = std::mem::replace(&mut self.last, (now, answered));
        if self.terminal {
            let rate = (answered - count) as f64 / now.duration_since(before).as_secs_f64();
            let text = line(rate, self.request_len, self.end.saturating_duration_since(now));
            // A closed terminal does not end the measurement.
            let _ = write_error(format!("\r\x1b[K{text}").as_bytes());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write_error(b"\r\x1b[K");
        }
    }
}

fn line(rate: f64, request_len: u32, left: Duration) -> String {
    let megabytes = rate * f64::from(request_len) / 1e6;
    format!("{rate:.0} IOPS, {megabytes:.1} MB/s, {:.0} s left", left.as_secs_f64().ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rates_and_the_time_left() {
        let left = Duration::from_millis(2100);
        assert_eq!(line(12_345.6, 4096, left), "12346 IOPS, 50.6 MB/s, 3 s left");
    }
}
