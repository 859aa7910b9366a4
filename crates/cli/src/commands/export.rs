//! `tyche export`: the exports of the targets on this machine, or of one elsewhere.

mod clone;
mod list;
mod name;
mod rename;
mod set;

use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Args, Subcommand};
use tyche_proto::wire::Geometry;
use uuid::Uuid;

use crate::output::{Format, bytes, remark, show};
use crate::shared::complete;
use crate::shared::control::{AccessChange, NewFile, TargetRequest};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::export::{Export, Initiators, Source};
use crate::shared::rate_limit::{parse_bytes_per_second, parse_iops};
use crate::shared::report::{AccessChanged, ExportChanged, ExportResized, Output};
use crate::shared::seconds::positive;
use crate::shared::target_control::{AtArgs, FoundTarget};
use crate::size;
use clone::{CloneDisk, Snapshot};
use list::List;
use name::{ExportName, find};
use rename::Rename;
use set::Set;

/// Time limit until a file's new size is on its disk, behind earlier writes.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit until a disk is open, or an export removed, beyond what the disk takes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit until a decision about a host is on stable storage.
const ACCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Change what a target exports, while it runs: one on this machine, or with --at one elsewhere.
#[derive(Args, Debug)]
pub(crate) struct ExportCommand {
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
    Add(Box<Add>),
    Remove(Remove),
    Rename(Rename),
    Set(Set),
    Snapshot(Snapshot),
    Clone(CloneDisk),
    List(List),
    Resize(Resize),
    Allow(Access),
    Deny(Deny),
    Evict(Evict),
    Revert(Revert),
}

/// Serve one more disk, from now on and after restarts of the target.
///
/// With --pool and --size a file or a thin volume is made for it, in that [[pool]] of target.toml:
/// zeroes, which take no room before they are written. Nothing that is there is overwritten.
///
/// The target keeps it in its state, beside its configuration, before this returns. The same again
/// changes nothing; another disk, or other properties, for a name that is taken are refused with
/// exit code 10. If the configuration has an export of that name one day, it counts, and not this.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "TOML in the text of --help")]
struct Add {
    /// The export: NAME=PATH for a file or block device, NAME=mem:SIZE, NAME=sparse:SIZE or
    /// NAME=null:SIZE, as for `tyche serve --export`. With --pool its name alone.
    #[arg(value_name = "NAME[=PATH]")]
    export: String,

    /// Make a disk for it in this pool.
    #[arg(long, requires = "size")]
    pool: Option<String>,

    /// The size of that disk: bytes, or a size such as 20G (binary).
    #[arg(long, requires = "pool", value_parser = size)]
    size: Option<u64>,

    /// Its UUID. By default one is made, and kept as long as the export is there.
    #[arg(long)]
    uuid: Option<Uuid>,

    /// Refuse writes.
    #[arg(long)]
    read_only: bool,

    /// Let completed writes be volatile until the host flushes.
    #[arg(long)]
    write_back: bool,

    /// Bytes in a block: 512 or 4096.
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    block_size: Option<u32>,

    /// Let several hosts write at once: only for cluster file systems.
    #[arg(long)]
    shared: bool,

    /// The most requests of its hosts in a second, together.
    #[arg(long, value_name = "NUMBER", value_parser = parse_iops)]
    iops: Option<NonZeroU64>,

    /// The most bytes that its hosts read and write in a second, together: a size such as 200M.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_per_second)]
    bytes_per_second: Option<NonZeroU64>,

    /// Host with a key that may connect, by the name of its [[host]], or that of `tyche host add`;
    /// may be repeated. By default every [[host]], and none that was added by command.
    #[arg(long = "allow", value_name = "HOST")]
    allow: Vec<String>,

    /// Host without a key that may connect, by its UUID; may be repeated. By default all of them.
    #[arg(long = "host", value_name = "UUID")]
    hosts: Vec<Uuid>,

    /// Port that may know of it over FCoE: its WWPN, or `any`. May be repeated. By default all,
    /// unless hosts have to show who they are: then it must be said.
    #[arg(long = "fcoe-initiator", value_name = "WWPN", value_parser = Initiators::parse)]
    initiators: Vec<Initiators>,

    /// Take this disk although the last one of that name was another.
    #[arg(long)]
    accept_changed_disk: bool,

    /// The target, if several run on this machine.
    #[arg(long, value_name = "NAME", add = complete::served_targets())]
    target: Option<String>,
}

