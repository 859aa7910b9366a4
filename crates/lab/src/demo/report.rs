//! The summary: the work, its speed and its cost.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::outage::{Loss, Witness};
use super::traffic::{LinkTraffic, Traffic};

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

/// The result of a demo.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    pub(super) filesystem: &'static str,
    /// Number of cables.
    pub(super) links: u8,
    pub(super) mtu: u32,
    /// Lost frames each way, in percent.
    pub(super) loss_percent: f64,
    /// Bytes of a frame on the link, headers included.
    pub(super) frame_len: Option<u64>,
    pub(super) tree: String,
    pub(super) files: usize,
    pub(super) bytes: u64,
    pub(super) copy: Option<Pace>,
    pub(super) compare: Option<Pace>,
    /// Whether all files compared equal and the file system check found no fault.
    pub(super) intact: bool,
    pub(super) outages: Vec<Witness>,
    pub(super) loss_of_target: Option<Loss>,
    pub(super) host: Traffic,
    pub(super) target: Traffic,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { filesystem, links, mtu, loss_percent, files, .. } = self;
        let mb = self.bytes as f64 / 1e6;
        let over = if *links == 1 { String::new() } else { format!("{links} links with ") };
        let lost = format!("{loss_percent} % of the frames lost each way");
        writeln!(f, "{filesystem} over {over}MTU {mtu}, {lost}")?;
        writeln!(f, "  tree      {files} files, {mb:.0} MB of {}", self.tree)?;
        for (name, pace) in [("copy", self.copy), ("compare", self.compare)] {
            if let Some(Pace { seconds, mb_per_s }) = pace {
                writeln!(f, "  {name:<8}  {mb_per_s:.0} MB/s ({seconds:.2} s)")?;
            }
        }
        self.outages.iter().try_for_each(|outage| write_outage(f, outage))?;
        if let [_, _, ..] = *self.outages {
            let within = self.outages.iter().filter(|outage| outage.within_copy).count();
            let total = self.outages.len();
            writeln!(f, "  outages   {within} of {total} kills fell into the copy")?;
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
        for (name, traffic) in [("host", &self.host), ("target", &self.target)] {
            let Traffic { frames_sent, frames_received, retransmitted, cpu_s, links } = traffic;
            writeln!(
                f,
                "  {name:<8}  {frames_sent} frames sent, {frames_received} received, \
                 {retransmitted} retransmitted, {cpu_s:.2} s CPU"
            )?;
            for link in links.iter().filter(|_| links.len() > 1) {
                let LinkTraffic { interface, frames_sent, frames_received } = link;
                writeln!(
                    f,
                    "            {interface}: {frames_sent} sent, {frames_received} received"
                )?;
            }
        }
        Ok(())
    }
}

fn write_outage(f: &mut fmt::Formatter<'_>, outage: &Witness) -> fmt::Result {
    let Witness { killed_after_s, copied_percent, .. } = outage;
    write!(
        f,
        "  outage    target killed after {killed_after_s:.1} s, {copied_percent:.0} % copied"
    )?;
    if let (Some(absent), Some(live)) = (outage.absent_s, outage.live_after_s) {
        let waiting = outage.waiting.unwrap_or_default();
        write!(f, ", back after {absent:.1} s, live after {live:.1} s; {waiting} requests waited")?;
    }
    if let Some(left) = outage.time_left_s {
        write!(f, ", `list` counted down from {left:.1} s")?;
    }
    writeln!(f)
}
