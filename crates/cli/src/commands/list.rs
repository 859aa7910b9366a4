//! `tyche list`: the sessions and targets of this machine, and the state of each; or a target
//! elsewhere.

use std::path::Path;

use clap::Args;
use tyche_numa::{Cpus, Topology};

use crate::daemons::connect::Entry;
use crate::output::{Format, Table, bytes, show};
use crate::shared::error::{Code, Error, Result};
use crate::shared::health;
use crate::shared::links::mtu;
use crate::shared::placement::SYS;
use crate::shared::report::{
    Figures, MachineReport, Output, SessionLink, SessionReport, SessionState, TargetReport,
};
use crate::shared::runtime;
use crate::shared::sessions::Session;
use crate::shared::tab::{self, Tab};
use crate::shared::target_control::AtArgs;

/// List the connected exports of this machine, and the targets that run here; or with --at the
/// target elsewhere.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Exit with a code that says whether something is missing or faulty: 9 for a disk or a
    /// session, 6 for a target or a daemon that does not answer, 5 for a link; 0 if all is well.
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    at: AtArgs,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn run(args: &ListArgs) -> Result<()> {
    let targets: Vec<_> = args.at.targets()?.into_iter().map(|it| it.report).collect();
    let mut sessions = if args.at.is_elsewhere() { Vec::new() } else { Session::all()? };
    sessions.sort_by(|a, b| order(a).cmp(&order(b)));
    let tab = Some(Path::new(tab::PATH)).filter(|_| !args.at.is_elsewhere());
    // A mistake in it is for `tyche doctor`.
    let tab = tab.and_then(|path| Tab::read(path).ok());
    let reports: Vec<_> = sessions.iter().map(|it| &it.report).collect();
    let not_connected = tab.map_or_else(Vec::new, |tab| not_connected(tab, &reports));
    show(
        args.output,
        || {
            let sessions = sessions.iter().map(|it| it.report.clone()).collect();
            let (targets, not_connected) = (targets.clone(), not_connected.clone());
            Output::List(MachineReport { sessions, targets, not_connected })
        },
        || {
            let mut text = String::new();
            if !sessions.is_empty() || targets.is_empty() {
                text += &session_table(&sessions);
                text.extend(sessions.iter().filter_map(remark));
            }
            if !targets.is_empty() {
                text += &target_table(&targets);
                text += &pool_table(&targets);
            }
            let of_sessions = sessions.iter().flat_map(|it| health::of_session(&it.report));
            let notes = of_sessions.chain(targets.iter().flat_map(health::of_target));
            let missing = not_connected.iter().map(|export| {
                format!("{export} is in {}, and is not connected: see `tyche doctor`", tab::PATH)
            });
            notes.chain(missing).fold(text, |text, note| text + &note + "\n")
        },
    )?;
    let missing = (!not_connected.is_empty()).then_some(Code::Device);
    match missing.or(health::check(&reports, &targets)).filter(|_| args.check) {
        // The list has said what is wrong.
        Some(code) => Err(Error::new(code, "")),
        None => Ok(()),
    }
}

/// The exports that tychetab lists, without `noauto`, and that no session has.
fn not_connected(tab: Tab, sessions: &[&SessionReport]) -> Vec<String> {
    let is_there = |export: &str| sessions.iter().any(|it| it.record.export == export);
    let lines = tab.into_lines().into_iter();
    let missing = lines.filter(|line| {
        let is_wanted = Entry::of(line).map_or(true, |entry| entry.auto);
        is_wanted && !is_there(&line.export)
    });
    missing.map(|line| line.export).collect()
}

/// Sessions are listed by their exports' names.
fn order(session: &Session) -> (&str, &Path) {
    let record = &session.report.record;
    (&record.export, &record.device)
}

fn session_table(sessions: &[Session]) -> String {
    let caches = Topology::read(SYS.as_ref()).map_or_else(|_| Vec::new(), |it| it.caches());
    let mut table = Table::new(["EXPORT", "DEVICE", "SIZE", "STATE", "LINKS", "SESSION"]);
    for session in sessions {
        let report = &session.report;
        let links = report.links().iter().map(|link| {
            let name = &link.interface;
            match (&link.problem, narrowed(link)) {
                (Some(problem), _) => format!("{name} ({problem})"),
                (None, Some(narrowed)) => format!("{name} ({narrowed})"),
                (None, None) => format!("{name} ({} B frames)", link.frame_len),
            }
        });
        let mut links = links.collect::<Vec<_>>().into_iter();
        table.row([
            report.record.export.clone(),
            report.device(),
            size(report),
            state(report) + &place(report, &caches),
            links.next().unwrap_or_default(),
            report.record.session.to_string(),
        ]);
        // Each on a line of its own: with a problem one is as long as a line.
        for link in links {
            let [export, device, size, state, session] = [(); 5].map(|()| String::new());
            table.row([export, device, size, state, link, session]);
        }
    }
    table.to_string()
}