/// Serve a disk no more that `tyche export add` has added.
///
/// Refused with exit code 7 while hosts have it connected; with --force, their sessions end with
/// errors, and what they have written and not flushed may be lost. When this returns, nothing of
/// them is with the disk any more; if that takes longer than --timeout, the exit code is 9. What is
/// on the disk is not touched, unless --delete is given. What the target knows of the export is
/// forgotten: added again, it is another disk for hosts.
#[derive(Args, Debug)]
struct Remove {
    #[command(flatten)]
    of: ExportName,

    /// Even if hosts have it connected: their sessions end.
    #[arg(long)]
    force: bool,

    /// Delete its file or volume, which is in a pool, for good. Its snapshots and clones stay.
    #[arg(long)]
    delete: bool,

    /// How long to wait for requests that are with the disk.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = positive)]
    timeout: f64,
}

/// Make an export larger. Hosts that are connected see the new size at once.
///
/// A file is lengthened to SIZE, and so is a thin volume in a [[pool]]. Enlarge another device
/// first (lvextend), then leave SIZE out. Exports never shrink. Disks in memory keep their size.
/// What is on the disk is not touched: grow the file system on the host (resize2fs, xfs_growfs).
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "TOML in the text of --help")]
struct Resize {
    #[command(flatten)]
    of: ExportName,

    /// Bytes, or a size such as 20G (binary), in all. By default what its file or device has now.
    #[arg(value_parser = size)]
    size: Option<u64>,
}

/// Let a host have an export, at once and after restarts of the target.
///
/// It takes back `deny` and `evict`. If the configuration does not let the host in, this does,
/// until `deny` or `revert`, or until the configuration says the same. The target knows the key of
/// a host with one by its [[host]] in the configuration, or by `tyche host add`. Over FCoE a port
/// is let in by its WWPN.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "TOML in the text of --help")]
struct Access {
    #[command(flatten)]
    of: ExportName,

    /// The host: the name of its [[host]], or that of `tyche host add`, or the UUID of a host
    /// without a key. Over FCoE a port: its WWPN.
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
    of: ExportName,

    /// The host. By default all of this export.
    host: Option<String>,
}

fn size(text: &str) -> Result<u64, String> {
    size::parse(text).map_err(|error| format!("{error}; write 20G"))
}

pub(crate) fn run(command: &ExportCommand) -> Result<()> {
    let ExportCommand { action, at, output } = command;
    let (of, host, change) = match action {
        Action::Add(add) => return run_add(at, add, *output),
        Action::Remove(remove) => return run_remove(at, remove, *output),
        Action::Rename(rename) => return rename::run(at, rename, *output),
        Action::Set(set) => return set::run(at, set, *output),
        Action::Snapshot(of) => return clone::snapshot(at, of, *output),
        Action::Clone(of) => return clone::clone(at, of, *output),
        Action::List(list) => return list::run(at, list, *output),
        Action::Resize(resize) => return run_resize(at, resize, *output),
        Action::Allow(Access { of, host }) => (of, Some(host), AccessChange::Allow),
        Action::Deny(Deny { access: Access { of, host } }) => (of, Some(host), AccessChange::Deny),
        Action::Evict(Evict { access: Access { of, host }, timeout }) => {
            let limit_ms = (timeout * 1000.0).ceil() as u64;
            (of, Some(host), AccessChange::Evict { limit_ms })
        }
        Action::Revert(Revert { of, host }) => (of, host.as_ref(), AccessChange::Revert),
    };
    change_access(at, of, (host, change), *output)
}

fn block_size(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok().filter(|bytes| Geometry::is_block_size(*bytes));
    bytes.ok_or_else(|| "write 512 or 4096".to_owned())
}

impl Add {
    /// The file that is to be made for it, if any.
    fn new_file(&self) -> Option<NewFile> {
        let (pool, size) = (self.pool.clone()?, self.size?);
        Some(NewFile { pool, size })
    }

    /// The export that it is about. Of a new file the target knows the path.
    fn wanted(&self) -> Result<Export> {
        let mut initiators = Initiators::Unsaid;
        self.initiators.iter().for_each(|said| initiators.add(said));
        let named = match &self.pool {
            Some(pool) => {
                let (name, path) = (self.export.clone(), format!("pool {pool}"));
                Export { name, path, ..Export::default() }
            }
            None => Export::parse(&self.export).map_err(|error| {
                let what = format!("`{}`: {error}; or give --pool and --size", self.export);
                Error::new(Code::Usage, what)
            })?,
        };
        Ok(Export {
            uuid: self.uuid,
            read_only: self.read_only,
            write_back: self.write_back,
            block_size: self.block_size,
            shared: self.shared,
            iops: self.iops,
            bytes_per_second: self.bytes_per_second,
            hosts: self.hosts.clone(),
            allow: (!self.allow.is_empty()).then(|| self.allow.clone()),
            initiators,
            ..named
        })
    }
}

