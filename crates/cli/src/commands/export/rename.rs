//! `tyche export rename`: another name for an export.

use clap::Args;

use super::CHANGE_TIMEOUT;
use super::name::{ExportName, find};
use crate::output::{Format, show};
use crate::shared::control::TargetRequest;
use crate::shared::error::{Code, Result};
use crate::shared::report::{ExportChanged, Output};
use crate::shared::target_control::AtArgs;

/// Give an export that `tyche export add` has added another name.
///
/// It stays the same disk for hosts: with its UUID, its LUN, its last writer, its limits, and who
/// may have it. Its file in a pool is renamed with it if it has the name of the export. Clones of
/// it are shown as clones of the new name.
///
/// Refused with exit code 7 while a host has it connected, because hosts look for an export by its
/// name when their target is back: disconnect it there, and change tychetab. Hosts of FCoE know it
/// by its LUN, and go on. When this returns, it is renamed for good; if the target is killed
/// before, it has the one name or the other. The same again changes nothing; a name that is taken
/// is refused with exit code 10. An export of the configuration is renamed there.
#[derive(Args, Debug)]
pub(super) struct Rename {
    #[command(flatten)]
    of: ExportName,

    /// The new name.
    #[arg(value_name = "NEW")]
    to: String,
}

pub(super) fn run(at: &AtArgs, Rename { of, to }: &Rename, output: Format) -> Result<()> {
    let found = find(at, of).or_else(|error| {
        // It may be renamed already.
        let ExportName { target, .. } = of;
        let renamed = ExportName { export: to.clone(), target: target.clone() };
        match error.code {
            Code::NotFound => find(at, &renamed).map_err(|_| error),
            _ => Err(error),
        }
    });
    let (mut control, _) = found?;
    let export = of.export.clone();
    let request = TargetRequest::RenameExport { export: export.clone(), to: to.clone() };
    let what = format_args!("the target of `{export}`");
    let done: ExportChanged = control.ask(&request, CHANGE_TIMEOUT, what)?;
    let text = match done.changed {
        true => format!("{export} of {} is {to} now\n", done.target),
        false => format!("{to} of {} has that name already\n", done.target),
    };
    show(output, || Output::ExportChanged(done.clone()), || text)
}
