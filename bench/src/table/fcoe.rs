//! Tables of the suite `fcoe`.

use super::{FRAMES, KIOPS, MEAN_US, by_peer, cpu, section, switches, tails};
use crate::job::Job;
use crate::result::Results;

/// All tables of a set; empty if it was not measured.
pub(super) fn set(results: &Results, name: &str, jobs: &[Job]) -> String {
    let mut text = String::new();
    let (one, many): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.depth == 1);
    section(&mut text, "Thousand requests per second", || by_peer(results, name, &many, KIOPS));
    section(&mut text, "Depth 1: mean latency in microseconds", || {
        by_peer(results, name, &one, MEAN_US)
    });
    section(&mut text, "Depth 1: latency of 99 % and of 99.9 %, in microseconds", || {
        tails(results, name, &one)
    });
    section(&mut text, "Frames per request", || by_peer(results, name, jobs, FRAMES));
    section(&mut text, "CPU", || cpu(results, name, jobs));
    section(&mut text, "Voluntary context switches for each request: host, target", || {
        switches(results, name, jobs)
    });
    text
}