fn run_add(at: &AtArgs, add: &Add, output: Format) -> Result<()> {
    let new_file = add.new_file();
    let export = match new_file {
        Some(_) => add.wanted()?,
        None => absolute(add.wanted()?, at.is_elsewhere())?,
    };
    let name = export.name.clone();
    let FoundTarget { mut control, report } = at.one_target(add.target.as_deref())?;
    let target = report.name;
    let accept_changed_disk = add.accept_changed_disk;
    let request =
        TargetRequest::AddExport { export: Box::new(export), accept_changed_disk, new_file };
    let what = format_args!("target `{target}`");
    let done: ExportChanged = control.ask(&request, CHANGE_TIMEOUT, what)?;
    let size = bytes(done.size.unwrap_or_default());
    let text = match done.changed {
        true => format!("{target} exports {name} ({size})\n"),
        false => format!("{target} exports {name} ({size}) already\n"),
    };
    show(output, || Output::ExportChanged(done.clone()), || text)?;
    remark_all(&done.warnings);
    Ok(())
}

/// The export with an absolute path: the target runs in another directory, and one elsewhere
/// knows no directory of ours.
fn absolute(export: Export, is_elsewhere: bool) -> Result<Export> {
    match export.source() {
        Ok(Source::File(path)) if is_elsewhere && path.is_relative() => {
            let what = format!("{}: give the absolute path at the target", path.display());
            Err(Error::new(Code::Usage, what))
        }
        Ok(Source::File(path)) => {
            let whole = std::path::absolute(&path).context(Code::Usage, path.display())?;
            let message = || Error::new(Code::Usage, format!("{}: not UTF-8", whole.display()));
            let path = whole.to_str().ok_or_else(message)?.to_owned();
            Ok(Export { path, ..export })
        }
        _ => Ok(export),
    }
}

fn run_remove(at: &AtArgs, remove: &Remove, output: Format) -> Result<()> {
    let &Remove { ref of, force, delete, timeout } = remove;
    let export = &of.export;
    let (mut control, _) = find(at, of)?;
    let (export, limit_ms) = (export.clone(), (timeout * 1000.0).ceil() as u64);
    let request = TargetRequest::RemoveExport { export: export.clone(), force, delete, limit_ms };
    let limit = CHANGE_TIMEOUT + Duration::from_millis(limit_ms);
    let what = format_args!("the target of `{export}`");
    let done: ExportChanged = control.ask(&request, limit, what)?;
    let ended = sessions_end(done.sessions_ended);
    let file = if delete { "; its disk is deleted" } else { "; its disk is left as it is" };
    let text = format!("{} does not export {export} any more{ended}{file}\n", done.target);
    show(output, || Output::ExportChanged(done.clone()), || text)
}

/// Prints warnings about a change that was made.
fn remark_all(warnings: &[String]) {
    warnings.iter().for_each(|warning| remark(format_args!("tyche: {warning}")));
}

/// The end of a line that says how many sessions a change ends.
pub(crate) fn sessions_end(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => "; its session ends".to_owned(),
        count => format!("; {count} sessions end"),
    }
}

fn change_access(
    at: &AtArgs,
    of: &ExportName,
    (host, change): (Option<&String>, AccessChange),
    output: Format,
) -> Result<()> {
    let export = &of.export;
    let (mut control, _) = find(at, of)?;
    let request = TargetRequest::Access { export: export.clone(), host: host.cloned(), change };
    let timeout = match change {
        AccessChange::Evict { limit_ms } => ACCESS_TIMEOUT + Duration::from_millis(limit_ms),
        _ => ACCESS_TIMEOUT,
    };
    let what = format_args!("the target of `{export}`");
    let changed: AccessChanged = control.ask(&request, timeout, what)?;
    let host = changed.host.as_deref().unwrap_or("all hosts");
    let ended = sessions_end(changed.sessions_ended);
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

fn run_resize(at: &AtArgs, Resize { of, size }: &Resize, output: Format) -> Result<()> {
    let export = &of.export;
    let (mut control, before) = find(at, of)?;
    let request = TargetRequest::Resize { export: export.clone(), size: *size };
    let what = format_args!("the target of `{export}`");
    let now: ExportResized = control.ask(&request, RESIZE_TIMEOUT, what)?;
    let size = bytes(now.size);
    let text = match before == now.size {
        true => format!("{export} has {size} already\n"),
        false => format!("{export} has {size} now, {} before\n", bytes(before)),
    };
    let warnings = now.warnings.clone();
    show(output, || Output::Export { size_before: before, now }, || text)?;
    remark_all(&warnings);
    Ok(())
}
