//! The final report.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::load::Done;
use super::simulator::Seeds;

/// The report; its JSON form is printed.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The seed with which the run can be repeated.
    pub(super) start: u64,
    pub(super) seeds: Option<Seeds>,
    pub(super) links: Option<Links>,
    /// Why the run ended early, if it did.
    pub(super) failure: Option<String>,
}

/// The results on real interfaces.
#[derive(Debug, Default, Serialize)]
pub(super) struct Links {
    /// Incidents by kind.
    pub(super) incidents: BTreeMap<&'static str, Kind>,
    pub(super) load: Done,
}

/// The results for one kind of incidents.
#[derive(Debug, Default, Serialize)]
pub(super) struct Kind {
    pub(super) count: u64,
    /// The longest time in which requests waited and none got done, in milliseconds.
    pub(super) longest_stall_ms: u64,
}

impl Kind {
    /// Counts an incident, with the longest stall during it.
    pub(super) fn note(&mut self, stall: Duration) {
        self.count += 1;
        self.longest_stall_ms = self.longest_stall_ms.max(stall.as_millis() as u64);
    }
}

impl Report {
    pub(super) fn is_well(&self) -> bool {
        let is_clean = |seeds: &Seeds| seeds.violations.is_empty();
        self.failure.is_none() && self.seeds.as_ref().is_none_or(is_clean)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "start {}", self.start)?;
        if let Some(seeds) = &self.seeds {
            let [mixed, links] = seeds.first;
            let (run, failed) = (seeds.run, seeds.violations.len());
            writeln!(f, "simulator: {run} seeds from {mixed} and {links} on, {failed} failed")?;
            for violation in &seeds.violations {
                writeln!(f, "  {}: {}", violation.command, violation.what)?;
            }
        }
        if let Some(Links { incidents, load }) = &self.links {
            let count: u64 = incidents.values().map(|it| it.count).sum();
            let longest = incidents.values().map(|it| it.longest_stall_ms).max().unwrap_or(0);
            let Done { rounds, requests, slowest_ms } = load;
            writeln!(f, "interfaces: {count} incidents, {rounds} rounds of fio with verification")?;
            for (kind, Kind { count, longest_stall_ms }) in incidents {
                writeln!(f, "  {kind}: {count}, longest stall {longest_stall_ms} ms")?;
            }
            writeln!(f, "  {requests} requests, the slowest took {slowest_ms} ms")?;
            writeln!(f, "  longest stall: {longest} ms")?;
        }
        match &self.failure {
            Some(failure) => writeln!(f, "FAILED: {failure}"),
            None if self.is_well() => writeln!(f, "all well"),
            None => writeln!(f, "FAILED: seeds of the simulator"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stall_is_stated() {
        let mut links = Links::default();
        for (kind, stall) in [("cut", 3), ("kill", 900), ("cut", 41), ("cut", 7)] {
            links.incidents.entry(kind).or_default().note(Duration::from_millis(stall));
        }
        let mut report = Report { start: 5, seeds: None, links: Some(links), failure: None };
        let said = report.to_string();
        for part in
            ["start 5\n", "cut: 3, longest stall 41 ms", "longest stall: 900 ms", "all well"]
        {
            assert!(said.contains(part), "{said}");
        }
        report.failure = Some("fio: error 84".to_owned());
        assert!(!report.is_well());
        assert!(report.to_string().contains("FAILED: fio: error 84"));
    }
}
