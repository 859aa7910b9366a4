//! `tyche hosts`: who has the exports of the targets on this machine, and what they have done.

use std::time::Duration;

use clap::Args;

use crate::output::{Format, Table, bytes, show};
use crate::shared::complete;
use crate::shared::error::Result;
use crate::shared::report::{ExportReport, HostReport, HostUse, Output, TargetReport};
use crate::shared::target_control::AtArgs;

/// Show who has the exports of the targets on this machine, or with --at of one elsewhere: since
/// when, over which links, and what was read and written.
///
/// Counters begin with the target, and are those of all sessions of a host at an export. Of the
/// ports of FCoE that are logged in only the names are known. `tyche host` lists the hosts that may
/// come, by their keys.
#[derive(Args, Debug)]
pub(crate) struct HostsArgs {
    /// The target. By default all.
    #[arg(add = complete::served_targets())]
    target: Option<String>,

    /// Those that have left, too.
    #[arg(short, long)]
    all: bool,

    #[command(flatten)]
    at: AtArgs,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn run(args: &HostsArgs) -> Result<()> {
    let found = args.at.targets_named(args.target.as_deref())?;
    let mut hosts: Vec<_> = found.iter().flat_map(|it| hosts(&it.report)).collect();
    hosts.retain(|host| args.all || host.connected || host.port.is_some());
    hosts.sort_by(|a, b| (&a.target, &a.host, &a.export).cmp(&(&b.target, &b.host, &b.export)));
    show(args.output, || Output::Hosts { hosts: hosts.clone() }, || text(&hosts))
}

/// The hosts of a target.
fn hosts(target: &TargetReport) -> Vec<HostReport> {
    let of_export = |export: &ExportReport| {
        let used = export.hosts.iter().map(|it| of_use(target, export, it));
        used.collect::<Vec<_>>()
    };
    let ports = target.fcoe.iter().flat_map(|port| {
        port.initiators.iter().map(|wwpn| HostReport {
            target: target.name.clone(),
            host: wwpn.clone(),
            port: Some(wwpn.clone()),
            links: vec![port.interface.clone()],
            ..HostReport::default()
        })
    });
    target.exports.iter().flat_map(of_export).chain(ports).collect()
}

/// A host at an export, with its sessions there.
fn of_use(target: &TargetReport, export: &ExportReport, used: &HostUse) -> HostReport {
    let sessions = || {
        let is_its = |name: &str, uuid: String| used.host == name || used.host == uuid;
        export.sessions.iter().filter(move |it| match it.key {
            Some(_) => is_its(&it.host_name, String::new()),
            None => is_its("", it.host.to_string()),
        })
    };
    let mut links: Vec<_> = sessions().flat_map(|it| it.links.iter().cloned()).collect();
    links.sort();
    links.dedup();
    let name = sessions().map(|it| it.host_name.clone()).next();
    HostReport {
        target: target.name.clone(),
        export: Some(export.export.clone()),
        host: name.unwrap_or_else(|| used.host.clone()),
        id: used.host.clone(),
        connected: sessions().next().is_some(),
        writer: sessions().any(|it| it.writer),
        connected_s: sessions().map(|it| it.connected_s).reduce(f64::max),
        links,
        port: None,
        waiting: used.waiting,
        requests: used.requests,
    }
}

fn text(hosts: &[HostReport]) -> String {
    let head = ["TARGET", "HOST", "EXPORT", "FOR", "LINKS", "READ", "WRITTEN", "LIMITED", "FAILED"];
    let mut table = Table::new(head);
    for host in hosts {
        let means = host.requests.means();
        let counts = &host.requests;
        table.row([
            host.target.clone(),
            host.host.clone(),
            match (&host.export, host.writer) {
                (Some(export), true) => format!("{export} (writes)"),
                (Some(export), false) => export.clone(),
                (None, _) => "(FCoE)".to_owned(),
            },
            host.connected_s.map_or_else(|| "-".to_owned(), age),
            host.links.join(", "),
            moved(counts.reads, counts.read_bytes, means[0]),
            moved(counts.writes, counts.written_bytes, means[1]),
            limited(host),
            counts.failed.to_string(),
        ]);
    }
    table.to_string()
}

/// How much was read or written, in how many requests, and their mean time if that was measured.
fn moved(count: u64, moved: u64, mean: Option<Duration>) -> String {
    match count {
        0 => "-".to_owned(),
        _ => format!("{} in {count}{}", bytes(moved), each(mean)),
    }
}

/// The end of a line with the mean time of requests; nothing if none was measured.
fn each(mean: Option<Duration>) -> String {
    match mean.map(|mean| (mean.as_nanos(), mean.as_micros())) {
        None | Some((0, _)) => String::new(),
        Some((_, 0)) => ", under 1 µs each".to_owned(),
        Some((_, micros)) => format!(", {micros} µs each"),
    }
}

/// How many requests have waited at a limit, for how long, and how many do now.
fn limited(HostReport { waiting, requests, .. }: &HostReport) -> String {
    let Some(mean) = requests.limited_ns.checked_div(requests.limited) else {
        return if *waiting > 0 { format!("{waiting} wait") } else { "-".to_owned() };
    };
    let past = format!("{}{}", requests.limited, each(Some(Duration::from_nanos(mean))));
    if *waiting > 0 { format!("{past}; {waiting} wait") } else { past }
}

/// Seconds in the largest unit of which there is one.
pub(crate) fn age(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use tyche_native::UseCounts;

    use super::*;
    use crate::shared::report;

    #[test]
    fn ages_are_in_the_largest_unit() {
        let ages = [0.9, 59.0, 61.0, 7200.0, 200_000.0].map(age);
        assert_eq!(ages, ["0 s", "59 s", "1 min", "2 h", "2 d"]);
    }

    #[test]
    fn requests_that_wait_are_shown_with_those_that_have_waited() {
        let shown = |waiting, limited: u64, limited_ns: u64| {
            let counts = UseCounts { limited, limited_ns, ..UseCounts::default() };
            super::limited(&HostReport {
                waiting,
                requests: report::Table(counts),
                ..Default::default()
            })
        };
        assert_eq!(shown(0, 0, 0), "-");
        assert_eq!(shown(3, 0, 0), "3 wait");
        assert_eq!(shown(0, 2, 9000), "2, 4 µs each");
        assert_eq!(shown(3, 2, 9000), "2, 4 µs each; 3 wait");
    }

    #[test]
    fn times_that_were_not_measured_are_left_out() {
        let shown = |reads, read_bytes, read_ns| {
            let counts = UseCounts { reads, read_bytes, read_ns, ..UseCounts::default() };
            moved(counts.reads, counts.read_bytes, counts.means()[0])
        };
        assert_eq!(shown(0, 0, 0), "-");
        assert_eq!(shown(3, 512, 0), "512 B in 3");
        assert_eq!(shown(3, 512, 900), "512 B in 3, under 1 µs each");
        assert_eq!(shown(2, 512, 9000), "512 B in 2, 4 µs each");
        assert_eq!(each(Some(Duration::ZERO)), "");
    }

    /// A host without a key may say the name of one that has one.
    #[test]
    fn sessions_are_those_of_the_host_that_is_counted() {
        let uuid = |number| uuid::Uuid::from_u128(number);
        let export: ExportReport = serde_json::from_value(serde_json::json!({
            "export": "vm1",
            "sessions": [
                { "host": uuid(1), "host_name": "a", "key": "tyche_x", "writer": true,
                  "connected_s": 5.0, "links": ["eth0"] },
                { "host": uuid(2), "host_name": "a", "connected_s": 7.0, "links": ["eth1"] },
            ],
            "hosts": [
                { "host": "a", "reads": 3 },
                { "host": uuid(2).to_string(), "reads": 4 },
                { "host": uuid(3).to_string(), "reads": 5 },
            ],
        }))
        .unwrap();
        let target = TargetReport { exports: vec![export], ..TargetReport::default() };
        let hosts = hosts(&target);
        let seen: Vec<_> = hosts
            .iter()
            .map(|it| (it.host.as_str(), it.writer, it.connected, it.requests.reads))
            .collect();
        let gone = uuid(3).to_string();
        assert_eq!(seen, [("a", true, true, 3), ("a", false, true, 4), (&*gone, false, false, 5)]);
        assert_eq!(hosts[1].links, ["eth1"]);
        assert_eq!((hosts[0].connected_s, hosts[2].connected_s), (Some(5.0), None));
    }
}
