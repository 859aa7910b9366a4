//! `tyche export`: the exports of the targets that run on this machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::output::{Format, bytes, show};
use crate::shared::complete;
use crate::shared::control::{AccessChange, TargetRequest, ask};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::report::{AccessChanged, ExportResized, Output, TargetReport};
use crate::shared::runtime::CONTROL;
use crate::shared::seconds::positive;
use crate::shared::sessions::targets;
use crate::size;

/// Time limit until a file's new size is on its disk, behind earlier writes.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit until a decision about a host is on stable storage.
const ACCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Change what a target on this machine exports, while it runs.
#[derive(Args, Debug)]
pub(crate) struct ExportCommand {
    #[command(subcommand)]
    action: Action,

    /// How to print.
    #[arg(short, long, default_value_t, global = true)]
    pub(crate) output: Format,
}

#[derive(Subcommand, Debug)]
enum Action {
    Resize(Resize),
    Allow(Access),
    Deny(Deny),
    Evict(Evict),
    Revert(Revert),
}

/// Make an export larger. Hosts that are connected see the new size at once.
///
/// A file is lengthened to SIZE. Enlarge a block device first (lvextend), then leave SIZE out.
/// Exports never shrink. Disks in memory keep their size. What is on the disk is not touched: grow
/// the file system on the host (resize2fs, xfs_growfs).
#[derive(Args, Debug)]
struct Resize {
    /// The export.
    #[arg(add = complete::served_exports())]
    export: String,

    /// Bytes, or a size such as 20G (binary), in all. By default what its file or device has now.
    #[arg(value_parser = size)]
    size: Option<u64>,

    /// The target that exports it, if several on this machine do.
    #[arg(long, value_name = "NAME", add = complete::served_targets())]
    target: Option<String>,
}

/// Let a host have an export, at once and after restarts of the target.
///
/// It takes back `deny` and `evict`. If the configuration does not let the host in, this does,
/// until `deny` or `revert`, or until the configuration says the same. A host with a key needs its
/// [[host]] in the configuration all the same: the key is there. Over FCoE a port is let in by its
/// WWPN.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "TOML in the text of --help")]
struct Access {
    #[command(flatten)]
    at: At,

    /// The host: the name of its [[host]], or the UUID of a host without a key. Over FCoE a port:
    /// its WWPN.
    host: String,
}

/// Keep a host out of an export, at once and after restarts of the target.
///
/// Its sessions end at once, with errors for their requests, and new ones are refused. Requests
/// that are with the disk already are still finished: `evict` waits for them. This wins over the
/// configuration, until `allow` or `revert`. From then on hosts without a key are refused at this
/// export, too: the host could come without its key.
///
/// A port of FCoE, by its WWPN, finds no such LUN any more, and its commands are aborted. If a host
/// is named and ports of FCoE may have the export as well, the exit code is 9: the host is kept out
/// on all other links, but which ports are its own can't be told. Name them, too.
#[derive(Args, Debug)]
struct Deny {
    #[command(flatten)]
    access: Access,
}

/// Keep a host out of an export, and make sure that nothing of it reaches the disk any more.
///
/// As `deny`, and returns only when all requests of the host that were with the disk are finished,
/// on all links of the target. From then on it neither reads nor writes, so that another node of a
/// cluster may take over. If that takes longer than --timeout, the exit code is 9: the host is kept
/// out, but what is with the disk may still be written. `tyche export allow` lets it in again.
///
/// A port of FCoE is evicted by its WWPN; a host that may come over FCoE as well, by its name and
/// by the WWPN of each of its ports. As long as any port of FCoE may have the export, the exit code
/// for the name is 9: nobody can tell which of them are that host's.
#[derive(Args, Debug)]
struct Evict {
    #[command(flatten)]
    access: Access,

    /// How long to wait for requests of the host that are with the disk.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = positive)]
    timeout: f64,
}

/// Forget what `allow`, `deny` and `evict` have decided: the configuration counts again.
#[derive(Args, Debug)]
struct Revert {
    #[command(flatten)]
    at: At,

    /// The host. By default all of this export.
    host: Option<String>,
}

/// An export of a target on this machine.
#[derive(Args, Debug)]
struct At {
    /// The export.
    #[arg(add = complete::served_exports())]
    export: String,

    /// The target that exports it, if several on this machine do.
    #[arg(long, value_name = "NAME", add = complete::served_targets())]
    target: Option<String>,
}

