//! The summary: what was done, how fast, and what it cost.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::outage::{Loss, Witness};

/// Bytes over time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Pace {
    pub(super) seconds: f64,
    /// Millions of bytes a second.
    pub(super) mb_per_s: f64,
}

impl Pace {
    pub(super) fn new(bytes: u64, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        Self { seconds, mb_per_s: bytes as f64 / 1e6 / seconds.max(1e-9) }
    }
}

/// What one daemon did, summed over its lives.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Traffic {
    pub(super) frames_sent: u64,
    pub(super) frames_received: u64,
    pub(super) retransmitted: u64,
    /// CPU time of the daemon, user and system, in seconds.
    pub(super) cpu_s: f64,
}

impl Traffic {
    /// Adds what `tyche stats` says of a session or target.
    pub(super) fn add(&mut self, stats: &Value) {
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        self.retransmitted += count(&stats["channel"]["retransmitted"]);
        for link in stats["links"].as_array().map_or(&[][..], Vec::as_slice) {
            self.frames_sent += count(&link["tx_frames"]);
            self.frames_received += count(&link["rx_frames"]);
            self.retransmitted += count(&link["channel"]["retransmitted"]);
        }
        self.cpu_s += stats["cpu_s"].as_f64().unwrap_or_default();
    }

    /// Adds what an earlier life did.
    pub(super) fn add_earlier(&mut self, earlier: Self) {
        self.frames_sent += earlier.frames_sent;
        self.frames_received += earlier.frames_received;
        self.retransmitted += earlier.retransmitted;
        self.cpu_s += earlier.cpu_s;
    }
}

/// The result of a demo.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    pub(super) filesystem: &'static str,
    pub(super) mtu: u32,
    /// Of the frames, each way.
    pub(super) loss_percent: f64,
    /// Bytes of a frame on the link, headers included.
    pub(super) frame_len: Option<u64>,
    pub(super) tree: String,
    pub(super) files: usize,
    pub(super) bytes: u64,
    pub(super) copy: Option<Pace>,
    pub(super) compare: Option<Pace>,
    /// Whether all files compared and the file system was found without fault.
    pub(super) intact: bool,
    pub(super) outage: Option<Witness>,
    pub(super) loss_of_target: Option<Loss>,
    pub(super) host: Traffic,
    pub(super) target: Traffic,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { filesystem, mtu, loss_percent, files, .. } = self;
        let mb = self.bytes as f64 / 1e6;
        writeln!(f, "{filesystem} over MTU {mtu}, {loss_percent} % of the frames lost each way")?;
        writeln!(f, "  tree      {files} files, {mb:.0} MB of {}", self.tree)?;
        for (name, pace) in [("copy", self.copy), ("compare", self.compare)] {
            if let Some(Pace { seconds, mb_per_s }) = pace {
                writeln!(f, "  {name:<8}  {mb_per_s:.0} MB/s ({seconds:.2} s)")?;
            }
        }
        if let Some(outage) = &self.outage {
            write!(f, "  outage    target killed after {:.1} s", outage.killed_after_s)?;
            if let Some(absent) = outage.absent_s {
                write!(f, ", back after {absent:.1} s")?;
            }
            if let Some(left) = outage.time_left_s {
                write!(f, ", `list` counted down from {left:.1} s")?;
            }
            writeln!(f)?;
        }
        if let Some(loss) = &self.loss_of_target {
            let Loss { error, device_error, failed_after_s, disconnect_s } = loss;
            writeln!(f, "  loss      {failed_after_s:.1} s after the kill: {error}")?;
            writeln!(f, "            the device says: {device_error}")?;
            writeln!(f, "            disconnect --force took {disconnect_s:.2} s")?;
        }
        if self.intact {
            writeln!(f, "  intact    every SHA-256 compared equal, {filesystem} check clean")?;
        }
        if let Some(len) = self.frame_len {
            writeln!(f, "  frames    up to {len} bytes")?;
        }
        for (name, traffic) in [("host", self.host), ("target", self.target)] {
            let Traffic { frames_sent, frames_received, retransmitted, cpu_s } = traffic;
            writeln!(
                f,
                "  {name:<8}  {frames_sent} frames sent, {frames_received} received, \
                 {retransmitted} retransmitted, {cpu_s:.2} s CPU"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_are_summed_over_links_and_lives() {
        let mut traffic = Traffic::default();
        let session = json!({
            "channel": { "retransmitted": 3 }, "cpu_s": 0.5,
            "links": [{ "tx_frames": 10, "rx_frames": 20 }, { "tx_frames": 1, "rx_frames": 2 }],
        });
        let target = json!({
            "links": [{ "tx_frames": 5, "rx_frames": 6, "channel": { "retransmitted": 4 } }],
        });
        traffic.add(&session);
        traffic.add(&target);
        assert_eq!((traffic.frames_sent, traffic.frames_received), (16, 28));
        assert_eq!((traffic.retransmitted, traffic.cpu_s), (7, 0.5));
    }
}
