//! The result of a measurement: numbers for programs, and a line or two for people.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};
use tyche_engine::Histogram;

use super::floor::Measured;
use super::load::{Shape, Tally};
use super::stages::Breakdown;

/// The floor: the rates of bare frames on the same links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Floor {
    pub(super) round_trip_ns: f64,
    /// Requests a second, by the bytes of their data.
    pub(super) exchange_per_s: f64,
    pub(super) stream_bytes_per_s: f64,
}

/// Bytes a second of all jobs together.
pub(super) fn bytes_per_s(measured: &[Measured]) -> f64 {
    measured.iter().map(|it| it.bytes as f64 / it.elapsed.as_secs_f64()).sum()
}

/// Average time of a round, in nanoseconds.
pub(super) fn round_ns(measured: &[Measured]) -> f64 {
    let busy: Duration = measured.iter().map(|it| it.busy).sum();
    let rounds: u64 = measured.iter().map(|it| it.rounds).sum();
    busy.as_nanos() as f64 / rounds as f64
}

/// Latency by stage over all jobs' requests, if it was measured.
pub(super) fn stages(tallies: &[Tally]) -> Option<Breakdown> {
    let mut all = tallies.iter().filter_map(|tally| tally.stages.as_ref());
    let mut stages = all.next()?.clone();
    all.for_each(|other| stages.merge(other));
    Some(stages)
}

/// The result of all jobs as one object, with the ratio to `floor` if there is one.
pub(super) fn value(shape: Shape, tallies: &[Tally], floor: Option<Floor>) -> Value {
    let mut latency = Histogram::new();
    tallies.iter().for_each(|tally| latency.merge(&tally.latencies_ns));
    let rate = |tally: &Tally| tally.latencies_ns.count() as f64 / tally.elapsed.as_secs_f64();
    let iops: f64 = tallies.iter().map(rate).sum();
    let bytes_per_s = iops * f64::from(shape.len);
    let frames: u64 = tallies.iter().map(|tally| tally.frames).sum();
    let alone = tallies.len() == 1 && shape.depth == 1;
    let floor = floor.map(|floor| {
        json!({
            "round_trip_ns": floor.round_trip_ns,
            "exchange_per_s": floor.exchange_per_s,
            "stream_bytes_per_s": floor.stream_bytes_per_s,
            // With several requests in flight, latency includes queueing and is no round trip.
            "latency_ratio": alone.then(|| latency.mean() / floor.round_trip_ns),
            "iops_ratio": iops / floor.exchange_per_s,
            "bytes_ratio": bytes_per_s / floor.stream_bytes_per_s,
        })
    });
    json!({
        "schema": "tyche.bench/1",
        "rw": shape.pattern.to_possible_value().map(|it| it.get_name().to_owned()),
        "bs": shape.len,
        "iodepth": shape.depth,
        "iops": iops,
        "bytes_per_s": bytes_per_s,
        "lat_ns": {
            "mean": latency.mean(),
            "p50": latency.quantile(0.5),
            "p99": latency.quantile(0.99),
            "p999": latency.quantile(0.999),
        },
        "cpu_s": tallies.iter().map(|tally| tally.cpu.as_secs_f64()).sum::<f64>(),
        "frames_per_io": frames as f64 / latency.count().max(1) as f64,
        "retransmitted": tallies.iter().map(|tally| tally.retransmitted).sum::<u64>(),
        "requests_stayed": tallies.iter().map(|tally| tally.nodes.stayed).sum::<u64>(),
        "requests_crossed": tallies.iter().map(|tally| tally.nodes.crossed).sum::<u64>(),
        "runtime_s": tallies.iter().map(|it| it.elapsed.as_secs_f64()).fold(0.0, f64::max),
        "jobs": tallies.len(),
        "floor": floor,
        "stages": stages(tallies).map(|stages| stages.value()),
    })
}

