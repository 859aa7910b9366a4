//! Requests' latency by stage, as a table, as JSON, and as a bar.

mod plot;

use serde::{Serialize, Serializer};
use tyche_console::output::Table;
use tyche_engine::Histogram;
use tyche_native::{Stage, StageTimes};

pub(crate) use self::plot::svg;

/// Times of requests by stage.
#[derive(Debug)]
pub(crate) struct Breakdown(Box<[Histogram]>);

/// The stages for JSON output, in their order; times in nanoseconds.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Requests whose stages were measured; 0 if the target does not report its own.
    requests: u64,
    /// Mean of all stages together.
    mean: f64,
    rows: Vec<Row>,
}

/// One stage of all requests; times in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    #[serde(serialize_with = "name")]
    stage: Stage,
    mean: f64,
    p50: u64,
    p99: u64,
    /// Share of the whole, 0 to 1.
    share: f64,
}

fn name<S: Serializer>(stage: &Stage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(stage.name())
}

impl Default for Breakdown {
    fn default() -> Self {
        Self(Stage::ALL.iter().map(|_| Histogram::new()).collect())
    }
}

impl Breakdown {
    /// Adds the times of one request.
    pub(crate) fn add(&mut self, times: &StageTimes) {
        for (&stage, histogram) in Stage::ALL.iter().zip(&mut self.0) {
            histogram.add(times.nanoseconds(stage));
        }
    }

    /// Adds all requests that another breakdown has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (histogram, other) in self.0.iter_mut().zip(&other.0) {
            histogram.merge(other);
        }
    }

    /// Average time of a request in all stages, in nanoseconds.
    fn mean(&self) -> f64 {
        self.0.iter().map(Histogram::mean).sum()
    }

    /// Whether no target reported its times.
    fn is_empty(&self) -> bool {
        self.0[0].count() == 0
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        // Without reported times the mean is 0: avoids a division by zero.
        let whole = self.mean().max(f64::MIN_POSITIVE);
        Stage::ALL.iter().zip(&self.0).map(move |(&stage, histogram)| Row {
            stage,
            mean: histogram.mean(),
            p50: histogram.quantile(0.5),
            p99: histogram.quantile(0.99),
            share: histogram.mean() / whole,
        })
    }

    pub(crate) fn report(&self) -> Report {
        Report { requests: self.0[0].count(), mean: self.mean(), rows: self.rows().collect() }
    }

    /// The stages as text.
    pub(crate) fn text(&self) -> String {
        if self.is_empty() {
            return "stages: the target does not tell where the time goes\n".to_owned();
        }
        let us = |nanoseconds: f64| format!("{:8.2}", nanoseconds / 1e3);
        let percent = |share: f64| format!("{:5.1}", share * 100.0);
        let mut table = Table::new(["stage", "mean us", "  p50 us", "  p99 us", "    %"]);
        for Row { stage, mean, p50, p99, share } in self.rows() {
            let name = stage.name().to_owned();
            table.row([name, us(mean), us(p50 as f64), us(p99 as f64), percent(share)]);
        }
        table.row(["all".to_owned(), us(self.mean()), String::new(), String::new(), percent(1.0)]);
        let unknown: Vec<_> = self.rows().filter(|row| row.p99 == 0).map(|row| row.stage).collect();
        format!("{table}{}", note(&unknown))
    }
}

/// The notes below the table.
fn note(nothing: &[Stage]) -> String {
    let mut note =
        "wire: the unmeasured rest, half each way; with both senders' system calls\n".to_owned();
    for (wake, who) in [(Stage::Wake, "this host's"), (Stage::TargetWake, "the target's")] {
        if nothing.contains(&wake) {
            note +=
                &format!("{}: {who} link can't tell; it is part of the wire's time\n", wake.name());
        }
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_of(text: &str) -> Vec<Vec<&str>> {
        text.lines().map(|line| line.split("  ").filter(|it| !it.is_empty()).collect()).collect()
    }

    #[test]
    fn a_target_that_tells_nothing_is_named() {
        let breakdown = Breakdown::default();
        assert!(breakdown.text().contains("does not tell"));
        assert_eq!(breakdown.report().requests, 0);
        assert!(breakdown.rows().all(|row| row.share == 0.0));
    }

    #[test]
    fn there_is_a_row_for_each_stage_and_one_for_all() {
        let mut breakdown = Breakdown::default();
        breakdown.add(&StageTimes::default());
        let mut other = Breakdown::default();
        other.add(&StageTimes::default());
        breakdown.merge(&other);
        assert_eq!(breakdown.report().requests, 2);
        let text = breakdown.text();
        let rows = table_of(&text);
        let names: Vec<_> = rows[1..=Stage::ALL.len()].iter().map(|row| row[0]).collect();
        assert!(names.into_iter().eq(Stage::ALL.iter().map(|stage| stage.name())));
        assert_eq!(rows[Stage::ALL.len() + 1][0], "all");
        // No request ever waited to be read: the wake-up was not measured.
        assert!(text.contains("\nwake: this host's link can't tell"), "{text}");
        assert!(text.contains("\ntarget wake: the target's link can't tell"), "{text}");
    }
}
