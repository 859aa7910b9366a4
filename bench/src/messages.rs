//! Messages over the double of RDMA by their size, as `tyche-lab messages` measures them.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::double::Double;
use crate::process::{Doing, Result};

/// The part of a job's run time that each size takes, one way and again to and fro.
const PART: u32 = 10;
/// The number of sizes.
pub(crate) const SIZES: u32 = 14;

/// Messages of one configuration in one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MessageMeasurement {
    pub(crate) turn: u32,
    pub(crate) peer: String,
    #[serde(flatten)]
    pub(crate) messages: Messages,
}

/// The parts of the program's output that matter here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Messages {
    pub(crate) sizes: Vec<MessageSize>,
    /// The stages of the smallest message, one way.
    pub(crate) stages: Vec<MessageStage>,
}

/// Messages of one size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MessageSize {
    pub(crate) bytes: u32,
    pub(crate) one_way_bytes_per_s: f64,
    /// The median.
    pub(crate) round_trip_ns: f64,
}

/// A part of the time of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MessageStage {
    pub(crate) stage: String,
    pub(crate) ns: f64,
}

impl fmt::Display for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [Some(first), Some(last)] = [self.sizes.first(), self.sizes.last()] else {
            return f.write_str("none");
        };
        write!(f, "{:.2} us at {} bytes, ", first.us(), first.bytes)?;
        write!(f, "{:.0} MB/s at {}", last.one_way_mb_per_s(), last.bytes)
    }
}

/// A figure of messages of one size.
pub(crate) type SizeMetric = fn(&MessageSize) -> f64;

impl MessageSize {
    /// The time of a message one way, in microseconds: half of a round trip.
    pub(crate) fn us(&self) -> f64 {
        self.round_trip_ns / 2e3
    }

    /// MB/s of messages that go to and fro, one after the other.
    pub(crate) fn ping_pong_mb_per_s(&self) -> f64 {
        f64::from(self.bytes) / self.us()
    }

    /// MB/s of messages that all go one way.
    pub(crate) fn one_way_mb_per_s(&self) -> f64 {
        self.one_way_bytes_per_s / 1e6
    }
}

/// The time that messages of a configuration take, where a job runs for `runtime`.
pub(crate) fn time(runtime: Duration) -> Duration {
    runtime / PART * 2 * SIZES
}

/// Has the laboratory's program measure messages.
pub(crate) fn ask(lab: &mut Command, double: Double, runtime: Duration) {
    let ms = (runtime / PART).as_millis().max(1).to_string();
    lab.args(["messages", "--runtime-ms", &ms, "-o", "json"]).args(double.link());
}

/// Reads the program's output.
pub(crate) fn parse(output: &str) -> Result<Messages> {
    serde_json::from_str(output).doing("the figures of `tyche-lab messages`")
}

impl MessageMeasurement {
    /// A figure of the messages of one size.
    pub(crate) fn size(&self, bytes: u32, metric: SizeMetric) -> Option<f64> {
        self.messages.sizes.iter().find(|it| it.bytes == bytes).map(metric)
    }

    /// The time of a stage, in microseconds.
    pub(crate) fn stage_us(&self, name: &str) -> Option<f64> {
        self.messages.stages.iter().find(|it| it.stage == name).map(|it| it.ns / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_programs_output() {
        let output = r#"{"schema":"tyche.messages/1",
            "sizes":[{"bytes":8,"one_way_bytes_per_s":8e6,"round_trip_ns":4000,"writes":1.0}],
            "stages":[{"stage":"wire","ns":205.0}]}"#;
        let messages = parse(output).unwrap();
        let size = messages.sizes[0];
        assert_eq!(
            (size.us(), size.ping_pong_mb_per_s(), size.one_way_mb_per_s()),
            (2.0, 4.0, 8.0)
        );
        let measurement = MessageMeasurement { turn: 1, peer: "ELIM".to_owned(), messages };
        assert_eq!(measurement.stage_us("wire"), Some(0.205));
        assert_eq!(measurement.size(16, MessageSize::us), None);
    }
}
