//! Stages of requests: a row for each, a column for each set-up.

use super::{NOTHING, Table, head};
use crate::job::Job;
use crate::result::{Results, Spread};
use crate::stages::StagedMeasurement;

/// Tables of the means, one for each job.
pub(super) fn means(results: &Results, set: &str) -> String {
    results.staged_jobs(set).iter().map(|job| of_job(results, set, job)).collect()
}

fn of_job(results: &Results, set: &str, job: &Job) -> String {
    let peers = results.staged_peers(set);
    let turns: Vec<_> = peers.iter().map(|peer| results.staged(set, peer, job)).collect();
    let Some(first) = turns.iter().flatten().next() else { return String::new() };
    let columns: Vec<_> = peers.iter().map(String::as_str).collect();
    let mut table = Table::new(&head(&job.to_string(), &columns, &[]));
    let mut row = |name: &str, value: &dyn Fn(&StagedMeasurement) -> Option<f64>| {
        let cell = |turns: &Vec<&StagedMeasurement>| {
            let spread = Spread::of(turns.iter().filter_map(|turn| value(turn)));
            spread.map_or_else(|| NOTHING.to_owned(), |it| format!("{:.2}", it.median / 1e3))
        };
        let cells = turns.iter().map(cell);
        table.row(&[name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
    };
    for stage in &first.stages {
        row(&stage.name, &|it| it.mean(&stage.name));
    }
    row("**all**", &|it| Some(it.whole()));
    table.text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Pattern;
    use crate::result::testing;

    #[test]
    fn set_ups_are_columns_and_stages_are_rows() {
        let mut results = testing::empty();
        for (peer, spin_us, wake) in [("tyche-no-spin", 0, 20_000.0), ("tyche", 1000, 500.0)] {
            results.stages.push(testing::staged("stages", peer, spin_us, wake));
        }
        let text = means(&results, "stages");
        assert!(text.starts_with("| randread-4k-1 | tyche | tyche-no-spin |\n"), "{text}");
        assert!(text.contains("| wake | 0.50 | 20.00 |\n"), "{text}");
        assert!(text.contains("| **all** | 1.50 | 21.00 |\n"), "{text}");
        assert!(means(&results, "mtu-9000").is_empty());
        assert_eq!(results.staged_jobs("stages"), [Job::new(Pattern::Randread, 4096, 1)]);
    }
}
