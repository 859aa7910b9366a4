//! `tyche host`: the hosts that targets let in by their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Args, Subcommand};
use tyche_proto::crypto::PublicKey;

use crate::commands::export::sessions_end;
use crate::output::{Format, Table, bytes, show};
use crate::shared::complete;
use crate::shared::control::TargetRequest;
use crate::shared::error::Result;
use crate::shared::host::AddedHost;
use crate::shared::keys::public_key;
use crate::shared::rate_limit::{parse_bytes_per_second, parse_iops};
use crate::shared::report::{DefinedBy, HostChanged, KnownHost, KnownHosts, Output, TargetReport};
use crate::shared::target_control::{AtArgs, FoundTarget};

/// Time limit until a change is on stable storage, or the hosts are listed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Let hosts in by their keys, while a target runs: one on this machine, or with --at one
/// elsewhere.
///
/// `tyche hosts` shows who has which export.
#[derive(Args, Debug)]
pub(crate) struct HostCommand {
    #[command(subcommand)]
    action: Action,

    #[command(flatten)]
    at: AtArgs,

    /// How to print.
    #[arg(short, long, default_value_t, global = true)]
    pub(crate) output: Format,
}

#[derive(Subcommand, Debug)]
enum Action {
    Add(Add),
    Remove(Remove),
    List(List),
}

/// Let a host in by its key, from now on and after restarts of the target.
///
/// It may have only exports that name it: `tyche export allow EXPORT NAME`, or `tyche export add
/// --allow NAME`. A host that may have all exports is a [[host]] in target.toml.
///
/// The target keeps it in its state, beside its configuration, before this returns. The same again
/// changes nothing; another key or limit for a name that is taken, and the key of another host or
/// admin, are refused with exit code 10. If the configuration has a [[host]] of that name one day,
/// that counts, and not this; if it gives the key to somebody else, this host is not let in.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "TOML in the text of --help")]
struct Add {
    /// Its name at the target, 1 to 63 bytes.
    name: String,

    /// Its public key, as `tyche key show` prints it at the host.
    #[arg(value_name = "KEY", value_parser = public_key)]
    host_key: PublicKey,

    /// The most requests of it in a second, at all exports together.
    #[arg(long, value_name = "NUMBER", value_parser = parse_iops)]
    iops: Option<NonZeroU64>,

    /// The most bytes that it reads and writes in a second, at all exports together: a size such
    /// as 200M.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_per_second)]
    bytes_per_second: Option<NonZeroU64>,

    #[command(flatten)]
    of: TargetName,
}

/// Let a host in no more that `tyche host add` has added. Its sessions end, with errors for their
/// requests.
///
/// What `tyche export allow` has decided about it is forgotten, and exports that `tyche export add`
/// has added do not name it any more: another host of its name begins with none. `tyche export
/// evict` before this waits until nothing of it is with a disk. A host of the configuration is
/// removed there.
#[derive(Args, Debug)]
struct Remove {
    /// Its name at the target.
    name: String,

    #[command(flatten)]
    of: TargetName,
}

/// List the hosts that the targets on this machine know by their keys: those of the configuration,
/// and those that were added.
#[derive(Args, Debug)]
struct List {
    /// The target. By default all.
    #[arg(long, value_name = "NAME", add = complete::served_targets())]
    target: Option<String>,
}

/// The target that is to be changed.
#[derive(Args, Debug)]
struct TargetName {
    /// The target, if several run on this machine.
    #[arg(long, value_name = "NAME", add = complete::served_targets())]
    target: Option<String>,
}

pub(crate) fn run(HostCommand { action, at, output }: &HostCommand) -> Result<()> {
    match action {
        Action::Add(add) => run_add(at, add, *output),
        Action::Remove(remove) => run_remove(at, remove, *output),
        Action::List(list) => run_list(at, list, *output),
    }
}

fn change(at: &AtArgs, of: &TargetName, request: &TargetRequest) -> Result<HostChanged> {
    let FoundTarget { mut control, report } = at.one_target(of.target.as_deref())?;
    control.ask(request, TIMEOUT, format_args!("target `{}`", report.name))
}

fn run_add(at: &AtArgs, add: &Add, output: Format) -> Result<()> {
    let &Add { ref name, host_key: key, iops, bytes_per_second, ref of } = add;
    let host = AddedHost { name: name.clone(), key, iops, bytes_per_second };
    let done = change(at, of, &TargetRequest::AddHost { host })?;
    let (target, fingerprint) = (&done.target, key.fingerprint());
    let text = match done.changed {
        true => format!("{target} lets {name} in ({fingerprint}), to exports that name it\n"),
        false => format!("{target} lets {name} in ({fingerprint}) already\n"),
    };
    show(output, || Output::HostChanged(done.clone()), || text)
}