/// The CPUs of a session whose threads share one of several caches.
fn place(report: &SessionReport, caches: &[Cpus]) -> String {
    let cpus = report.figures().and_then(|figures| figures.numa.thread_cpus.parse().ok());
    let of_one = |cpus: &Cpus| caches.iter().any(|cache| cache.contains(cpus));
    match cpus.filter(|cpus: &Cpus| !cpus.is_empty() && of_one(cpus)) {
        Some(cpus) if caches.len() > 1 => format!(" on CPUs {cpus}"),
        _ => String::new(),
    }
}

/// The size of the export, and that of its device if it has another: it has not grown yet.
fn size(report: &SessionReport) -> String {
    let Some(figures) = report.figures() else { return bytes(0) };
    let size = figures.disk.as_ref().map_or(0, |disk| disk.size);
    match figures.device_size.filter(|&device| device != size) {
        Some(device) => format!("{} (device {})", bytes(size), bytes(device)),
        None => bytes(size),
    }
}

/// The remark about a link whose path takes only shorter frames than its interface.
fn narrowed(link: &SessionLink) -> Option<String> {
    let &SessionLink { frame_len: found, frame_len_max: own, .. } = link;
    (found < own).then(|| format!("{found} B frames, though its MTU is {}", mtu(own)))
}

/// The state for people, with the remaining time of a session whose target is lost.
pub(crate) fn state(report: &SessionReport) -> String {
    match &report.state {
        SessionState::Live(_) => "live".to_owned(),
        SessionState::Lost(figures) => lost(figures),
        SessionState::Failed(figures) if figures.trying => "failed, trying again".to_owned(),
        SessionState::Failed(_) => "failed".to_owned(),
        SessionState::Gone(_) => "gone".to_owned(),
        SessionState::Ending => "ending".to_owned(),
        SessionState::Starting => "starting, requests wait".to_owned(),
        SessionState::Silent { .. } => "silent".to_owned(),
        SessionState::Dead { waits: true, attempt: Some(_), .. } => {
            "its daemon died: requests wait for the next, which tries again".to_owned()
        }
        SessionState::Dead { waits: true, .. } => {
            "its daemon died: requests wait for another `tyche connect`".to_owned()
        }
        SessionState::Dead { .. } if report.record.ended => "disconnected, still in use".to_owned(),
        SessionState::Dead { .. } => "its daemon died".to_owned(),
        SessionState::Unknown => "unknown".to_owned(),
    }
}

/// The state of a session whose target is lost.
fn lost(figures: &Figures) -> String {
    let Figures { lost_for_s, time_left_s, fails_fast, fails_fast_in_s, .. } = figures;
    let Some(lost) = lost_for_s else {
        return if *fails_fast { "back, requests still fail" } else { "lost" }.to_owned();
    };
    match (fails_fast, fails_fast_in_s.or(*time_left_s)) {
        (true, _) => format!("lost for {lost:.0} s, requests fail"),
        (false, Some(left)) => format!("lost for {lost:.0} s, requests fail in {left:.0} s"),
        (false, None) => format!("lost for {lost:.0} s, requests wait"),
    }
}

/// A line below the table: the problem of a session, and the remedy.
pub(crate) fn remark(session: &Session) -> Option<String> {
    let report = &session.report;
    let (name, device) = (&report.record.export, report.device());
    if let SessionState::Dead { clear, attempt, .. } = &report.state {
        let attempt = attempt.as_ref().map(|it| format!("{it}; ")).unwrap_or_default();
        let log = report.record.log.as_ref().map(|log| format!("; its log: {log}"));
        let commands: Vec<_> = clear.iter().map(|command| format!("`{command}`")).collect();
        let clear = match &commands[..] {
            [] => "until the last program closes it".to_owned(),
            commands => format!("to clear it: {}", commands.join(", ")),
        };
        let log = log.unwrap_or_default();
        return Some(format!("{name} ({device}): {attempt}{clear}{log}\n"));
    }
    if session.is_starting() {
        let by = runtime::successor(&session.dir);
        let by = by.map_or_else(String::new, |pid| format!(", process {pid},"));
        return Some(format!(
            "{name} ({device}): its next daemon{by} takes it over, as soon as the target answers\n"
        ));
    }
    let problem = report.problem()?;
    Some(format!("{name} ({device}): {problem}\n"))
}

