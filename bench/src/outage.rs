//! Outages: links are cut during a job and come back, observed from outside.
//!
//! ```text
//! 0 s           1.5 s           3.5 s                             9 s
//! | as usual     | links are cut | links are back                 |
//! ```
//!
//! fio logs when each request was done and how long it took. Nothing is smoothed: data per tenth of
//! a second, the longest time in which no request was done, and the slowest request, which was in
//! flight on a link that was cut.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::network::{Network, traffic};
use crate::peer::PATIENCE;
use crate::plan::Outage;
use crate::process::{Doing, Result, Running, Stop, failed};
use crate::timeline::{BUCKET_MS, Timeline};

const USUAL: Duration = Duration::from_millis(1500);
const CUT: Duration = Duration::from_secs(2);
const BACK: Duration = Duration::from_millis(5500);
/// The whole measurement.
pub(crate) const WHOLE: Duration = Duration::from_secs(9);
/// Time limit for fio to connect and to begin.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// More frames than a connect takes.
const BEGIN_FRAMES: u64 = 1000;
/// The job file.
pub(crate) const JOB: &str = "timeline.fio";
/// fio's name for its log.
const LOG: &str = "timeline_lat.1.log";

const _: () = assert!(WHOLE.as_millis() == USUAL.as_millis() + CUT.as_millis() + BACK.as_millis());

/// Runs fio in `dir`, and cuts the planned links. `place` is set, peer and turn; `server` is the
/// PID of the target.
pub(crate) fn measure(
    planned: &Outage,
    (set, peer, turn): (&str, &str, u32),
    (fio, dir): (&mut Command, &Path),
    server: u32,
    network: &Network,
    stop: &Stop,
) -> Result<Timeline> {
    let log = dir.join(LOG);
    let _ = fs::remove_file(&log);
    let before = traffic(server)?;
    let mut running = Running::start(fio.current_dir(dir))?;
    let begun = stop.until(BEGIN_MAX, || {
        running.check()?;
        Ok(traffic(server)?.frames > before.frames + BEGIN_FRAMES)
    })?;
    if !begun {
        return failed("fio does not begin");
    }
    stop.pause(USUAL)?;
    let bundle = planned.job.bundle();
    let cables: Vec<_> = bundle.numbers().rev().take(planned.links.into()).collect();
    let cut_at = now_ms();
    network.cut(&cables, planned.how, stop)?;
    stop.pause(CUT)?;
    let back_at = now_ms();
    network.mend(&cables, planned.how, stop)?;
    running.succeed(stop, BACK + PATIENCE)?;
    let done = read(&log)?;
    let (Some(first), Some(last)) = (done.first(), done.last()) else {
        return failed("fio did nothing");
    };
    let (first, last) = (first.at_ms, last.at_ms);
    let mut bytes = vec![0; ((last - first) / BUCKET_MS + 1) as usize];
    done.iter().for_each(|it| bytes[((it.at_ms - first) / BUCKET_MS) as usize] += it.bytes);
    // The last interval is incomplete.
    bytes.pop();
    let gaps = done.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms);
    let slowest_ns = done.iter().map(|it| it.took_ns).max().unwrap_or_default();
    Ok(Timeline {
        set: set.to_owned(),
        peer: peer.to_owned(),
        turn,
        job: planned.job,
        how: planned.how,
        links: planned.links,
        cut_ms: cut_at.saturating_sub(first),
        back_ms: back_at.saturating_sub(first),
        gap_ms: gaps.max().unwrap_or_default(),
        slowest_ms: slowest_ns / 1_000_000,
        bytes,
    })
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Done {
    /// Milliseconds since 1970.
    at_ms: u64,
    took_ns: u64,
    bytes: u64,
}

/// Reads the requests, in the order of their completion.
fn read(log: &Path) -> Result<Vec<Done>> {
    let text = fs::read_to_string(log).doing("fio's log")?;
    let mut done = Vec::new();
    for line in text.lines() {
        // Time, latency, direction, bytes, offset.
        let fields: Option<Vec<u64>> = line.split(',').map(|it| it.trim().parse().ok()).collect();
        match fields.as_deref() {
            Some(&[at_ms, took_ns, _, bytes, ..]) => done.push(Done { at_ms, took_ns, bytes }),
            _ => return failed(format!("fio's log: `{line}`")),
        }
    }
    done.sort_unstable();
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_in_the_order_of_their_ends() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join(LOG);
        fs::write(&log, "1700000000123, 5000, 0, 65536, 0, 0\n1700000000120, 1, 1, 4096, 8, 0\n")
            .unwrap();
        let earlier = Done { at_ms: 1_700_000_000_120, took_ns: 1, bytes: 4096 };
        let later = Done { at_ms: 1_700_000_000_123, took_ns: 5000, bytes: 65536 };
        assert_eq!(read(&log).unwrap(), [earlier, later]);
        fs::write(&log, "nothing").unwrap();
        assert!(read(&log).is_err());
    }
}
