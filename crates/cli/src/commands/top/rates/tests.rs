use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

fn look<T: serde::de::DeserializeOwned>(at: Instant, report: Value) -> Look<T> {
    Look { at, report: serde_json::from_value(report).unwrap() }
}

/// A session with these reads of 4 KiB, all of the same class of latency, and further fields.
fn session_with(reads: u64, class_us: u64, more: &Value) -> Value {
    let latency = json!({
        "count": reads, "sum_ns": reads * class_us * 1000, "buckets": [[class_us * 1000, reads]],
    });
    let mut report = json!({
        "session": Uuid::nil(), "host": Uuid::nil(), "export": "store1/vm1", "kind": "ublk",
        "device": "/dev/ublkb0", "pid": 7, "state": "live", "operations": 3,
        "requests": { "reads": reads, "read_bytes": reads * 4096, "by_queue": [reads, 0] },
        "latency": { "reads": { "all": latency } },
        "channel": { "retransmitted": reads / 100 },
        "links": [{
            "interface": "eth1", "live": true, "rx_frames": reads, "rx_bytes": reads * 4200,
            "overruns": reads / 200, "rtt_us": 40,
            "channels": [{ "channel": 1, "requests": 3, "retransmitted": reads / 100 }],
        }],
    });
    report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    report
}

const NOTHING: fn() -> Value = || json!({});

#[test]
fn rates_of_a_session_are_those_of_the_time_between_two_looks() {
    let begun = Instant::now();
    let before = look(begun, session_with(1_000, 900, &NOTHING()));
    // 1,980 fast reads and 20 slow ones.
    let mut after = session_with(3_000, 900, &NOTHING());
    let slow = json!({
        "count": 3_000, "sum_ns": 1_000 * 900_000_u64 + 1_980 * 100_000 + 20 * 5_000_000,
        "buckets": [[100_000, 1_980], [900_000, 1_000], [5_000_000, 20]],
    });
    after["latency"]["reads"]["all"] = slow;
    let after = look(begun + Duration::from_secs(2), after);
    let rates = session(&after, Some(&before));
    assert_eq!((&*rates.export, rates.target.as_deref()), ("vm1", Some("store1")));
    assert_eq!((rates.state, rates.in_flight), (StateName::Live, 3));
    let requests = rates.requests.unwrap();
    assert_eq!((requests.reads.per_s, requests.reads.bytes_per_s), (1000.0, 4_096_000.0));
    assert_eq!((requests.mean_us, requests.p99_us), (Some(149.0), Some(100.0)));
    assert_eq!((requests.writes.per_s, requests.writes.mean_us), (0.0, None));
    assert_eq!((rates.retransmitted_per_s, rates.lost_per_s), (Some(10.0), Some(5.0)));
    assert_eq!(rates.queues, [1000.0, 0.0]);
    let [link] = &rates.links[..] else { panic!("{rates:?}") };
    let traffic = link.traffic.unwrap();
    assert_eq!((traffic.received_frames_per_s, traffic.retransmitted_per_s), (1000.0, 10.0));
    assert_eq!((link.rtt_us, link.in_flight), (Some(40), 3));
}

#[test]
fn without_two_looks_at_one_daemon_there_are_no_rates() {
    let begun = Instant::now();
    let later = begun + Duration::from_secs(1);
    let before = look(begun, session_with(1_000, 100, &NOTHING()));
    assert!(session(&before, None).requests.is_none());
    let another = look(later, session_with(10, 100, &json!({ "pid": 8 })));
    let rates = session(&another, Some(&before));
    assert!(rates.requests.is_none() && rates.queues.is_empty(), "{rates:?}");
    assert!(rates.links[0].traffic.is_none());
    // At the same moment.
    let again = look(begun, session_with(2_000, 100, &NOTHING()));
    assert!(session(&again, Some(&before)).requests.is_none());
    let silent = json!({ "state": "silent", "problem": "stopped" });
    let rates = session(&look(later, session_with(0, 1, &silent)), Some(&before));
    assert_eq!((rates.state, rates.problem.as_deref()), (StateName::Silent, Some("stopped")));
    let dead = json!({ "state": "dead", "waits": false, "clear": ["tyche disconnect x"] });
    let rates = session(&look(later, session_with(0, 1, &dead)), Some(&before));
    let problem = rates.problem.unwrap();
    assert!(problem.contains("to clear it: `tyche disconnect x`"), "{problem}");
    let lost = json!({ "state": "lost", "lost_for_s": 5.0, "time_left_s": 595.0 });
    let rates = session(&look(later, session_with(1_000, 1, &lost)), Some(&before));
    assert_eq!((rates.state, rates.time_left_s), (StateName::Lost, Some(595.0)));
}

fn target_with(writes: u64, more: &Value) -> Value {
    let host = Uuid::from_u128(1);
    let uses = json!({
        "writes": writes, "written_bytes": writes * 512, "write_ns": writes * 20_000,
    });
    let mut used = uses.clone();
    used["host"] = json!(host);
    let gone = json!({ "host": Uuid::from_u128(2), "reads": 5 });
    let mut report = json!({
        "name": "store1", "pid": 9,
        "exports": [{
            "export": "vm1", "uuid": Uuid::nil(), "requests": uses, "hosts": [used, gone],
            "sessions": [{ "host": host, "host_name": "host1", "writer": true }],
        }],
        "links": [{
            "interface": "eth1", "tx_frames": writes, "channels": [{ "executing": 2 }],
            "channel": { "retransmitted": writes / 10 },
        }],
    });
    report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    report
}

#[test]
fn rates_of_a_target_are_by_export_host_and_link() {
    let begun = Instant::now();
    let before = look(begun, target_with(100, &NOTHING()));
    let after = look(begun + Duration::from_millis(500), target_with(150, &NOTHING()));
    let rates = target(&after, Some(&before));
    let [export] = &rates.exports[..] else { panic!("{rates:?}") };
    let requests = export.requests.unwrap();
    assert_eq!((requests.writes.per_s, requests.mean_us), (100.0, Some(20.0)));
    let [host] = &export.hosts[..] else { panic!("those that left are not there: {export:?}") };
    assert_eq!((&*host.host, host.writer, host.requests), ("host1", true, export.requests));
    let link = &rates.links[0];
    assert_eq!((link.traffic.unwrap().retransmitted_per_s, link.in_flight), (10.0, 2));
    // Another process, or one that was silent, has no past.
    let other = look(begun, target_with(100, &json!({ "pid": 10 })));
    assert!(target(&after, Some(&other)).exports[0].requests.is_none());
    let silent = look(begun, json!({ "name": "store1", "pid": 9, "problem": "stopped" }));
    assert!(target(&after, Some(&silent)).exports[0].requests.is_none());
}