fn target_table(targets: &[TargetReport]) -> String {
    let mut table = Table::new(["TARGET", "EXPORT", "SIZE", "HOSTS"]);
    for target in targets {
        if target.problem.is_some() {
            table.row([target.name.clone(), "(silent)".into(), String::new(), String::new()]);
        }
        for export in &target.exports {
            let hosts = export.sessions.iter().map(|it| match it.writer {
                true => format!("{} (writes)", it.host_name),
                false => it.host_name.clone(),
            });
            // Over FCoE all that are logged in may use it, but for those that were denied.
            let ports = target.fcoe.iter().flat_map(|port| &port.initiators);
            let ports = ports.filter(|port| !export.denied.contains(port));
            let hosts = hosts.chain(ports.cloned());
            table.row([
                target.name.clone(),
                export.export.clone(),
                bytes(export.size),
                hosts.collect::<Vec<_>>().join(", "),
            ]);
        }
    }
    table.to_string()
}

/// The pools of targets, with how full they are; empty if there are none.
pub(crate) fn pool_table(targets: &[TargetReport]) -> String {
    if targets.iter().all(|target| target.pools.is_empty()) {
        return String::new();
    }
    let mut table = Table::new(["TARGET", "POOL", "SIZE", "USED", "PROVISIONED", "PLACE"]);
    for (target, pool) in targets.iter().flat_map(|it| it.pools.iter().map(move |pool| (it, pool)))
    {
        let [size, used] = [pool.size, pool.used].map(|it| it.map_or("-".to_owned(), bytes));
        let percent = pool.size.zip(pool.used).filter(|(size, _)| *size > 0);
        let percent =
            percent.map(|(size, used)| format!(" ({:.0} %)", 100.0 * used as f64 / size as f64));
        let place = match &pool.problem {
            Some(problem) => format!("{} ({problem})", pool.path),
            None => pool.path.clone(),
        };
        table.row([
            target.name.clone(),
            pool.pool.clone(),
            size,
            used + &percent.unwrap_or_default(),
            bytes(pool.provisioned),
            place,
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session of that export, on a device that has a size or none.
    fn session(export: &str, device_size: Option<u64>) -> Session {
        let uuid = uuid::Uuid::new_v4();
        let report = serde_json::json!({
            "session": uuid, "host": uuid, "export": export, "device": "/dev/loop0",
            "kind": "loop", "pid": 7, "state": "live", "disk": { "size": 2_u64 << 30 },
            "device_size": device_size,
        });
        let report = serde_json::from_value(report).unwrap();
        Session { dir: "/run".into(), report, left: None }
    }

    #[test]
    fn the_size_of_a_device_is_shown_if_it_is_not_that_of_the_export() {
        let shown = |device_size| size(&session("vm1", device_size).report);
        assert_eq!(shown(Some(1 << 30)), "2.0 GiB (device 1.0 GiB)");
        assert_eq!(shown(Some(2 << 30)), "2.0 GiB");
        assert_eq!(shown(None), "2.0 GiB", "a socket has no size");
    }

    #[test]
    fn sessions_are_in_the_order_of_their_exports_names() {
        let mut sessions = ["vm2", "store1/vm3", "vm1"].map(|export| session(export, None));
        sessions.sort_by(|a, b| order(a).cmp(&order(b)));
        let exports = sessions.each_ref().map(|it| &it.report.record.export[..]);
        assert_eq!(exports, ["store1/vm3", "vm1", "vm2"]);
    }

    #[test]
    fn lines_of_tychetab_without_a_session_are_named() {
        let text = "vm1 eth0\nstore/vm2 -\nvm3 - noauto\nvm4 - nonsense\n";
        let tab = || Tab::parse(Path::new("tab"), text.as_bytes());
        let sessions = [session("store/vm2", None), session("vm3", None)];
        let reports: Vec<_> = sessions.iter().map(|it| &it.report).collect();
        assert_eq!(not_connected(tab(), &reports), ["vm1", "vm4"]);
        assert_eq!(not_connected(tab(), &[]), ["vm1", "store/vm2", "vm4"]);
    }
}