fn run_remove(at: &AtArgs, Remove { name, of }: &Remove, output: Format) -> Result<()> {
    let done = change(at, of, &TargetRequest::RemoveHost { host: name.clone() })?;
    let ended = sessions_end(done.sessions_ended);
    let text = format!("{} does not let {name} in any more{ended}\n", done.target);
    show(output, || Output::HostChanged(done.clone()), || text)
}

fn run_list(at: &AtArgs, List { target }: &List, output: Format) -> Result<()> {
    let found = at.targets_named(target.as_deref())?.into_iter();
    let list = found.map(known).collect::<Result<Vec<_>>>()?;
    let text = || {
        let mut table = Table::new(["TARGET", "HOST", "KEY", "", "CONNECTED"]);
        for known in &list {
            let silent = known.problem.iter();
            let silent =
                silent.map(|_| [&*known.target, "(silent)", "", "", ""].map(str::to_owned));
            let rows = known.hosts.iter().map(|host| row(&known.target, host));
            silent.chain(rows).for_each(|row| table.row(row));
        }
        table.to_string()
    };
    show(output, || Output::HostList { targets: list.clone() }, text)
}

/// The hosts that a target knows by their keys.
fn known(FoundTarget { mut control, report }: FoundTarget) -> Result<KnownHosts> {
    let TargetReport { name, problem, .. } = &report;
    if problem.is_some() {
        let (target, problem) = (name.clone(), problem.clone());
        return Ok(KnownHosts { target, problem, hosts: Vec::new() });
    }
    let what = format_args!("target `{name}`");
    let mut known: KnownHosts = control.ask(&TargetRequest::Hosts, TIMEOUT, what)?;
    note_connected(&mut known.hosts, &report);
    Ok(known)
}

/// Notes the exports that hosts have connected, as a target reports them.
fn note_connected(hosts: &mut [KnownHost], report: &TargetReport) {
    let mut connected = BTreeMap::<&str, BTreeSet<&str>>::new();
    for export in &report.exports {
        // One without a key may say any name.
        for session in export.sessions.iter().filter(|it| it.key.is_some()) {
            connected.entry(&session.host_name).or_default().insert(&export.export);
        }
    }
    for host in hosts {
        let exports = connected.get(host.host.as_str()).into_iter().flatten();
        host.connected = exports.map(|&export| export.to_owned()).collect();
    }
}

/// A host of a target in the table.
fn row(target: &str, host: &KnownHost) -> [String; 5] {
    let mut what = Vec::new();
    what.extend(match host.defined_by {
        DefinedBy::Command => Some("added".to_owned()),
        DefinedBy::CommandLine => Some("of the command line".to_owned()),
        DefinedBy::File | DefinedBy::Unknown => None,
    });
    what.extend(host.iops.map(|iops| format!("{iops} IOPS")));
    what.extend(host.bytes_per_second.map(|rate| format!("{}/s", bytes(rate))));
    what.extend(host.problem.as_ref().map(|problem| format!("not let in: {problem}")));
    let (keys, what) = (host.fingerprints.join(" "), what.join(", "));
    [target.to_owned(), host.host.clone(), keys, what, host.connected.join(", ")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_connected_what_its_key_has() {
        let report: TargetReport = serde_json::from_value(serde_json::json!({
            "name": "store1",
            "exports": [
                { "export": "vm2", "sessions": [{ "host_name": "node1", "key": "tyche_x" }] },
                { "export": "vm1", "sessions": [
                    { "host_name": "node1", "key": "tyche_x" },
                    { "host_name": "node1", "key": "tyche_x" },
                    { "host_name": "alpha", "key": null },
                ] },
            ],
        }))
        .unwrap();
        let host = |name: &str| KnownHost { host: name.to_owned(), ..KnownHost::default() };
        let mut hosts = ["alpha", "node1"].map(host);
        note_connected(&mut hosts, &report);
        assert_eq!(
            (hosts[0].connected.len(), &hosts[1].connected[..]),
            (0, &["vm1", "vm2"].map(str::to_owned)[..])
        );
    }

    #[test]
    fn a_line_says_where_a_host_is_from_and_why_it_is_not_let_in() {
        let host = KnownHost {
            host: "node1".to_owned(),
            fingerprints: vec!["SHA256:a".to_owned(), "SHA256:b".to_owned()],
            defined_by: DefinedBy::Command,
            problem: Some("its key is that of admin ops".to_owned()),
            iops: Some(1000),
            bytes_per_second: Some(1 << 20),
            ..KnownHost::default()
        };
        let what = "added, 1000 IOPS, 1.0 MiB/s, not let in: its key is that of admin ops";
        assert_eq!(row("store1", &host), ["store1", "node1", "SHA256:a SHA256:b", what, ""]);
    }
}
