//! The bars: limits for the figures, each computed from the medians of one run.

mod fcoe;
mod keys;
mod links;
mod rdma;
mod scale;
mod udp;

use crate::floor::{Kind, Outcome};
use crate::job::{Job, Pattern};
use crate::plan::{GBIT, Suite};
use crate::result::{Measurement, Metric, Results};

use Pattern::{Randread, Randwrite, Read, Write};

/// The set of most bars.
const MAIN: &str = "mtu-9000";
/// The set in which batching is compared.
const BATCHING: &str = "10g-batching";
const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// The good side of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Good {
    AtLeast,
    AtMost,
    Below,
    Above,
}

/// A bar and its figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) what: String,
    good: Good,
    bar: f64,
    /// `None`: not measured in this run.
    figure: Option<f64>,
}

impl Bar {
    fn new(what: impl Into<String>, figure: Option<f64>, good: Good, bar: f64) -> Self {
        Self { what: what.into(), good, bar, figure }
    }

    /// Whether it held; `None`: not measured.
    pub(crate) fn held(&self) -> Option<bool> {
        self.figure.map(|figure| match self.good {
            Good::AtLeast => figure >= self.bar,
            Good::AtMost => figure <= self.bar,
            Good::Below => figure < self.bar,
            Good::Above => figure > self.bar,
        })
    }

    /// The bar in words.
    pub(crate) fn bar(&self) -> String {
        let sign = match self.good {
            Good::AtLeast => "≥",
            Good::AtMost => "≤",
            Good::Below => "<",
            Good::Above => ">",
        };
        format!("{sign} {}", self.bar)
    }

    /// The figure in words.
    pub(crate) fn figure(&self) -> String {
        self.figure.map_or_else(|| "not measured".to_owned(), |figure| format!("{figure:.2}"))
    }
}

/// All bars.
pub(crate) fn all(results: &Results) -> Vec<Bar> {
    let figures = Figures { results };
    match results.suite {
        Suite::Main => {}
        Suite::Links => return links::all(&figures),
        Suite::Fcoe => return fcoe::all(&figures),
        Suite::Keys => return keys::all(&figures),
        Suite::Rdma => return rdma::all(&figures),
        Suite::Scale => return scale::all(&figures),
    }
    [
        figures.latency(),
        figures.rates(),
        figures.frames(),
        figures.throughput(),
        figures.tsockets(),
        figures.utilization(),
        figures.cpu(),
        udp::all(&figures),
    ]
    .concat()
}

/// Ratios of medians.
pub(crate) struct Figures<'a> {
    pub(crate) results: &'a Results,
}

fn ratio(figure: Option<f64>, to: Option<f64>) -> Option<f64> {
    figure.zip(to).map(|(figure, to)| figure / to)
}

fn small(rw: Pattern, depth: u16) -> Job {
    Job::new(rw, 4 * KIB, depth)
}

