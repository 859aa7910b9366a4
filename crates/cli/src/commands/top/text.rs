//! The figures as lines, for pipes, logs and `--count`.

use crate::output::Table;
use crate::shared::report::{LinkRates, TopReport};

use super::columns::{Column, LINKS, SERVED, SESSIONS, served};

/// All tables that have a row, one below the other.
pub(super) fn text(report: &TopReport) -> String {
    let of_sessions = report.sessions.iter().map(|it| (&it.export, &it.links));
    let of_targets = report.targets.iter().map(|it| (&it.target, &it.links));
    let links = of_sessions.chain(of_targets).flat_map(|(owner, links)| {
        links.iter().map(move |it| LinkRates { link: format!("{owner} {}", it.link), ..it.clone() })
    });
    let links: Vec<_> = links.collect();
    let problems = report.sessions.iter().filter_map(|it| {
        Some(format!("{} ({}): {}\n", it.export, it.device, it.problem.as_ref()?))
    });
    let silent = report
        .targets
        .iter()
        .filter_map(|it| Some(format!("target {}: {}\n", it.target, it.problem.as_ref()?)));
    let mut parts = vec![
        table(SESSIONS, &report.sessions),
        table(LINKS, &links),
        table(SERVED, &served(&report.targets, true)),
        problems.chain(silent).collect(),
    ];
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() { "no session, and no target\n".to_owned() } else { parts.join("\n") }
}

/// A table of these rows; empty without one.
fn table<T, const N: usize>(columns: &[Column<T>; N], rows: &[T]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(columns.each_ref().map(|column| column.title));
    for row in rows {
        table.row(columns.each_ref().map(|column| column.text(row)));
    }
    table.to_string()
}
