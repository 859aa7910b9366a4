//! Sessions and targets that run, and what dead ones have left.

use tyche_engine::PortStats;

use crate::shared::error::Code;
use crate::shared::health;
use crate::shared::report::{Finding, SessionReport, SessionState, TargetReport};

use super::machine::Machine;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for session in &machine.sessions {
        findings.extend(state(session));
        findings.extend(links(machine, session));
        if let Some(figures) = session.figures() {
            let ports: Vec<_> = figures.links.iter().map(|link| *link.port).collect();
            let again = figures.channel.counters.retransmitted;
            findings.extend(losses(&about(session), &ports, again));
        }
        findings.extend(health::of_session(session).into_iter().map(|what| {
            let remedy = match session.state {
                SessionState::Failed(_) => "mend the session: all requests fail until then",
                _ => "look at the target's log and disk, unless its session had failed then",
            };
            Finding::warning("session-requests", what).remedy(remedy)
        }));
    }
    findings.extend(machine.targets.iter().flat_map(|it| target(machine, it)));
    findings.extend(orphans(machine));
    findings
}

/// A session in words.
fn about(session: &SessionReport) -> String {
    format!("the session of {} ({})", session.record.export, session.device())
}

/// The finding on the state of a session, as `tyche list --check` counts it.
fn state(session: &SessionReport) -> Option<Finding> {
    let (name, export, pid) = (about(session), &session.record.export, session.record.pid);
    let problem = session.problem().unwrap_or("why is not known");
    let error = |id, code, what: &str| Finding::error(id, code, format!("{name} {what}"));
    let again = || format!("`tyche disconnect {}`, and connect", session.record.session);
    Some(match &session.state {
        SessionState::Live(_) | SessionState::Ending | SessionState::Unknown => return None,
        SessionState::Starting => {
            let what = "has no daemon yet that serves its device: its next one takes it over";
            error("session-starting", Code::Unreachable, what).remedy(
                "wait until `tyche list` shows it live; if it does not, start the target, or mend \
                 the path to it",
            )
        }
        SessionState::Lost(_) => {
            let found = error("session-lost", Code::Unreachable, &format!("is lost: {problem}"));
            found.remedy("start the target, or mend the path to it: requests wait")
        }
        SessionState::Silent { .. } => {
            let what = format!("does not answer: its daemon, process {pid}, is stopped or stuck");
            error("session-silent", Code::Unreachable, &what).remedy(format!(
                "`kill -CONT {pid}` wakes a stopped one, `tyche disconnect --force {export}` ends \
                 it in any case"
            ))
        }
        SessionState::Failed(_) => {
            let what = format!("has failed: {problem}");
            let is_tried = session.figures().is_some_and(|figures| figures.trying);
            let remedy = match is_tried {
                true => {
                    "start the target, or mend the path to it: the session begins anew by itself \
                     then, and file systems may have to be mounted again"
                        .to_owned()
                }
                false => again(),
            };
            error("session-failed", Code::Device, &what).remedy(remedy)
        }
        SessionState::Gone(_) => {
            error("session-gone", Code::Device, "has lost its device").remedy(again())
        }
        SessionState::Dead { clear, .. } => {
            let clear: Vec<_> = clear.iter().map(|command| format!("`{command}`")).collect();
            let clear = match &clear[..] {
                [] => "it goes when the last program closes it".to_owned(),
                commands => format!("connect again, or clear it: {}", commands.join(", ")),
            };
            error("session-dead", Code::Device, "has a dead daemon").remedy(clear)
        }
    })
}

/// The findings on the links of a live session, without those on their interfaces.
fn links(machine: &Machine, session: &SessionReport) -> Vec<Finding> {
    let SessionState::Live(figures) = &session.state else { return Vec::new() };
    let name = about(session);
    let findings = figures.links.iter().filter_map(|link| {
        let (interface, problem) = (&link.interface, link.problem.as_ref()?);
        // It leads elsewhere.
        let is_elsewhere = link.unnamed && link.channels.is_empty();
        if is_elsewhere || machine.has_unusable(interface) {
            return None;
        }
        let what = format!("link {interface} of {name}: {problem}");
        let remedy = format!("mend it, or `tyche link del {} {interface}`", session.record.session);
        Some(Finding::error("session-link", Code::Link, what).remedy(remedy))
    });
    findings.collect()
}

