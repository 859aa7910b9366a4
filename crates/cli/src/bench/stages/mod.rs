//! `--stages`: requests' latency by stage, as a table, as JSON, and as a bar.

mod plot;

use tyche_engine::{Histogram, Stage, StageTimes};

pub(super) use self::plot::svg;
use crate::output::Table;
use crate::report::{BenchStages, StageRow};

/// Times of requests by stage.
#[derive(Clone, Debug)]
pub(super) struct Breakdown(Box<[Histogram]>);

/// One stage of all requests; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Row {
    stage: Stage,
    mean: f64,
    p50: u64,
    p99: u64,
    /// Share of the whole, 0 to 1.
    share: f64,
}

impl Breakdown {
    pub(super) fn new() -> Self {
        Self(Stage::ALL.iter().map(|_| Histogram::new()).collect())
    }

    /// Adds the times of one request.
    pub(super) fn add(&mut self, times: &StageTimes) {
        for (stage, histogram) in Stage::ALL.into_iter().zip(&mut self.0) {
            histogram.add(times.nanoseconds(stage));
        }
    }

    /// Adds all requests that another breakdown has counted.
    pub(super) fn merge(&mut self, other: &Self) {
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
        Stage::ALL.into_iter().zip(&self.0).map(move |(stage, histogram)| Row {
            stage,
            mean: histogram.mean(),
            p50: histogram.quantile(0.5),
            p99: histogram.quantile(0.99),
            share: histogram.mean() / whole,
        })
    }

    /// The stages for JSON output, in their order.
    pub(super) fn report(&self) -> BenchStages {
        let row = |Row { stage, mean, p50, p99, share }| StageRow {
            stage: stage.name().to_owned(),
            mean,
            p50,
            p99,
            share,
        };
        let rows = self.rows().map(row).collect();
        BenchStages { requests: self.0[0].count(), mean: self.mean(), rows }
    }

    /// The stages as text.
    pub(super) fn text(&self) -> String {
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
        "wire: what nobody measures, in halves; with both senders' system calls\n".to_owned();
    for (wake, who) in [(Stage::Wake, "this host's"), (Stage::TargetWake, "the target's")] {
        if nothing.contains(&wake) {
            note += &format!("{}: {who} link can't tell; it is the wire's\n", wake.name());
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
        let breakdown = Breakdown::new();
        assert!(breakdown.text().contains("does not tell"));
        assert_eq!(breakdown.report().requests, 0);
        assert!(breakdown.rows().all(|row| row.share == 0.0));
    }

    #[test]
    fn there_is_a_row_for_each_stage_and_one_for_all() {
        let mut breakdown = Breakdown::new();
        breakdown.add(&StageTimes::default());
        let mut other = Breakdown::new();
        other.add(&StageTimes::default());
        breakdown.merge(&other);
        assert_eq!(breakdown.report().requests, 2);
        let text = breakdown.text();
        let rows = table_of(&text);
        let names: Vec<_> = rows[1..=Stage::ALL.len()].iter().map(|row| row[0]).collect();
        assert_eq!(names, Stage::ALL.map(Stage::name));
        assert_eq!(rows[Stage::ALL.len() + 1][0], "all");
        // No request ever waited to be read: the wake-up was not measured.
        assert!(text.contains("\nwake: this host's link can't tell"), "{text}");
        assert!(text.contains("\ntarget wake: the target's link can't tell"), "{text}");
    }
}
