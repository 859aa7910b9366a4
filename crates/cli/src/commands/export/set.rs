//! `tyche export set`: other properties of an export.

use std::collections::BTreeSet;

use clap::Args;

use super::name::{ExportName, find};
use super::{CHANGE_TIMEOUT, sessions_end};
use crate::output::{Format, show};
use crate::shared::complete;
use crate::shared::control::TargetRequest;
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::{ExportChanged, Output};
use crate::shared::setting::Setting;
use crate::shared::target_control::AtArgs;

/// Change properties of an export that `tyche export add` has added
///
/// The keys are those of an [[export]] in target.toml. These change under its hosts, at once:
///
///   iops=10000               the most requests of its hosts in a second; or none
///   bytes_per_second=200M    the most bytes that they read and write in a second; or none
///   allow=vmhost1,vmhost2    hosts with a key that may connect, by name; or any
///   hosts=UUID,UUID          hosts without a key that may connect; or any
///   initiators=WWPN,WWPN     ports that may know of it over FCoE; or any
///
/// Sessions of hosts that may not connect any more end. `tyche export allow`, `deny` and `evict`
/// decide about one host, and win over these.
///
/// Hosts learn of these when they connect, so they are refused with exit code 7 while one has it
/// connected; a disk in memory keeps them:
///
///   read_only=true           refuse writes
///   write_back=false         let completed writes be volatile until the host flushes
///   shared=false             let several hosts write at once: only for cluster file systems
///   block_size=4096          or 512
///
/// The size is changed by `tyche export resize`, the name by `tyche export rename`; path and UUID
/// can't change. When this returns, all is kept for after restarts, or nothing has changed. The
/// same again changes nothing. An export of the configuration is changed there.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[allow(rustdoc::broken_intra_doc_links, reason = "TOML in the text of --help")]
pub(super) struct Set {
    #[command(flatten)]
    of: ExportName,

    /// The properties to change.
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = Setting::parse,
        add = complete::settings())]
    settings: Vec<Setting>,
}

pub(super) fn run(at: &AtArgs, Set { of, settings }: &Set, output: Format) -> Result<()> {
    let keys: BTreeSet<_> = settings.iter().map(Setting::key).collect();
    if keys.len() < settings.len() {
        return Err(Error::new(Code::Usage, "a key is given twice"));
    }
    let export = &of.export;
    let (mut control, _) = find(at, of)?;
    let request = TargetRequest::SetExport { export: export.clone(), settings: settings.clone() };
    let what = format_args!("the target of `{export}`");
    let done: ExportChanged = control.ask(&request, CHANGE_TIMEOUT, what)?;
    let ended = sessions_end(done.sessions_ended);
    let text = match done.changed {
        true => format!("{export} of {} is changed{ended}\n", done.target),
        false => format!("{export} of {} is so already\n", done.target),
    };
    show(output, || Output::ExportChanged(done.clone()), || text)
}
