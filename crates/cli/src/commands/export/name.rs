//! The export that a command is about.

use clap::Args;

use crate::shared::complete;
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::TargetReport;
use crate::shared::target_control::{AtArgs, FoundTarget, TargetControl};

/// An export of a target.
#[derive(Args, Debug)]
pub(super) struct ExportName {
    /// The export.
    #[arg(add = complete::served_exports())]
    pub(super) export: String,

    /// The target that exports it, if several on this machine do.
    #[arg(long, value_name = "NAME", add = complete::served_targets())]
    pub(super) target: Option<String>,
}

/// The one target that has the export, and the export's size.
pub(super) fn find(
    at: &AtArgs,
    ExportName { export, target }: &ExportName,
) -> Result<(TargetControl, u64)> {
    let mut found = at.targets()?;
    found.retain(|it| target.as_ref().is_none_or(|name| it.report.name == *name));
    let problem = |it: &FoundTarget| {
        let problem = it.report.problem.as_ref();
        problem.map(|problem| format!("target {}: {problem}", it.report.name))
    };
    let silent = found.iter().find_map(problem);
    let size = |report: &TargetReport| {
        report.exports.iter().find(|it| it.export == *export).map(|it| it.size)
    };
    found.retain(|it| size(&it.report).is_some());
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|it| it.report.name.as_str()).collect();
        let message = format!("`{export}` is exported by {}: give --target", names.join(", "));
        return Err(Error::new(Code::Usage, message));
    }
    let found = found.pop().and_then(|it| Some((it.control, size(&it.report)?)));
    found.ok_or_else(|| {
        if let Some(silent) = silent {
            // It may be the one that exports it.
            return Error::new(Code::Unreachable, silent);
        }
        let by = target.as_ref();
        let by = by.map_or_else(|| "no target".to_owned(), |name| format!("no target `{name}`"));
        let (place, list) = (at.place(), at.list_command());
        let message = format!("{by} {place} exports `{export}`; see {list}");
        Error::new(Code::NotFound, message)
    })
}
