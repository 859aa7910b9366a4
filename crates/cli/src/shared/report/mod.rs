//! The JSON reports: output of commands with `-o json`, and answers of daemons at their control
//! sockets.
//!
//! The doc comments of the fields are their descriptions in `docs/schema.json`, which a test holds
//! to these types. A report may come from a daemon of another version of the program: unknown
//! fields are ignored, and most missing ones have their default.

mod bench;
mod doctor;
mod host;
mod link;
mod output;
mod plan;
mod session;
mod table;
mod target;
mod top;

pub use self::bench::{BenchReport, TailFigures};
pub use self::doctor::{DoctorPath, DoctorReport, Finding, Severity};
pub use self::host::{HostChanged, KnownHost, KnownHosts};
pub(crate) use self::link::Counters;
pub use self::link::{LinkNuma, ProtocolCounters};
pub use self::output::{
    AccessChanged, ConnectReport, DiscoveredExport, DiscoveredLun, DiscoveredPort, DiscoveredVlan,
    ExportChanged, ExportCloned, ExportResized, ExportedBy, HostReport, KnownTargetReport,
    LunProperties, MachineReport, Output, TabOutcome,
};
pub use self::plan::{
    CheckReport, PendingChange, PlanReport, PlannedAction, PlannedPart, PlannedStep,
    TargetLinkChanged,
};
pub(crate) use self::session::frames;
pub use self::session::{
    ChannelReport, DiskReport, Figures, Latency, LatencyPair, LatencyReport, RequestCounters,
    SessionLink, SessionNuma, SessionReport, SessionState, WaitingReport,
};
pub use self::table::Table;
pub use self::target::{
    DefinedBy, ExportReport, ExportSession, HostUse, MayConnect, Origin, PoolReport, TargetChannel,
    TargetLink, TargetPort, TargetReport,
};
pub use self::top::{
    ExportRates, HostRates, LinkRates, OperationRates, RequestRates, SessionRates, StateName,
    TargetRates, TopReport, TrafficRates,
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use schemars::generate::SchemaSettings;
    use schemars::transform::{RecursiveTransform, Transform};
    use schemars::{JsonSchema, Schema};

    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::{Output, SessionReport, SessionState};
    use crate::shared::error::ErrorReport;

    /// If set, the schema is written instead of compared.
    const BLESS: &str = "TYCHE_BLESS";

    /// Output of `tyche COMMAND -o json`: one object, whose `schema` names its kind and version.
    /// Programs that read it must accept fields that they do not know.
    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[schemars(title = "Output of tyche")]
    #[expect(dead_code, reason = "its schema is what counts")]
    enum Printed {
        Result(Output),
        Error(ErrorReport),
    }

    /// Joins the lines of descriptions, and removes defaults, which are for readers of other
    /// versions: the program prints every field. Objects with known fields may have any others, in
    /// this version counters of links, in later ones more.
    fn tidy(schema: &mut Schema) {
        schema.remove("default");
        if schema.get("properties").is_some() {
            schema.remove("additionalProperties");
        }
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = text.replace('\n', " ");
        }
    }

    #[test]
    fn reports_of_other_versions_are_read() {
        let report = |state: Value| {
            let mut report = json!({
                "session": Uuid::nil(), "host": Uuid::nil(), "export": "vm1", "kind": "ublk",
                "device": "/dev/ublkb0", "pid": 7, "new": [1, {}],
            });
            report.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
            serde_json::from_value::<SessionReport>(report).unwrap()
        };
        let link = json!({ "interface": "eth0", "rx_frames": 3, "fault_drop": 2, "speed": "fast" });
        let known = report(json!({
            "state": "live", "links": [link], "requests": { "reads": 5 },
            "channel": { "nacked": 2, "new": [1] },
            "latency": { "reads": { "all": { "count": 1 } } },
        }));
        let figures = known.figures().unwrap();
        let (requests, [link]) = (&figures.requests, known.links()) else {
            panic!("{known:?}");
        };
        assert_eq!((requests.succeeded.reads, requests.succeeded.writes), (5, 0));
        let channel = &figures.channel.counters;
        assert_eq!((channel.nacked, channel.batches, figures.latency.reads.all.count), (2, 0, 1));
        assert_eq!((link.port.rx_frames, link.port.tx_frames), (3, 0));
        assert_eq!(link.counters, [("fault_drop".to_owned(), 2)].into());
        let unknown = report(json!({ "state": "asleep" }));
        assert!(matches!(unknown.state, SessionState::Unknown) && unknown.figures().is_none());
    }

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let mut schema = SchemaSettings::draft2020_12()
            .for_serialize()
            .into_generator()
            .into_root_schema_for::<Printed>();
        RecursiveTransform(tidy).transform(&mut schema);
        let made = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema.json");
        if std::env::var_os(BLESS).is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept == made, "docs/schema.json is stale: run this test once with {BLESS}=1");
    }
}