fn size(text: &str) -> Result<u64, String> {
    size::parse(text).map_err(|error| format!("{error}; write 20G"))
}

pub(crate) fn run(command: &ExportCommand) -> Result<()> {
    let (at, host, change) = match &command.action {
        Action::Resize(resize) => return run_resize(resize, command.output),
        Action::Allow(Access { at, host }) => (at, Some(host), AccessChange::Allow),
        Action::Deny(Deny { access: Access { at, host } }) => (at, Some(host), AccessChange::Deny),
        Action::Evict(Evict { access: Access { at, host }, timeout }) => {
            let limit_ms = (timeout * 1000.0).ceil() as u64;
            (at, Some(host), AccessChange::Evict { limit_ms })
        }
        Action::Revert(Revert { at, host }) => (at, host.as_ref(), AccessChange::Revert),
    };
    change_access(at, host, change, command.output)
}

fn change_access(
    At { export, target }: &At,
    host: Option<&String>,
    change: AccessChange,
    output: Format,
) -> Result<()> {
    let (dir, _) = find(export, target.as_deref())?;
    let request = TargetRequest::Access { export: export.clone(), host: host.cloned(), change };
    let timeout = match change {
        AccessChange::Evict { limit_ms } => ACCESS_TIMEOUT + Duration::from_millis(limit_ms),
        _ => ACCESS_TIMEOUT,
    };
    let answer = ask::<AccessChanged>(&dir.join(CONTROL), &request, timeout);
    let changed = answer.context(Code::Other, format_args!("the target of `{export}`"))??;
    let host = changed.host.as_deref().unwrap_or("all hosts");
    let ended = match changed.sessions_ended {
        0 => String::new(),
        1 => "; its session ends".to_owned(),
        count => format!("; {count} sessions end"),
    };
    let text = match change {
        AccessChange::Allow => format!("{host} may have {export}\n"),
        AccessChange::Deny => format!("{host} may not have {export}{ended}\n"),
        AccessChange::Evict { .. } => {
            format!("{host} may not have {export}; nothing of it is left there\n")
        }
        AccessChange::Revert => {
            format!("the configuration decides whether {host} may have {export}{ended}\n")
        }
    };
    show(output, || Output::Access(changed.clone()), || text)
}

fn run_resize(Resize { export, size, target }: &Resize, output: Format) -> Result<()> {
    let (dir, before) = find(export, target.as_deref())?;
    let request = TargetRequest::Resize { export: export.clone(), size: *size };
    let answer = ask::<ExportResized>(&dir.join(CONTROL), &request, RESIZE_TIMEOUT);
    let now = answer.context(Code::Other, format_args!("the target of `{export}`"))??;
    let size = bytes(now.size);
    let text = match before == now.size {
        true => format!("{export} has {size} already\n"),
        false => format!("{export} has {size} now, {} before\n", bytes(before)),
    };
    show(output, || Output::Export { size_before: before, now }, || text)
}

/// The directory of the one target of this machine that has the export, and the export's size.
fn find(export: &str, target: Option<&str>) -> Result<(PathBuf, u64)> {
    let named = |(_, report): &(PathBuf, TargetReport)| target.is_none_or(|it| report.name == it);
    let size = |(dir, report): (PathBuf, TargetReport)| {
        let size = report.exports.iter().find(|it| it.export == export)?.size;
        Some((dir, report.name, size))
    };
    let found: Vec<_> = targets()?.into_iter().filter(named).collect();
    let problem = |(_, report): &(PathBuf, TargetReport)| {
        report.problem.as_ref().map(|problem| format!("target {}: {problem}", report.name))
    };
    let silent = found.iter().find_map(problem);
    let mut found: Vec<_> = found.into_iter().filter_map(size).collect();
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(_, name, _)| name.as_str()).collect();
        let message = format!("`{export}` is exported by {}: give --target", names.join(", "));
        return Err(Error::new(Code::Usage, message));
    }
    let (dir, _, size) = found.pop().ok_or_else(|| {
        if let Some(silent) = silent {
            // It may be the one that exports it.
            return Error::new(Code::Unreachable, silent);
        }
        let by =
            target.map_or_else(|| "no target".to_owned(), |name| format!("no target `{name}`"));
        let message = format!("{by} on this machine exports `{export}`; see `tyche list`");
        Error::new(Code::NotFound, message)
    })?;
    Ok((dir, size))
}
