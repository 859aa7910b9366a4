//! `tyche-lab floor`: load on an export as with `tyche bench`, and the floor under it.

mod exchange;

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tyche_cli::bench::{Bench, BenchArgs, Measurement};
use tyche_cli::report::BenchReport;
use tyche_console::error::Result;
use tyche_console::output::{Format, show};

use self::exchange::{Measured, Probe};

/// Shortest and longest time of one measurement of the floor.
const TIMES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

/// Measure an export, and then the same links without requests: bare frames, exchanged with the
/// target as the requests and their data would be. Print how close to that the result is.
///
/// The options are those of `tyche bench`. All but `read` and `randread` OVERWRITE THE EXPORT'S
/// CONTENT.
#[derive(Args, Debug)]
pub(crate) struct FloorArgs {
    #[command(flatten)]
    bench: BenchArgs,
}

impl FloorArgs {
    pub(crate) fn output(&self) -> Format {
        self.bench.output
    }
}

pub(crate) fn run(args: &FloorArgs) -> Result<()> {
    let mut bench = Bench::start(&args.bench, |_| {})?;
    let result = bench.load()?;
    let floor = Floor::find(&mut bench)?;
    let reached = Reached::by(&result);
    let output = || Output { bench: result.report(), floor: floor.report(reached) };
    show(args.output(), output, || result.text() + &floor.text(reached))
}

/// The rates of requests, to compare with the floor.
#[derive(Clone, Copy, Debug)]
struct Reached {
    /// Mean latency, where requests are alone.
    round_trip_ns: Option<f64>,
    iops: f64,
    bytes_per_s: f64,
}

impl Reached {
    fn by(result: &Measurement) -> Self {
        let (iops, bytes_per_s) = (result.iops(), result.bytes_per_s());
        Self { round_trip_ns: result.round_trip_ns(), iops, bytes_per_s }
    }
}

/// The output of the command.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "tyche.floor/1")]
struct Output {
    #[serde(flatten)]
    bench: BenchReport,
    floor: FloorReport,
}

/// The floor, and how close to it the result is.
#[derive(Serialize)]
struct FloorReport {
    #[serde(flatten)]
    floor: Floor,
    latency_ratio: Option<f64>,
    iops_ratio: f64,
    bytes_ratio: f64,
}

/// The rates of bare frames on the links of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Floor {
    round_trip_ns: f64,
    /// Requests a second, by the bytes of their data.
    exchange_per_s: f64,
    stream_bytes_per_s: f64,
}

impl Floor {
    /// Measures bare frames on the jobs' links. The best of several turns counts: a pause caused by
    /// other work says nothing about the machine.
    fn find(bench: &mut Bench) -> Result<Self> {
        let [least, most] = TIMES;
        let time = (bench.time() / 10).clamp(least, most);
        let shape = bench.shape();
        let mut measure = |probe| {
            let jobs = if probe == Probe::RoundTrip { 1 } else { bench.jobs() };
            bench
                .each(jobs, move |host, shared| exchange::measure(host, probe, shape, time, shared))
        };
        let none = Self { round_trip_ns: f64::MAX, exchange_per_s: 0.0, stream_bytes_per_s: 0.0 };
        Probe::exchanges(shape.depth).into_iter().try_fold(none, |floor, exchange| {
            let round_trip = round_ns(&measure(Probe::RoundTrip)?);
            let exchange = bytes_per_s(&measure(exchange)?) / f64::from(shape.len);
            let stream = bytes_per_s(&measure(Probe::Stream)?);
            Ok(Self {
                round_trip_ns: floor.round_trip_ns.min(round_trip),
                exchange_per_s: floor.exchange_per_s.max(exchange),
                stream_bytes_per_s: floor.stream_bytes_per_s.max(stream),
            })
        })
    }

    /// How many times the bare round trip a request takes, where requests are alone.
    fn latency_ratio(&self, reached: Reached) -> Option<f64> {
        reached.round_trip_ns.map(|latency| latency / self.round_trip_ns)
    }

    fn iops_ratio(&self, reached: Reached) -> f64 {
        reached.iops / self.exchange_per_s
    }

    fn bytes_ratio(&self, reached: Reached) -> f64 {
        reached.bytes_per_s / self.stream_bytes_per_s
    }

    fn report(self, reached: Reached) -> FloorReport {
        FloorReport {
            floor: self,
            latency_ratio: self.latency_ratio(reached),
            iops_ratio: self.iops_ratio(reached),
            bytes_ratio: self.bytes_ratio(reached),
        }
    }

    fn text(&self, reached: Reached) -> String {
        let ratio = self.latency_ratio(reached);
        format!(
            "floor: {:.1} us round trip{}; {:.0} exchanges/s, of which {:.0} % are reached; \
             {:.1} MB/s stream, {:.0} %\n",
            self.round_trip_ns / 1e3,
            ratio.map_or(String::new(), |it| format!(", a request takes {it:.2} times that")),
            self.exchange_per_s,
            self.iops_ratio(reached) * 100.0,
            self.stream_bytes_per_s / 1e6,
            self.bytes_ratio(reached) * 100.0,
        )
    }
}

/// Bytes a second of all jobs together.
fn bytes_per_s(measured: &[Measured]) -> f64 {
    measured.iter().map(|it| it.bytes as f64 / it.elapsed.as_secs_f64()).sum()
}

/// Average time of a round, in nanoseconds.
fn round_ns(measured: &[Measured]) -> f64 {
    let busy: Duration = measured.iter().map(|it| it.busy).sum();
    let rounds: u64 = measured.iter().map(|it| it.rounds).sum();
    busy.as_nanos() as f64 / rounds as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_compared_where_requests_are_alone() {
        let floor =
            Floor { round_trip_ns: 1000.0, exchange_per_s: 100.0, stream_bytes_per_s: 409_600.0 };
        let several = Reached { round_trip_ns: None, iops: 40.0, bytes_per_s: 163_840.0 };
        let report = floor.report(several);
        assert_eq!((report.iops_ratio, report.bytes_ratio), (0.4, 0.4));
        assert!(report.latency_ratio.is_none() && !floor.text(several).contains("times that"));
        let alone = Reached { round_trip_ns: Some(1500.0), ..several };
        assert_eq!(floor.report(alone).latency_ratio, Some(1.5));
        let text = floor.text(alone);
        assert!(text.contains("a request takes 1.50 times that"), "{text}");
    }
}
