//! `tyche export snapshot` and `clone`: the disk of an export as it is at one moment.

use std::time::Duration;

use clap::Args;

use super::name::{ExportName, find};
use super::remark_all;
use crate::output::{Format, bytes, show};
use crate::shared::control::TargetRequest;
use crate::shared::error::Result;
use crate::shared::report::{ExportCloned, Output};
use crate::shared::target_control::AtArgs;

/// Time limit for the file system to share all blocks of a disk.
const CLONE_TIMEOUT: Duration = Duration::from_secs(600);

/// Make a snapshot of an export's disk as it is at one moment, and export it read-only.
///
/// The export stays in use. Its disk is a file in a pool (a [[pool]] of target.toml) on XFS or
/// btrfs, or a thin volume in one; the snapshot is another one there, which shares its blocks until
/// they are written. It is what a machine that has lost its power finds: all that was completed
/// before is in it, nothing that has begun since, and no write without those that had completed
/// before it. With a write cache in the host, run `sync` or `fsfreeze` there before. How long
/// writes had to wait is printed.
///
/// Whoever may have the export may have the snapshot, at the same limits. When this returns, it is
/// there after restarts of the target, too. The same again changes nothing; another export for a
/// name that is taken is refused with exit code 10. `tyche export remove --delete` deletes it.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "TOML in the text of --help")]
pub(super) struct Snapshot {
    #[command(flatten)]
    of: ExportName,

    /// The name of the snapshot, as an export and in the pool.
    snapshot: String,
}

/// Make a copy of an export's disk, or of a snapshot, and export it to be written.
///
/// As `tyche export snapshot`, but the copy may be written. Neither sees what is written to the
/// other, and either may be removed first.
#[derive(Args, Debug)]
pub(super) struct CloneDisk {
    #[command(flatten)]
    of: ExportName,

    /// The name of the clone, as an export and in the pool.
    clone: String,
}

pub(super) fn snapshot(
    at: &AtArgs,
    Snapshot { of, snapshot }: &Snapshot,
    to: Format,
) -> Result<()> {
    run(at, (of, snapshot), true, to)
}

pub(super) fn clone(at: &AtArgs, CloneDisk { of, clone }: &CloneDisk, to: Format) -> Result<()> {
    run(at, (of, clone), false, to)
}

fn run(at: &AtArgs, (of, new): (&ExportName, &str), read_only: bool, to: Format) -> Result<()> {
    let (mut control, _) = find(at, of)?;
    let (export, clone) = (of.export.clone(), new.to_owned());
    let request = TargetRequest::CloneExport { export, clone, read_only };
    let what = format_args!("the target of `{}`", of.export);
    let done: ExportCloned = control.ask(&request, CLONE_TIMEOUT, what)?;
    let kind = if read_only { "snapshot" } else { "clone" };
    let ExportCloned { target, export, origin, size, pause_s, .. } = &done;
    let what = format!("{export} ({}), a {kind} of {}", bytes(*size), origin.export);
    let text = match pause_s {
        Some(pause) => {
            let pause = pause * 1000.0;
            format!("{target} exports {what}; writes waited for {pause:.1} ms\n")
        }
        None => format!("{target} exports {what}, already\n"),
    };
    show(to, || Output::ExportCloned(done.clone()), || text)?;
    remark_all(&done.warnings);
    Ok(())
}
