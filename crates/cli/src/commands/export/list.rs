//! `tyche export list`: the exports of targets, and their pools.

use clap::Args;
use uuid::Uuid;

use crate::commands::hosts::age;
use crate::commands::list::pool_table;
use crate::output::{Format, Table, bytes, show};
use crate::shared::complete;
use crate::shared::error::Result;
use crate::shared::report::{
    DefinedBy, ExportReport, ExportedBy, MayConnect, Origin, Output, TargetReport,
};
use crate::shared::target_control::AtArgs;

/// List the exports of the targets on this machine: what they are, what says so, who may connect
/// them, and who has; and their pools.
#[derive(Args, Debug)]
pub(super) struct List {
    /// The target. By default all.
    #[arg(long, value_name = "NAME", add = complete::served_targets())]
    target: Option<String>,

    /// Show snapshots and clones below the export that they were made of.
    #[arg(long)]
    tree: bool,
}

pub(super) fn run(at: &AtArgs, List { target, tree }: &List, output: Format) -> Result<()> {
    let found = at.targets_named(target.as_deref())?.into_iter();
    let reports: Vec<_> = found.map(|it| it.report).collect();
    let pools = pool_table(&reports);
    let by = |TargetReport { name, problem, exports, pools, .. }| ExportedBy {
        target: name,
        problem,
        exports,
        pools,
    };
    let list: Vec<_> = reports.into_iter().map(by).collect();
    let text = || {
        let mut table =
            Table::new(["TARGET", "EXPORT", "SIZE", "DISK", "", "ALLOWED", "CONNECTED"]);
        for by in &list {
            let silent = by
                .problem
                .iter()
                .map(|_| [&*by.target, "(silent)", "", "", "", "", ""].map(str::to_owned));
            let exports = match tree {
                true => ordered(&by.exports),
                false => by.exports.iter().map(|export| (0, export)).collect(),
            };
            let rows = exports.into_iter().map(|(depth, export)| row(&by.target, depth, export));
            silent.chain(rows).for_each(|row| table.row(row));
        }
        table.to_string() + &pools
    };
    show(output, || Output::ExportList { targets: list.clone() }, text)
}

/// The exports with their depth, each behind the one that it was cloned from.
fn ordered(exports: &[ExportReport]) -> Vec<(usize, &ExportReport)> {
    let is_there = |origin: &Origin| exports.iter().any(|export| export.uuid == origin.uuid);
    let of = |uuid: Option<Uuid>| {
        let origin = move |it: &&ExportReport| {
            it.origin.as_ref().filter(|it| is_there(it)).map(|it| it.uuid) == uuid
        };
        exports.iter().filter(origin)
    };
    let mut ordered: Vec<(usize, &ExportReport)> = Vec::new();
    let mut next: Vec<_> = of(None).map(|export| (0, export)).collect();
    next.reverse();
    while let Some((depth, export)) = next.pop() {
        ordered.push((depth, export));
        let clones: Vec<_> = of(Some(export.uuid)).map(|export| (depth + 1, export)).collect();
        next.extend(clones.into_iter().rev());
    }
    ordered
}

/// An export of a target in the table.
fn row(target: &str, depth: usize, export: &ExportReport) -> [String; 7] {
    let mut what = Vec::new();
    what.extend(export.lun.map(|lun| format!("LUN {lun}")));
    what.extend(export.origin.as_ref().map(|origin| described(origin, export.read_only)));
    what.extend((export.read_only && export.origin.is_none()).then(|| "read-only".to_owned()));
    what.extend(export.shared.then(|| "shared".to_owned()));
    what.extend(match export.defined_by {
        // That is how clones come.
        DefinedBy::Command if export.origin.is_some() => None,
        DefinedBy::Command => Some("added".to_owned()),
        DefinedBy::CommandLine => Some("of the command line".to_owned()),
        DefinedBy::File | DefinedBy::Unknown => None,
    });
    let allocated = export.allocated.filter(|_| export.pool.is_some());
    what.extend(allocated.map(|allocated| format!("{} allocated", bytes(allocated))));
    what.extend(export.iops.map(|iops| format!("{iops} IOPS")));
    what.extend(export.bytes_per_second.map(|rate| format!("{}/s", bytes(rate))));
    what.extend((export.waiting > 0).then(|| format!("{} wait", export.waiting)));
    what.extend(export.problem.clone());
    let hosts: Vec<_> = export.sessions.iter().map(|it| it.host_name.as_str()).collect();
    let (what, hosts) = (what.join(", "), hosts.join(", "));
    let allowed = allowed(export);
    let ExportReport { export, path, size, .. } = export;
    let name = format!("{}{export}", "  ".repeat(depth));
    [target.to_owned(), name, bytes(*size), path.clone(), what, allowed, hosts]
}