impl Figures<'_> {
    fn median(&self, set: &str, peer: &str, job: &Job, metric: Metric) -> Option<f64> {
        self.results.median(self.results.who(set, peer), job, metric)
    }

    /// The ratio of one peer to another in a job of one set.
    pub(crate) fn against(
        &self,
        set: &str,
        peers: [&str; 2],
        job: &Job,
        metric: Metric,
    ) -> Option<f64> {
        let [peer, other] = peers.map(|peer| self.median(set, peer, job, metric));
        ratio(peer, other)
    }

    fn floor(&self, kind: Kind, depth: u16, metric: fn(&Outcome) -> f64) -> Option<f64> {
        self.results.floor(MAIN, kind, depth, metric).map(|spread| spread.median)
    }

    fn latency(&self) -> Vec<Bar> {
        let mean: Metric = Measurement::mean_ns;
        let exchange = self.floor(Kind::Exchange, 1, |outcome| outcome.mean_ns);
        let mut bars = Vec::new();
        for job in [Randread, Randwrite].map(|rw| small(rw, 1)) {
            let ours = self.median(MAIN, "tyche", &job, mean);
            let what = format!("{job}: mean latency / bare exchange");
            bars.push(Bar::new(what, ratio(ours, exchange), Good::AtMost, 1.4));
            let figure = self.against(MAIN, ["nbd", "tyche"], &job, mean);
            bars.push(Bar::new(
                format!("{job}: mean latency, NBD / Tyche"),
                figure,
                Good::AtLeast,
                4.0,
            ));
            let figure = self.against("no-spin", ["tyche", "nbd"], &job, mean);
            let what = format!("{job}, no spinning: mean latency, Tyche / NBD");
            bars.push(Bar::new(what, figure, Good::AtMost, 1.0));
        }
        bars
    }

    fn rates(&self) -> Vec<Bar> {
        let iops: Metric = Measurement::iops;
        let mut bars = Vec::new();
        for (depth, times_nbd) in [(32, 3.5), (128, 4.5)] {
            let exchange = self.floor(Kind::Exchange, depth, |outcome| outcome.per_s);
            for job in [Randread, Randwrite].map(|rw| small(rw, depth)) {
                let figure = self.against(MAIN, ["tyche", "nbd"], &job, iops);
                let what = format!("{job}: IOPS, Tyche / NBD");
                bars.push(Bar::new(what, figure, Good::AtLeast, times_nbd));
                let ours = self.median(MAIN, "tyche", &job, iops);
                let what = format!("{job}: IOPS / bare exchange");
                bars.push(Bar::new(what, ratio(ours, exchange), Good::AtLeast, 0.75));
            }
        }
        for job in [Randread, Randwrite].map(|rw| small(rw, 128)) {
            let figure = self.against(BATCHING, ["tyche", "tyche-batch-none"], &job, iops);
            let what = format!("{job} at 10 Gbit/s: IOPS, batching / none");
            bars.push(Bar::new(what, figure, Good::AtLeast, 1.5));
            let longest = self.median("mtu-65535", "tyche", &job, iops);
            let figure = ratio(longest, self.median(MAIN, "tyche", &job, iops));
            let what = format!("{job}: IOPS, MTU 65535 / 9000");
            bars.push(Bar::new(what, figure, Good::AtLeast, 1.5));
        }
        bars
    }

    fn frames(&self) -> Vec<Bar> {
        let jobs = [Randread, Randwrite].map(|rw| small(rw, 128));
        let bar = |job: Job| {
            let figure = self.median(MAIN, "tyche", &job, Measurement::frames_per_io);
            Bar::new(format!("{job}: frames per request"), figure, Good::AtMost, 0.7)
        };
        jobs.map(bar).into()
    }

    fn throughput(&self) -> Vec<Bar> {
        let bytes: Metric = Measurement::bytes_per_s;
        let stream = self.floor(Kind::Stream, 1, |outcome| outcome.bytes_per_s);
        let mut bars = Vec::new();
        for size in [64 * KIB, MIB] {
            for job in [Read, Write].map(|rw| Job::new(rw, size, 16)) {
                let ours = self.median(MAIN, "tyche", &job, bytes);
                let what = format!("{job}: bytes / raw frame stream");
                bars.push(Bar::new(what, ratio(ours, stream), Good::AtLeast, 0.85));
                let figure = self.against(MAIN, ["tyche", "nbd"], &job, bytes);
                let what = format!("{job}: bytes, Tyche / NBD with offloads");
                bars.push(Bar::new(what, figure, Good::AtLeast, 1.2));
            }
        }
        bars
    }

    /// The worst of all 4 KiB jobs counts, and in each the better link.
    fn tsockets(&self) -> Vec<Bar> {
        let mut worst: Option<(f64, String)> = None;
        for set in [MAIN, "no-spin", "mtu-1500", "mtu-65535"] {
            for job in self.results.jobs(set).iter().filter(|job| job.block_bytes == 4 * KIB) {
                let of = |peer| self.against(set, [peer, "tsockets"], job, Measurement::iops);
                let best = ["tyche", "udp"].into_iter().filter_map(of).reduce(f64::max);
                let Some(figure) = best else { continue };
                if worst.as_ref().is_none_or(|(worst, _)| figure < *worst) {
                    worst = Some((figure, format!(" ({set} {job})")));
                }
            }
        }
        let (figure, job) = worst.unzip();
        let job = job.unwrap_or_default();
        let what = format!("4 KiB: IOPS, Tyche's better link / TSockets, worst job{job}");
        vec![Bar::new(what, figure, Good::Above, 1.0)]
    }

    /// The best depth counts: the bar is about the most that two cores carry over a link that they
    /// cannot fill without batching.
    fn utilization(&self) -> Vec<Bar> {
        let set = BATCHING;
        let of = |rw: Pattern| {
            let jobs = self.results.jobs(set);
            let jobs = jobs.iter().filter(|job| job.rw == rw);
            let figures = jobs.filter_map(|job| {
                let figure = self.median(set, "tyche", job, Measurement::utilization)?;
                Some((figure, job.to_string()))
            });
            let (figure, job) = figures.max_by(|a, b| a.0.total_cmp(&b.0)).unzip();
            let job = job.unwrap_or_else(|| format!("{}-4k", rw.fio()));
            let what = format!("{job} at {} Gbit/s: payload / capacity", 10 * GBIT / 1_000_000_000);
            Bar::new(what, figure, Good::AtLeast, 0.91)
        };
        [Randread, Randwrite].map(of).into()
    }

    fn cpu(&self) -> Vec<Bar> {
        let metrics: [(&str, Metric); 2] = [
            ("host", Measurement::host_cpu_per_million),
            ("target", Measurement::target_cpu_per_million),
        ];
        let mut bars = Vec::new();
        for job in [Randread, Randwrite].map(|rw| small(rw, 32)) {
            for (side, metric) in metrics {
                let figure = self.against(MAIN, ["tyche", "nbd"], &job, metric);
                let what = format!("{job}: CPU time per request at the {side}, Tyche / NBD");
                bars.push(Bar::new(what, figure, Good::Below, 1.0));
            }
        }
        bars
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing;

    #[test]
    fn bars_are_computed_from_medians() {
        let mut results = testing::empty();
        for (turn, iops) in [(1, 90.0), (2, 360.0), (3, 400.0)] {
            results.measurements.push(testing::measurement(MAIN, "tyche", turn, iops));
            results.measurements.push(testing::measurement(MAIN, "nbd", turn, 100.0));
        }
        let bars = all(&results);
        let find = |what: &str| bars.iter().find(|bar| bar.what.contains(what)).unwrap();
        let bar = find("randread-4k-32: IOPS, Tyche / NBD");
        assert_eq!((bar.figure(), bar.bar()), ("3.60".to_owned(), "≥ 3.5".to_owned()));
        assert_eq!(bar.held(), Some(true));
        let bar = find("randwrite-4k-32: IOPS, Tyche / NBD");
        assert_eq!((bar.figure(), bar.held()), ("not measured".to_owned(), None));
    }

    #[test]
    fn a_tie_with_tsockets_is_not_ahead() {
        let mut results = testing::empty();
        for peer in ["tyche", "tsockets"] {
            results.measurements.push(testing::measurement(MAIN, peer, 1, 100.0));
        }
        let bars = all(&results);
        let bar = bars.iter().find(|bar| bar.what.contains("TSockets")).unwrap();
        assert!(bar.what.contains("randread-4k-32") && bar.held() == Some(false));
    }
}
