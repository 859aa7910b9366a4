//! The result of a measurement: numbers for programs, and a line or two for people.

use clap::ValueEnum;
use tyche_engine::Histogram;
use tyche_proto::NodeCounts;

use super::load::Tally;
use super::shape::Shape;
use crate::shared::report::{BenchReport, Table, TailFigures};

/// The measurements of all jobs.
pub struct Measurement {
    pub(super) shape: Shape,
    pub(super) tallies: Vec<Tally>,
}

impl Measurement {
    /// Requests a second.
    pub fn iops(&self) -> f64 {
        let rate = |it: &Tally| it.latencies_ns.count() as f64 / it.elapsed.as_secs_f64();
        self.tallies.iter().map(rate).sum()
    }

    /// Bytes of requests a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.iops() * f64::from(self.shape.len)
    }

    /// Mean latency in nanoseconds, if it is that of a round trip: with several requests in flight
    /// it includes queueing.
    pub fn round_trip_ns(&self) -> Option<f64> {
        let alone = self.tallies.len() == 1 && self.shape.depth == 1;
        alone.then(|| self.latency().mean())
    }

    fn latency(&self) -> Histogram {
        let mut latency = Histogram::new();
        self.tallies.iter().for_each(|tally| latency.merge(&tally.latencies_ns));
        latency
    }

    fn sum(&self, part: impl Fn(&Tally) -> u64) -> u64 {
        self.tallies.iter().map(part).sum()
    }

    fn frames_per_io(&self) -> f64 {
        self.sum(|it| it.frames) as f64 / self.sum(|it| it.latencies_ns.count()).max(1) as f64
    }

    fn cpu_s(&self) -> f64 {
        self.tallies.iter().map(|it| it.cpu.as_secs_f64()).sum()
    }

    fn nodes(&self) -> NodeCounts {
        let mut nodes = NodeCounts::default();
        self.tallies.iter().for_each(|it| nodes += it.nodes);
        nodes
    }

    /// The result of all jobs, for JSON output.
    pub fn report(&self) -> BenchReport {
        let (shape, latency) = (self.shape, self.latency());
        let pattern = shape.pattern.to_possible_value();
        BenchReport {
            rw: pattern.map_or_else(String::new, |it| it.get_name().to_owned()),
            bs: shape.len,
            iodepth: shape.depth,
            iops: self.iops(),
            bytes_per_s: self.bytes_per_s(),
            lat_ns: TailFigures {
                mean: latency.mean(),
                p50: latency.quantile(0.5),
                p99: latency.quantile(0.99),
                p999: latency.quantile(0.999),
            },
            cpu_s: self.cpu_s(),
            frames_per_io: self.frames_per_io(),
            retransmitted: self.sum(|it| it.retransmitted),
            nodes: Table(self.nodes()),
            runtime_s: self.tallies.iter().map(|it| it.elapsed.as_secs_f64()).fold(0.0, f64::max),
            jobs: self.tallies.len() as u64,
        }
    }

    /// The result as text.
    pub fn text(&self) -> String {
        let latency = self.latency();
        let us = |quantile| latency.quantile(quantile) as f64 / 1e3;
        let mut text = format!(
            "{:.0} IOPS, {:.1} MB/s; latency {:.1} us mean, {:.1} p50, {:.1} p99, {:.1} p99.9; \
             {:.2} frames/IO, {:.2} s CPU, {} retransmitted\n",
            self.iops(),
            self.bytes_per_s() / 1e6,
            latency.mean() / 1e3,
            us(0.5),
            us(0.99),
            us(0.999),
            self.frames_per_io(),
            self.cpu_s(),
            self.sum(|it| it.retransmitted),
        );
        let NodeCounts { stayed, crossed } = self.nodes();
        if stayed + crossed > 0 {
            text +=
                &format!("placement: {stayed} requests stayed on their node, {crossed} crossed\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::shape::Pattern;
    use super::*;

    fn tally(count: u64, latency_ns: u64) -> Tally {
        let mut latencies_ns = Histogram::new();
        (0..count).for_each(|_| latencies_ns.add(latency_ns));
        Tally {
            latencies_ns,
            elapsed: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
            frames: 3 * count,
            retransmitted: 1,
            nodes: NodeCounts::default(),
        }
    }

    fn measured(tallies: &[Tally]) -> Measurement {
        let shape = Shape::new(Pattern::Randread, 4096, 1, 0);
        Measurement { shape, tallies: tallies.to_vec() }
    }

    #[test]
    fn jobs_add_up() {
        let both = measured(&[tally(20, 1000), tally(60, 3000)]);
        let result = both.report();
        assert_eq!((result.iops, result.jobs), (40.0, 2));
        assert_eq!(result.bytes_per_s, 40.0 * 4096.0);
        assert_eq!(result.lat_ns.mean, 2500.0);
        assert_eq!(result.frames_per_io, 3.0);
        assert_eq!((result.cpu_s, result.retransmitted), (2.0, 2));
        assert_eq!(both.round_trip_ns(), None, "two at a time");
        assert_eq!(measured(&[tally(20, 1500)]).round_trip_ns(), Some(1500.0));
    }

    #[test]
    fn crossing_requests_are_told_where_anybody_looks() {
        let nodes = NodeCounts { stayed: 7, crossed: 3 };
        let both = [Tally { nodes, ..tally(20, 1000) }, Tally { nodes, ..tally(20, 1000) }];
        let told = measured(&both).text();
        assert!(told.contains("14 requests stayed on their node, 6 crossed"), "{told}");
        let told = measured(&[tally(20, 1000)]).text();
        assert!(!told.contains("placement") && told.lines().count() == 1, "{told}");
    }
}