/// The result as text.
pub(super) fn text(result: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let us = |name: &str| number(&result["lat_ns"][name]) / 1e3;
    let mut text = format!(
        "{:.0} IOPS, {:.1} MB/s; latency {:.1} us mean, {:.1} p50, {:.1} p99, {:.1} p99.9; \
         {:.2} frames/IO, {:.2} s CPU, {} retransmitted\n",
        number(&result["iops"]),
        number(&result["bytes_per_s"]) / 1e6,
        us("mean"),
        us("p50"),
        us("p99"),
        us("p999"),
        number(&result["frames_per_io"]),
        number(&result["cpu_s"]),
        result["retransmitted"],
    );
    let (stayed, crossed) = (&result["requests_stayed"], &result["requests_crossed"]);
    if number(stayed) + number(crossed) > 0.0 {
        text += &format!("placement: {stayed} requests stayed on their node, {crossed} crossed\n");
    }
    let floor = &result["floor"];
    if floor.is_object() {
        text += &format!(
            "floor: {:.1} us round trip{}; {:.0} exchanges/s, of which {:.0} % are reached; \
             {:.1} MB/s stream, {:.0} %\n",
            number(&floor["round_trip_ns"]) / 1e3,
            floor["latency_ratio"]
                .as_f64()
                .map_or(String::new(), |ratio| format!(", a request takes {ratio:.2} times that")),
            number(&floor["exchange_per_s"]),
            number(&floor["iops_ratio"]) * 100.0,
            number(&floor["stream_bytes_per_s"]) / 1e6,
            number(&floor["bytes_ratio"]) * 100.0,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::load::Pattern;
    use super::*;
    use tyche_proto::NodeCounts;

    fn tally(count: u64, latency_ns: u64) -> Tally {
        let mut latencies_ns = Histogram::new();
        (0..count).for_each(|_| latencies_ns.add(latency_ns));
        Tally {
            latencies_ns,
            stages: None,
            elapsed: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
            frames: 3 * count,
            retransmitted: 1,
            nodes: NodeCounts::default(),
        }
    }

    fn floor() -> Floor {
        Floor { round_trip_ns: 1000.0, exchange_per_s: 100.0, stream_bytes_per_s: 409_600.0 }
    }

    #[test]
    fn jobs_add_up() {
        let shape = Shape::new(Pattern::Randread, 4096, 1, 0);
        let result = value(shape, &[tally(20, 1000), tally(60, 3000)], Some(floor()));
        assert_eq!((result["iops"].as_f64(), result["jobs"].as_u64()), (Some(40.0), Some(2)));
        assert_eq!(result["bytes_per_s"].as_f64(), Some(40.0 * 4096.0));
        assert_eq!(result["lat_ns"]["mean"].as_f64(), Some(2500.0));
        assert_eq!(result["frames_per_io"].as_f64(), Some(3.0));
        assert_eq!(
            (result["cpu_s"].as_f64(), result["retransmitted"].as_u64()),
            (Some(2.0), Some(2))
        );
        let floor = &result["floor"];
        assert_eq!(
            (floor["iops_ratio"].as_f64(), floor["bytes_ratio"].as_f64()),
            (Some(0.4), Some(0.4))
        );
        assert!(floor["latency_ratio"].is_null(), "two at a time");
    }

    #[test]
    fn crossing_requests_are_told_where_anybody_looks() {
        let shape = Shape::new(Pattern::Randread, 4096, 1, 0);
        let nodes = NodeCounts { stayed: 7, crossed: 3 };
        let both = [Tally { nodes, ..tally(20, 1000) }, Tally { nodes, ..tally(20, 1000) }];
        let told = text(&value(shape, &both, None));
        assert!(told.contains("14 requests stayed on their node, 6 crossed"), "{told}");
        assert!(!text(&value(shape, &[tally(20, 1000)], None)).contains("placement"));
    }

    #[test]
    fn latency_is_compared_where_requests_are_alone() {
        let shape = Shape::new(Pattern::Write, 4096, 1, 0);
        let result = value(shape, &[tally(20, 1500)], Some(floor()));
        assert_eq!(result["floor"]["latency_ratio"].as_f64(), Some(1.5));
        assert!(text(&result).contains("a request takes 1.50 times that"), "{}", text(&result));
        let result = value(shape, &[tally(20, 1500)], None);
        assert!(result["floor"].is_null() && text(&result).lines().count() == 1);
    }
}
