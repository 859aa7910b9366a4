//! The metrics of this machine as text.

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

use super::definitions::{BUILD_INFO, LOOK};
use super::families::{Families, Labels};
use super::looks::Look;
use super::{sessions, targets};
use crate::shared::error::{Code, Context, Result};

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As every Prometheus reads it, and node_exporter in files.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Form {
    /// The type of the content in HTTP.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes all metrics.
pub(super) fn write(look: &Look, form: Form) -> Result<String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(families(look)));
    let mut written = String::new();
    let result = match form {
        Form::Prometheus => prometheus_text::encode(&mut written, &registry),
        Form::OpenMetrics => text::encode(&mut written, &registry),
    };
    result.context(Code::Other, "metrics").map(|()| written)
}

/// All metrics of what was seen.
fn families(look: &Look) -> Families {
    let mut families = Families::default();
    let version = Labels::default().with("version", env!("CARGO_PKG_VERSION"));
    families.add(&BUILD_INFO, &version, true);
    families.add(&LOOK, &Labels::default(), look.took.as_secs_f64());
    look.machine.sessions.iter().for_each(|session| sessions::add(&mut families, session));
    look.machine.targets.iter().for_each(|target| targets::add(&mut families, target));
    families
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tyche_counters::{CounterGroup, Kind};
    use tyche_engine::{PortStats, SuccessCounts};
    use tyche_native::UseCounts;
    use tyche_proto::{ChannelStats, NodeCounts};
    use tyche_testkit::document::table;

    use super::*;
    use crate::daemons::exporter::definitions::{self, LINK_SCOPE, REQUESTS, USE};
    use crate::daemons::exporter::families::Definition;
    use crate::daemons::exporter::{derived, links, sample};

    /// The metrics that there can be, by name.
    fn all() -> BTreeMap<String, Definition> {
        let made = |scope, metrics: &'static [tyche_counters::Metric]| {
            metrics.iter().map(move |it| derived::definition(scope, it))
        };
        let own = links::own_tables().into_iter().map(|it| derived::definition(LINK_SCOPE, it));
        let made = made(REQUESTS, SuccessCounts::METRICS)
            .chain(made(REQUESTS, NodeCounts::METRICS))
            .chain(made(USE, UseCounts::METRICS))
            .chain(made(LINK_SCOPE, PortStats::METRICS))
            .chain(made(LINK_SCOPE, ChannelStats::METRICS))
            .chain(own);
        let fixed = definitions::ALL.iter().map(|it| (*it).clone());
        made.chain(fixed).map(|it| (it.full_name(), it)).collect()
    }

    #[test]
    fn the_reference_has_all_metrics() {
        let document = include_str!("../../../../../docs/reference.md");
        let mut kept = table(document, "### Metrics");
        // Behind the table of labels.
        kept.retain(|row| row[0].starts_with("tyche_"));
        let made: Vec<_> = all()
            .into_iter()
            .map(|(name, it)| {
                let kind = match it.kind {
                    Kind::Counter => "counter",
                    Kind::Gauge => "gauge",
                    Kind::Histogram => "histogram",
                };
                [name, kind.to_owned(), it.labels.join(", "), it.help.into_owned()]
            })
            .collect();
        let is_same = kept.len() == made.len() && kept.iter().zip(&made).all(|(a, b)| a == b);
        let row = |it: &[String; 4]| {
            let [name, kind, labels, help] = it;
            format!("| `{name}` | {kind} | {labels} | {help} |\n")
        };
        let rows: String = made.iter().map(row).collect();
        assert!(is_same, "docs/reference.md, \"Metrics\", is to have this table:\n{rows}");
    }

    #[test]
    fn every_sample_is_of_a_metric_that_is_described_with_its_labels() {
        let (all, families) = (all(), families(&sample::look()));
        for (definition, labels) in families.label_names() {
            assert_eq!(all.get(&definition.full_name()), Some(definition));
            let known = labels.iter().all(|label| definition.labels.contains(label));
            assert!(known, "{}: {labels:?}", definition.name);
        }
        let missing = all.values().filter(|it| !families.definitions().any(|other| other == *it));
        let missing: Vec<_> = missing.map(|it| it.full_name()).collect();
        // The sample has no link over UDP, TCP or RDMA, and no session over FCoE.
        let kinds = ["_udp_", "_connections_", "_rdma_", "_fc_"];
        let is_of_kind = |name: &&String| kinds.iter().any(|kind| name.contains(kind));
        assert_eq!(missing.iter().filter(|it| !is_of_kind(it)).count(), 0, "{missing:?}");
    }

    #[test]
    fn no_two_samples_have_the_same_labels() {
        for form in [Form::Prometheus, Form::OpenMetrics] {
            let written = write(&sample::look(), form).unwrap();
            let samples = written.lines().filter(|line| !line.starts_with('#'));
            let mut names: Vec<_> = samples.map(|line| line.rsplit_once(' ').unwrap().0).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn samples_have_values_of_the_reports_and_names_are_escaped() {
        let written = write(&sample::look(), Form::Prometheus).unwrap();
        let session = "export=\"store1/vm1\",uuid=\"00000000-0000-0000-0000-000000000001\"";
        for line in [
            format!(
                "tyche_session_info{{{session},target=\"store1\",device=\"/dev/ublkb0\",\
                     attachment=\"ublk\"}} 1"
            ),
            format!("tyche_session_state{{{session},state=\"lost\"}} 1"),
            format!("tyche_session_state{{{session},state=\"live\"}} 0"),
            format!("tyche_session_lost_seconds{{{session}}} 12.5"),
            format!("tyche_requests_total{{{session},op=\"read\"}} 5"),
            format!("tyche_request_errors_total{{{session},op=\"flush\",errno=\"io\"}} 3"),
            format!("tyche_request_errors_total{{{session},op=\"read\",errno=\"medium\"}} 0"),
            format!("tyche_request_duration_seconds_bucket{{{session},op=\"read\",le=\"+Inf\"}} 5"),
            format!("tyche_link_up{{side=\"host\",{session},link=\"eth0\"}} 1"),
            format!(
                "tyche_rejected_frames_total{{side=\"host\",{session},\
                     reason=\"payload_checksum\"}} 2"
            ),
            "tyche_daemon_up{side=\"target\",target=\"silent\"} 0".into(),
            "tyche_export_up{target=\"store1\",export=\"a\\\"b\\\\c\\n<d>\"} 0".into(),
            "tyche_export_held{target=\"store1\",export=\"vm1\",\
             host=\"00000000-0000-0000-0000-000000000007\",name=\"hostA\",access=\"write\"} 2"
                .into(),
            "tyche_export_requests_total{target=\"store1\",export=\"vm1\",host=\"(left)\",\
             op=\"write\"} 9"
                .into(),
            "tyche_export_read_seconds_total{target=\"store1\",export=\"vm1\",host=\"(left)\"} 0.5"
                .into(),
            "tyche_link_unknown_total{side=\"target\",target=\"store1\",link=\"eth1\",\
             counter=\"of_tomorrow\"} 4"
                .into(),
        ] {
            assert!(written.lines().any(|it| it == line), "{line}\nis not in\n{written}");
        }
        let open = write(&sample::look(), Form::OpenMetrics).unwrap();
        assert!(open.ends_with("# EOF\n") && open.contains("# TYPE tyche_requests counter\n"));
    }

    /// The words of a text that are names of metrics.
    fn named(text: &str) -> impl Iterator<Item = &str> {
        let is_of_name = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
        let words = text.split(move |it| !is_of_name(it));
        words.filter(|word| word.starts_with("tyche_"))
    }

    #[test]
    fn rules_and_dashboard_are_of_metrics_that_there_are() {
        let rules = include_str!("../../../../../packaging/prometheus/tyche.rules.yml");
        let tests = include_str!("../../../../../packaging/prometheus/tyche.rules.test.yml");
        let board = include_str!("../../../../../packaging/grafana/tyche.json");
        let panels: serde_json::Value = serde_json::from_str(board).unwrap();
        assert!(panels["panels"].as_array().unwrap().len() > 10);
        let all = all();
        for name in [rules, tests, board].into_iter().flat_map(named) {
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts.iter().find_map(|part| name.strip_suffix(part));
            let histogram = family.and_then(|family| all.get(family));
            let is_known = all.contains_key(name)
                || histogram.is_some_and(|family| family.kind == Kind::Histogram);
            assert!(is_known, "there is no metric {name}");
        }
        // Every alert has a test that raises it.
        for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
            assert!(tests.contains(&format!("alertname: {alert}\n")), "no test of {alert}");
        }
    }
}
