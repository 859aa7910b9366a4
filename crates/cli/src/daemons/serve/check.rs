//! `tyche serve --check`: whether a configuration is valid, and what a running target would do with
//! it.

use std::path::Path;
use std::time::Duration;

use tyche_link::ip::ListenAddress;
use tyche_link::packet::interfaces;
use tyche_numa::Placement;

use super::access::Configured;
use super::config::Config;
use super::exports::export_name;
use super::links::Opener;
use super::own_keys::OwnKeys;
use super::pool::Pool;
use super::{ServeArgs, merged, own_name, reading, vlan};
use crate::output::show;
use crate::shared::control::{TargetRequest, ask};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::report::{CheckReport, Output, PlanReport};
use crate::shared::runtime::CONTROL;
use crate::shared::sessions::targets;

/// Time limit for a running target to make its plan: it asks its ports of FCoE who uses an export.
const PLAN_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks a configuration as far as it does not depend on the state of the machine. `own_keys`: the
/// target's.
///
/// # Errors
/// `Config` or `Usage`, with the mistake.
pub(super) fn validate(config: &Config, own_keys: &OwnKeys, opener: &Opener) -> Result<Configured> {
    for export in &config.export {
        let wrong = |message: String| Error::new(export.place.code(), message);
        export.source().map_err(|error| wrong(format!("{}: {error}", export.described())))?;
        export_name(&export.name).map_err(|error| wrong(error.message))?;
    }
    opener.check(&config.link)?;
    vlan::by_link(&config.fcoe_vlan)?;
    Configured::of(config, &own_keys.public())
}

/// Names of links of which there is no interface now.
pub(super) fn absent(links: &[String]) -> Vec<String> {
    let Ok(interfaces) = interfaces() else { return Vec::new() };
    let is_absent = |link: &&String| {
        !ListenAddress::is_named_by(link) && interfaces.iter().all(|it| it.name != **link)
    };
    links.iter().filter(is_absent).cloned().collect()
}

/// Checks the configuration file, asks the target of that name, and prints what they say.
pub(super) fn run(args: &ServeArgs, path: &Path) -> Result<()> {
    let (config, text) = reading::read(path, true)?;
    let config = merged(args, config)?;
    let (name, _) = own_name(args, &config)?;
    let own_keys = OwnKeys::read(&config)?;
    validate(&config, &own_keys, &Opener::new(args, &config, Placement::default()))?;
    let running = targets()?.into_iter().find(|(_, report)| report.name == name);
    let plan = running.as_ref().map(|(dir, report)| {
        if let Some(problem) = &report.problem {
            return Err(Error::new(Code::Unreachable, format!("target {name}: {problem}")));
        }
        let request = TargetRequest::Plan { path: std::path::absolute(path)?, text };
        let answer = ask::<PlanReport>(&dir.join(CONTROL), &request, PLAN_TIMEOUT);
        answer.context(Code::Other, format_args!("target `{name}`"))?
    });
    let report = CheckReport {
        target: name,
        config: Some(path.display().to_string()),
        running: running.is_some(),
        plan: plan.transpose()?.unwrap_or_default(),
        remarks: absent(&config.link)
            .into_iter()
            .map(|link| format!("there is no interface {link} now: it is served when it is there"))
            .chain(config.pool.iter().filter_map(Pool::remark))
            .collect(),
    };
    show(args.output, || Output::Check(report.clone()), || text_of(&report))
}

fn text_of(report: &CheckReport) -> String {
    let CheckReport { target, config, running, plan, remarks } = report;
    let PlanReport { steps, restart, left_out } = plan;
    let mut lines = vec![format!("{} is valid", config.as_deref().unwrap_or("the command line"))];
    lines.extend(remarks.iter().cloned());
    match (running, steps.is_empty()) {
        (false, _) => lines.push(format!("no target {target} runs on this machine")),
        (true, true) => lines.push(format!("{target} runs, and a reload changes nothing")),
        (true, false) => {
            lines.push(format!("{target} runs, and a reload takes these steps:"));
            lines.extend(steps.iter().map(|step| format!("  {step}")));
        }
    }
    if !restart.is_empty() {
        lines.push("these changes take a restart:".to_owned());
        lines.extend(restart.iter().map(|change| format!("  {change}")));
    }
    if !left_out.is_empty() {
        lines.push("not all that was added by command is served then:".to_owned());
        lines.extend(left_out.iter().map(|reason| format!("  {reason}")));
    }
    lines.iter().map(|line| line.clone() + "\n").collect()
}
