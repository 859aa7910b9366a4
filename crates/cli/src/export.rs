//! `tyche export`: the exports of the targets that run on this machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::complete;
use crate::control::{Request, ask};
use crate::error::{Code, Context, Error, Result};
use crate::output::{Format, bytes, show};
use crate::report::{ExportResized, Output, TargetReport};
use crate::runtime::CONTROL;
use crate::sessions::targets;
use crate::size;

/// Time limit until a file's new size is on its disk, behind earlier writes.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(60);

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

fn size(text: &str) -> Result<u64, String> {
    size::parse(text).map_err(|error| format!("{error}; write 20G"))
}

pub(crate) fn run(command: &ExportCommand) -> Result<()> {
    let Action::Resize(resize) = &command.action;
    let Resize { export, size, target } = resize;
    let (dir, before) = find(export, target.as_deref())?;
    let request = Request::Resize { export: export.clone(), size: *size };
    let answer = ask::<ExportResized>(&dir.join(CONTROL), &request, RESIZE_TIMEOUT);
    let now = answer.context(Code::Other, format_args!("the target of `{export}`"))??;
    let size = bytes(now.size);
    let text = match before == now.size {
        true => format!("{export} has {size} already\n"),
        false => format!("{export} has {size} now, {} before\n", bytes(before)),
    };
    show(command.output, || Output::Export { size_before: before, now }, || text);
    Ok(())
}

/// The directory of the one target of this machine that has the export, and the export's size.
fn find(export: &str, target: Option<&str>) -> Result<(PathBuf, u64)> {
    let named = |(_, report): &(PathBuf, TargetReport)| target.is_none_or(|it| report.name == it);
    let size = |(dir, report): (PathBuf, TargetReport)| {
        let size = report.exports.iter().find(|it| it.export == export)?.size;
        Some((dir, report.name, size))
    };
    let mut found: Vec<_> = targets()?.into_iter().filter(named).filter_map(size).collect();
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(_, name, _)| name.as_str()).collect();
        let message = format!("`{export}` is exported by {}: give --target", names.join(", "));
        return Err(Error::new(Code::Usage, message));
    }
    let (dir, _, size) = found.pop().ok_or_else(|| {
        let by =
            target.map_or_else(|| "no target".to_owned(), |name| format!("no target `{name}`"));
        let message = format!("{by} on this machine exports `{export}`; see `tyche list`");
        Error::new(Code::NotFound, message)
    })?;
    Ok((dir, size))
}
