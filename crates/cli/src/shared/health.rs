//! Problems of sessions and exports, in words: failed requests, and disks that have changed.

use std::collections::BTreeMap;

use crate::output::bytes;
use crate::shared::error::Code;
use crate::shared::report::{
    Counters, ExportReport, Figures, PoolReport, SessionLink, SessionReport, SessionState,
    TargetReport,
};

/// The counters of failed requests, such as `read medium 2, write no space 1; the last 5 s ago`;
/// `None` if none did.
pub(crate) fn errors(by_kind: &BTreeMap<String, Counters>, last_s: Option<f64>) -> Option<String> {
    let counters = by_kind.iter().flat_map(|(operation, classes)| {
        let line = move |(class, count)| format!("{operation} {class} {count}").replace('_', " ");
        classes.iter().map(line)
    });
    let counters: Vec<_> = counters.collect();
    let last = last_s.map_or_else(String::new, |last| format!("; the last {} ago", age(last)));
    (!counters.is_empty()).then(|| counters.join(", ") + &last)
}

/// A time in its largest unit that leaves two of it at least.
fn age(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The hosts of an export whose access commands have changed; `None` if there are none.
pub(crate) fn access(export: &ExportReport) -> Option<String> {
    let hosts = |what: &str, command: &str, hosts: &[String]| {
        let hosts = hosts.join(", ");
        (!hosts.is_empty()).then(|| format!("{what} by `tyche export {command}`: {hosts}"))
    };
    let denied = hosts("kept out", "deny", &export.denied);
    let allowed = hosts("let in", "allow", &export.allowed);
    let said: Vec<_> = denied.into_iter().chain(allowed).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Seconds without progress after which a request counts as waiting. A disk that has to spin up
/// takes longer; one that spins does not.
const WAITS_AFTER_S: f64 = 2.0;

/// Describes the unanswered requests of a live session, if one of them has waited for long.
fn waits(report: &SessionReport) -> Option<String> {
    let SessionState::Live(figures) = &report.state else { return None };
    let Figures { operations, waiting, .. } = &**figures;
    let longest = Some(waiting.longest_s).filter(|&longest| longest >= WAITS_AFTER_S)?;
    let requests = counted(*operations, "request");
    let fences = match waiting.fences {
        0 => String::new(),
        count => format!("; {} not confirmed to be closed", counted(count, "lost channel")),
    };
    Some(format!("waits for the target: {requests}, the oldest for {longest:.0} s{fences}"))
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Problems of a session's requests, for `tyche list`.
pub(crate) fn of_session(session: &SessionReport) -> Vec<String> {
    let about = format!("session of {} ({})", session.record.export, session.device());
    let requests = session.figures().map(|it| &it.requests);
    let failed = requests.and_then(|it| errors(&it.errors_by_kind, it.last_error_s));
    let failed = failed.map(|kinds| format!("{about}: failed requests: {kinds}"));
    waits(session).map(|waits| format!("{about}: {waits}")).into_iter().chain(failed).collect()
}

/// Problems of a target and its disks, and hosts whose access commands have changed, for
/// `tyche list`.
pub(crate) fn of_target(target: &TargetReport) -> Vec<String> {
    let silent = target.problem.iter().map(|problem| format!("target {}: {problem}", target.name));
    let notes = target.exports.iter().flat_map(|export| {
        let about = format!("export {} of {}", export.export, target.name);
        let problem = export.problem.as_ref().map(|problem| format!("{about}: {problem}"));
        let failed = errors(&export.errors_by_kind, export.last_error_s);
        let failed = failed.map(|kinds| format!("{about}: failed requests of its disk: {kinds}"));
        let access = access(export).map(|access| format!("{about}: {access}"));
        problem.into_iter().chain(failed).chain(access)
    });
    let links = target.links.iter().map(|link| (&link.interface, &link.problem));
    let ports = target.fcoe.iter().map(|port| (&port.interface, &port.problem));
    let faulty = links.chain(ports).filter_map(|(link, problem)| {
        Some(format!("link {link} of {}: {}", target.name, problem.as_ref()?))
    });
    silent.chain(notes).chain(faulty).chain(target.pools.iter().filter_map(of_pool)).collect()
}

/// Percents of a pool from which it counts as nearly full.
const NEARLY_FULL: u64 = 90;

/// The problem of a pool, if it has one.
pub(crate) fn of_pool(pool: &PoolReport) -> Option<String> {
    let about = format!("pool {} ({})", pool.pool, pool.path);
    if let Some(problem) = &pool.problem {
        return Some(format!("{about}: {problem}"));
    }
    let full = |used: Option<u64>, size: Option<u64>| {
        let percent = used?.saturating_mul(100).checked_div(size?)?;
        (percent >= NEARLY_FULL).then_some(percent)
    };
    if let Some(percent) = full(pool.metadata_used, pool.metadata_size) {
        let fails = "nothing can be written when they are full (lvextend --poolmetadatasize)";
        return Some(format!("{about}: its metadata are {percent} % full: {fails}"));
    }
    let fails = "writes of hosts fail when it is full";
    full(pool.used, pool.size).map(|percent| format!("{about} is {percent} % full: {fails}"))
}

/// The remark that the exports of a pool are larger together than the pool, if they are. That is
/// what thin provisioning is for, and no problem as long as somebody watches the pool.
pub(crate) fn overcommitment(pool: &PoolReport) -> Option<String> {
    let PoolReport { pool: name, provisioned, .. } = pool;
    let size = pool.size.filter(|size| provisioned > size)?;
    let (has, promised) = (bytes(size), bytes(*provisioned));
    Some(format!(
        "pool {name} has {has}, and its exports have {promised} together: writes of hosts fail \
         when it is full"
    ))
}

/// The kind of the worst problem of these sessions and targets: of a disk or a session, of a target
/// or a daemon that does not answer, of a link; `None` if all is well.
pub(crate) fn check(sessions: &[&SessionReport], targets: &[TargetReport]) -> Option<Code> {
    let of_session = |session: &&SessionReport| {
        // An interface that leads elsewhere is none.
        let may_lead_elsewhere = |link: &SessionLink| link.unnamed && link.channels.is_empty();
        let is_faulty = |link: &SessionLink| link.problem.is_some() && !may_lead_elsewhere(link);
        match &session.state {
            SessionState::Live(_) if session.links().iter().any(is_faulty) => Some(Code::Link),
            SessionState::Live(_) => None,
            SessionState::Lost(_) | SessionState::Silent { .. } | SessionState::Starting => {
                Some(Code::Unreachable)
            }
            _ => Some(Code::Device),
        }
    };
    let of_target = |target: &TargetReport| {
        let links = target.links.iter().map(|link| &link.problem);
        let mut links = links.chain(target.fcoe.iter().map(|port| &port.problem));
        if target.exports.iter().any(|export| export.problem.is_some()) {
            return Some(Code::Device);
        }
        if target.problem.is_some() {
            return Some(Code::Unreachable);
        }
        links.any(Option::is_some).then_some(Code::Link)
    };
    let codes = sessions.iter().filter_map(of_session);
    let codes: Vec<_> = codes.chain(targets.iter().filter_map(of_target)).collect();
    [Code::Device, Code::Unreachable, Code::Link].into_iter().find(|code| codes.contains(code))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A session of `vm1` with these further fields, as a daemon reports it.
    fn session(fields: &Value) -> SessionReport {
        let mut report = json!({
            "session": uuid::Uuid::nil(), "host": uuid::Uuid::nil(), "export": "vm1",
            "device": "/dev/loop0", "kind": "loop", "pid": 7,
        });
        report.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn failed_and_late_requests_and_lost_disks_are_named_and_healthy_ones_are_not() {
        let kinds = json!({ "read": { "io": 2, "medium": 1 }, "write_zeroes": { "no_space": 1 } });
        let mut export =
            json!({ "export": "vm1", "errors": 4, "errors_by_kind": kinds, "problem": "x" });
        export["last_error_s"] = json!(7_300);
        export["denied"] = json!(["a", "b"]);
        export["allowed"] = json!(["c"]);
        let healthy =
            json!({ "export": "vm2", "errors": 0, "errors_by_kind": {}, "problem": null });
        let target = json!({ "name": "store1", "exports": [export, healthy] });
        let target = serde_json::from_value(target).unwrap();
        let failed = "failed requests of its disk: read io 2, read medium 1, write zeroes no \
             space 1; the last 2 h ago";
        let decided = "kept out by `tyche export deny`: a, b; let in by `tyche export allow`: c";
        assert_eq!(
            of_target(&target),
            ["x", failed, decided].map(|said| format!("export vm1 of store1: {said}"))
        );
        let requests = json!({ "errors": 4, "errors_by_kind": kinds });
        let said = of_session(&session(&json!({ "state": "lost", "requests": requests })));
        assert!(
            said[0].starts_with("session of vm1 (/dev/loop0): failed requests: read io 2"),
            "{said:?}"
        );
        let live = |waiting: Value| {
            session(&json!({ "state": "live", "operations": 3, "waiting": waiting }))
        };
        let waits = "waits for the target: 3 requests, the oldest for 8 s; 1 lost channel not \
                     confirmed to be closed";
        assert_eq!(
            of_session(&live(json!({ "longest_s": 8.2, "fences": 1 }))),
            [format!("session of vm1 (/dev/loop0): {waits}")]
        );
        assert_eq!(of_session(&live(json!({ "longest_s": 0.1, "fences": 0 }))), [""; 0]);
        let dead = session(&json!({ "state": "dead", "waits": false, "clear": [] }));
        assert_eq!(of_session(&dead), [""; 0]);
    }

    #[test]
    fn pools_that_are_nearly_full_or_not_there_are_named() {
        let pool = |size, used, problem: Option<&str>| PoolReport {
            pool: "fast".to_owned(),
            path: "dir:/srv".to_owned(),
            size,
            used,
            problem: problem.map(str::to_owned),
            ..PoolReport::default()
        };
        let said = |it: PoolReport| of_pool(&it).unwrap_or_default();
        assert_eq!(said(pool(Some(1000), Some(899), None)), "");
        let full = "pool fast (dir:/srv) is 90 % full: writes of hosts fail when it is full";
        assert_eq!(said(pool(Some(1000), Some(900), None)), full);
        assert_eq!(said(pool(Some(0), Some(0), None)), "");
        let (metadata_size, metadata_used) = (Some(100), Some(95));
        let metadata = PoolReport { metadata_size, metadata_used, ..pool(Some(9), Some(1), None) };
        let full = "pool fast (dir:/srv): its metadata are 95 % full: nothing can be written";
        assert!(said(metadata).starts_with(full));
        let silent = "pool fast (dir:/srv): does not answer";
        assert_eq!(said(pool(None, None, Some("does not answer"))), silent);
    }

    #[test]
    fn ages_are_short() {
        let ages = [0.9, 119.0, 120.0, 7_199.0, 7_200.0, 172_799.0, 200_000.0].map(age);
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }
}