/// The hosts that may connect an export: `any`, `any but host2`, or a list; of those that were
/// added by command the ones that it names. Ports of FCoE are named where it has a LUN.
fn allowed(export: &ExportReport) -> String {
    let Some(may_connect) = &export.may_connect else { return "-".to_owned() };
    let MayConnect { hosts, also, except, ports, ports_except } = may_connect;
    let of = |listed: &Option<Vec<String>>, except: &[String]| match (listed, except) {
        (None, []) => "any".to_owned(),
        (None, except) => format!("any but {}", except.join(", ")),
        (Some(listed), _) if listed.is_empty() => "none".to_owned(),
        (Some(listed), _) => listed.join(", "),
    };
    let mut hosts = of(hosts, except);
    if !also.is_empty() {
        hosts = format!("{hosts}; added: {}", also.join(", "));
    }
    match export.lun {
        None => hosts,
        Some(_) => format!("{hosts}; ports: {}", of(ports, ports_except)),
    }
}

fn described(origin: &Origin, read_only: bool) -> String {
    let kind = if read_only { "snapshot" } else { "clone" };
    let made = std::time::Duration::from_secs(origin.time);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ago = now.unwrap_or_default().saturating_sub(made).as_secs_f64();
    format!("{kind} of {}, {} old", origin.export, age(ago))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(number: u128, of: Option<u128>) -> ExportReport {
        let origin = of.map(|of| Origin { uuid: Uuid::from_u128(of), ..Origin::default() });
        ExportReport { uuid: Uuid::from_u128(number), origin, ..ExportReport::default() }
    }

    #[test]
    fn those_who_may_connect_are_in_a_few_words() {
        let list = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let said = |may_connect: MayConnect, lun| {
            allowed(&ExportReport { may_connect: Some(may_connect), lun, ..Default::default() })
        };
        let any = MayConnect { ports: Some(Vec::new()), ..MayConnect::default() };
        assert_eq!(said(any.clone(), None), "any");
        assert_eq!(said(any.clone(), Some(3)), "any; ports: none");
        let but = MayConnect { except: list(&["a", "b"]), ..any.clone() };
        assert_eq!(said(but, None), "any but a, b");
        let named = |names| MayConnect { hosts: Some(list(names)), ..any.clone() };
        assert_eq!(said(named(&["a", "b"]), None), "a, b");
        assert_eq!(said(named(&[]), None), "none");
        let also = MayConnect { also: list(&["node1", "node2"]), ..any.clone() };
        assert_eq!(said(also, Some(3)), "any; added: node1, node2; ports: none");
        assert_eq!(allowed(&ExportReport::default()), "-", "of an earlier version");
    }

    #[test]
    fn clones_are_behind_what_they_were_made_of() {
        let of = [(1, None), (2, None), (3, Some(1)), (4, Some(9)), (5, Some(3)), (6, Some(1))];
        let exports = of.map(|(number, of)| export(number, of));
        let ordered: Vec<_> =
            ordered(&exports).iter().map(|(depth, it)| (*depth, it.uuid.as_u128())).collect();
        assert_eq!(ordered, [(0, 1), (1, 3), (2, 5), (1, 6), (0, 2), (0, 4)]);
    }
}