/// The findings on a target.
fn target(machine: &Machine, target: &TargetReport) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = &target.name;
    if let Some(problem) = &target.problem {
        let what = format!("target {name} {problem}");
        let found = Finding::error("target-silent", Code::Unreachable, what);
        findings.push(found.remedy("wake it, or restart it: hosts wait"));
    }
    for export in &target.exports {
        if let Some(problem) = &export.problem {
            let what = format!("export {} of {name}: {problem}", export.export);
            let found = Finding::error("export-problem", Code::Device, what);
            findings.push(found.remedy("bring its disk back: the target looks every 2 s"));
        } else if let Some(kinds) = health::errors(&export.errors_by_kind, export.last_error_s) {
            let what = format!("the disk of export {} of {name} failed: {kinds}", export.export);
            findings.push(Finding::warning("export-errors", what).remedy("look at that disk"));
        }
    }
    for what in target.pools.iter().filter_map(health::of_pool) {
        let found = Finding::warning("pool-problem", format!("{what} (target {name})"));
        findings.push(found.remedy("make room, or mount it: `tyche export list --tree` has all"));
    }
    let ports: Vec<_> = target.links.iter().map(|link| *link.port).collect();
    let again = target.links.iter().map(|link| link.channel.counters.retransmitted).sum();
    findings.extend(losses(&format!("target {name}"), &ports, again));
    let links = target.links.iter().map(|link| (&link.interface, &link.problem));
    let ports = target.fcoe.iter().map(|port| (&port.interface, &port.problem));
    for (link, problem) in links.chain(ports) {
        let Some(problem) = problem.as_ref().filter(|_| !machine.has_unusable(link)) else {
            continue;
        };
        let what = format!("link {link} of {name}: {problem}");
        let found = Finding::error("target-link", Code::Link, what);
        findings.push(found.remedy("mend it: the target takes it up again by itself"));
    }
    findings
}

/// Frames below which a share says nothing.
const FRAMES_MIN: u64 = 10_000;

/// The findings on frames that are lost on the way, or in this machine, since the daemon began.
fn losses(who: &str, ports: &[PortStats], retransmitted: u64) -> Vec<Finding> {
    let sum = |counter: fn(&PortStats) -> u64| ports.iter().map(counter).sum::<u64>();
    let (sent, received) = (sum(|it| it.tx_frames), sum(|it| it.rx_frames));
    let overruns = sum(|it| it.overruns);
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
    let mut findings = Vec::new();
    if sent >= FRAMES_MIN && share(retransmitted, sent) > 1.0 {
        let share = share(retransmitted, sent);
        let what =
            format!("{who} has sent {share:.1} % of its frames again: the network loses them");
        let found = Finding::warning("loss-on-the-way", what);
        findings.push(found.remedy(
            "cables, duplex, full queues of a switch: `ethtool -S`; `tyche top` shows which link",
        ));
    }
    if received >= FRAMES_MIN && share(overruns, received) > 0.1 {
        let share = share(overruns, received);
        let what = format!("{who} has not fetched {share:.1} % of its frames in time");
        let found = Finding::warning("overruns", what);
        findings.push(found.remedy(
            "a processor for its threads: `--affinity`, and the card's interrupts beside them",
        ));
    }
    findings
}

/// Devices of the kernel that were made by a daemon of Tyche, and that no session has any more.
fn orphans(machine: &Machine) -> Vec<Finding> {
    let known = super::disks::of_sessions(machine);
    let is_known = |name: &str| known.iter().any(|device| device.ends_with(name));
    let mut findings = Vec::new();
    for name in machine.names("/sys/block") {
        let file = match () {
            () if name.starts_with("nbd") => "backend",
            () if name.starts_with("loop") => "loop/backing_file",
            () => continue,
        };
        let mark = machine.read(&format!("/sys/block/{name}/{file}")).unwrap_or_default();
        if !mark.trim_start_matches('/').starts_with("tyche-") || is_known(&name) {
            continue;
        }
        let what = format!("a session has made /dev/{name}, and no session here has it any more");
        let remedy = match file {
            "backend" => format!("`nbd-client -d /dev/{name}`"),
            _ => format!("`losetup -d /dev/{name}`"),
        };
        let remedy = format!("{remedy}, unless a daemon with another TYCHE_RUNTIME_DIR has it");
        findings.push(Finding::warning("orphaned-device", what).remedy(remedy));
    }
    findings
}
