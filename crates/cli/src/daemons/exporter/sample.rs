//! A made-up machine for tests: a lost session and one of a dead daemon, a target with two exports,
//! and one that does not answer.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use uuid::Uuid;

use super::looks::Look;
use crate::shared::report::MachineReport;

fn uuid(number: u128) -> String {
    Uuid::from_u128(number).to_string()
}

/// A look at the machine of the tests.
pub(super) fn look() -> Look {
    let record = |number, export: &str, device: &str| {
        json!({ "session": uuid(number), "host": uuid(7), "export": export, "kind": "ublk",
            "device": device, "pid": 9 })
    };
    let with = |mut record: Value, more: &Value| {
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record
    };
    let dead = json!({ "state": "dead", "waits": true, "clear": [] });
    let sessions = json!([
        with(record(1, "store1/vm1", "/dev/ublkb0"), &lost()),
        with(record(2, "vm2", "/dev/ublkb1"), &dead),
    ]);
    let silent = json!({ "name": "silent", "problem": "does not answer" });
    let machine = json!({ "sessions": sessions, "targets": [target(), silent] });
    let machine: MachineReport = serde_json::from_value(machine).unwrap();
    let took = Duration::from_millis(3);
    Look { at: Instant::now(), time: SystemTime::now(), took, machine }
}

/// The state of a session that has lost its target.
fn lost() -> Value {
    json!({
        "state": "lost", "lost_for_s": 12.5, "time_left_s": 587.5, "problem": "no answer",
        "queues": 1, "operations": 3, "waiting": { "longest_s": 12.5, "fences": 1 },
        "disk": { "target": uuid(3), "uuid": uuid(4), "size": 1 << 30, "block_size": 512 },
        "requests": { "reads": 5, "read_bytes": 20480, "errors": 3,
            "errors_by_kind": { "flush": { "io": 3 } } },
        "latency": { "reads": {
            "all": { "count": 5, "sum_ns": 500_000, "buckets": [[99_999, 5]] },
        } },
        "rejects": { "payload_checksum": 2 },
        "links": [
            { "interface": "eth0", "live": true, "rtt_us": 40, "tx_frames": 9, "channels":
                [{ "channel": 1 }] },
            { "interface": "eth9", "unnamed": true, "problem": "never heard" },
        ],
        "cpu_s": 1.25,
    })
}

fn target() -> Value {
    let host = json!({ "host": uuid(7), "host_name": "hostA", "writer": true });
    let session = |number| {
        let mut session = host.clone();
        session["session"] = json!(uuid(number));
        session
    };
    let strange = json!({ "export": "a\"b\\c\n<d>", "problem": "its device is gone" });
    let export = json!({
        "export": "vm1", "uuid": uuid(4), "path": "/srv/vm1.img", "size": 1 << 30,
        "pool": "fast", "allocated": 1 << 20,
        "denied": ["hostB"], "sessions": [session(1), session(5)],
        "hosts": [{ "host": "", "writes": 9, "read_ns": 500_000_000 }],
    });
    let port = json!({ "interface": "eth1", "wwpn": "20:00:02:00:5e:10:00:01", "commands": 8,
        "initiators": ["20:00:02:00:5e:10:00:02"], "rejects": { "fcs": 1 },
        "ignored": { "stranger": 1 } });
    let link = json!({ "interface": "eth1", "requests": 7, "malformed_short": 1,
        "malformed_long": 1, "of_tomorrow": 4, "rejects": { "of_tomorrow": 1 } });
    let pool = json!({ "pool": "fast", "path": "dir:/srv", "size": 1_u64 << 40, "used": 1 << 30,
        "metadata_size": 1 << 22, "metadata_used": 1 << 20, "provisioned": 1 << 30 });
    json!({ "name": "store1", "pid": 8, "exports": [export, strange], "links": [link],
        "pools": [pool],
        "fcoe": [port], "cpu_s": 2.5 })
}
