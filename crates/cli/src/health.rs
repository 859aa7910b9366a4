//! Problems of sessions and exports, in words: failed requests, and disks that have changed.

use serde_json::Value;

/// The counters of failed requests, such as `read medium 2, write no space 1`; `None` if none did.
pub(crate) fn errors(by_kind: &Value) -> Option<String> {
    let operations = by_kind.as_object()?.iter();
    let counters = operations.flat_map(|(operation, classes)| {
        let classes = classes.as_object().into_iter().flatten();
        classes.map(move |(class, count)| format!("{operation} {class} {count}").replace('_', " "))
    });
    let counters: Vec<_> = counters.collect();
    (!counters.is_empty()).then(|| counters.join(", "))
}

/// Seconds without progress after which a request counts as waiting. A disk that has to spin up
/// takes longer; one that spins does not.
const WAITS_AFTER_S: f64 = 2.0;

/// Describes what a living session waits for, if one of its requests has waited for long: the
/// target, and the requests that it has not answered.
fn waits(session: &Value) -> Option<String> {
    let waiting = &session["waiting"];
    let longest = waiting["longest_s"].as_f64().filter(|&longest| longest >= WAITS_AFTER_S)?;
    if session["state"] != "live" {
        return None;
    }
    let requests = counted(session["operations"].as_u64()?, "request");
    let fences = match waiting["fences"].as_u64().unwrap_or_default() {
        0 => String::new(),
        count => format!("; {} not confirmed to be closed", counted(count, "lost channel")),
    };
    Some(format!("waits for the target: {requests}, the oldest for {longest:.0} s{fences}"))
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Problems of a session's requests, for `tyche list`.
pub(crate) fn of_session(session: &Value) -> Vec<String> {
    let text = |field: &str| session[field].as_str().unwrap_or_default();
    let about = format!("session of {} ({})", text("export"), text("device"));
    let failed = errors(&session["requests"]["errors_by_kind"]);
    let failed = failed.map(|kinds| format!("{about}: failed requests: {kinds}"));
    waits(session).map(|waits| format!("{about}: {waits}")).into_iter().chain(failed).collect()
}

/// Problems of a target's disks, for `tyche list`.
pub(crate) fn of_target(target: &Value) -> Vec<String> {
    let name = target["name"].as_str().unwrap_or_default();
    let exports = target["exports"].as_array().map_or(&[][..], Vec::as_slice);
    let notes = exports.iter().flat_map(|export| {
        let about = format!("export {} of {name}", export["export"].as_str().unwrap_or_default());
        let problem = export["problem"].as_str().map(|problem| format!("{about}: {problem}"));
        let failed = errors(&export["errors_by_kind"]);
        let failed = failed.map(|kinds| format!("{about}: failed requests of its disk: {kinds}"));
        problem.into_iter().chain(failed)
    });
    notes.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failed_and_late_requests_and_lost_disks_are_named_and_healthy_ones_are_not() {
        let kinds = json!({ "read": { "io": 2, "medium": 1 }, "write_zeroes": { "no_space": 1 } });
        let export =
            json!({ "export": "vm1", "errors": 4, "errors_by_kind": kinds, "problem": "x" });
        let healthy =
            json!({ "export": "vm2", "errors": 0, "errors_by_kind": {}, "problem": null });
        let target = json!({ "name": "store1", "exports": [export, healthy] });
        let failed =
            "failed requests of its disk: read io 2, read medium 1, write zeroes no space 1";
        assert_eq!(
            of_target(&target),
            ["export vm1 of store1: x".to_owned(), format!("export vm1 of store1: {failed}")]
        );
        let requests = json!({ "errors": 4, "errors_by_kind": kinds });
        let session = json!({ "export": "vm1", "device": "/dev/loop0", "requests": requests });
        let said = of_session(&session);
        assert!(
            said[0].starts_with("session of vm1 (/dev/loop0): failed requests: read io 2"),
            "{said:?}"
        );
        let mut slow = json!({
            "export": "vm1", "device": "/dev/loop0", "state": "live", "operations": 3,
            "waiting": { "longest_s": 8.2, "fences": 1 },
        });
        let waits = "waits for the target: 3 requests, the oldest for 8 s; 1 lost channel not \
                     confirmed to be closed";
        assert_eq!(of_session(&slow), [format!("session of vm1 (/dev/loop0): {waits}")]);
        slow["waiting"] = json!({ "longest_s": 0.1, "fences": 0 });
        assert_eq!(of_session(&slow), [""; 0]);
        // The record of a dead daemon.
        assert_eq!(of_session(&json!({ "export": "vm1" })), [""; 0]);
    }
}
