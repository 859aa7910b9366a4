//! `tyche discover`: lists the targets and their exports.

use std::time::Duration;

use clap::Args;
use tyche_engine::{Foreign, Found};
use tyche_numa::Placement;
use tyche_proto::wire::{ExportInfo, Name};
use tyche_session::End;
use uuid::Uuid;

use crate::complete;
use crate::error::{Code, Error, Result};
use crate::identity;
use crate::links::LinkArgs;
use crate::output::{Format, Table, bytes, show};
use crate::report::{DiscoveredExport, Output};
use crate::seconds::positive;

/// List the targets that answer, and their exports. The exit code is 3 if there are none, but 0
/// with JSON, which has an empty list then.
#[derive(Args, Debug)]
pub struct DiscoverArgs {
    /// Interface to ask on, or udp:HOST:PORT or tcp:HOST:PORT of a target; may be repeated. By
    /// default all interfaces that are up, except members of a bridge or bond.
    #[arg(long = "link", value_name = "INTERFACE", add = complete::interfaces())]
    links: Vec<String>,

    /// How long to listen for answers.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = positive)]
    timeout: f64,

    /// UUID of the host to ask as, instead of this machine's.
    #[arg(long, value_name = "UUID", value_parser = identity::parse_host)]
    host_id: Option<Uuid>,

    #[command(flatten)]
    pub(crate) link: LinkArgs,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn run(args: &DiscoverArgs) -> Result<()> {
    let placement = Placement::default();
    let links = args.link.open_all(&args.links, End::Host, &placement)?.logged();
    let host = args.host_id.map_or_else(identity::host, Ok)?;
    let timeout = Duration::from_secs_f64(args.timeout);
    let asked: Vec<_> = links.iter().map(|link| link.name().to_owned()).collect();
    let ethertype = args.link.ethertype;
    let discovery = tyche_engine::discover(links, ethertype, host, Name::EMPTY, timeout);
    for foreign in &discovery.foreign {
        let Foreign { link, mac, versions } = foreign;
        tracing::warn!("the target at {mac} on {link} speaks {versions} of the protocol only");
    }
    let found = discovery.found;
    let exports = found
        .iter()
        .flat_map(|found| found.offer.exports.iter().map(move |export| (found, export)));
    if exports.clone().next().is_none() && args.output == Format::Text {
        return Err(nothing(&found, &asked, &discovery.faults, args.link.ethertype));
    }
    show(
        args.output,
        || {
            let exports = exports.clone().map(|(it, export)| report(it, export)).collect();
            Output::Discover { exports }
        },
        || {
            let mut table = Table::new(["EXPORT", "SIZE", "BLOCK", "STATE", "TARGET", "LINK"]);
            for (found, export) in exports.clone() {
                table.row([
                    export.name.to_string(),
                    bytes(export.geometry.size),
                    export.geometry.block_size.to_string(),
                    state(export),
                    format!("{} {}", found.offer.name, found.mac),
                    found.link.clone(),
                ]);
            }
            table.to_string()
        },
    );
    Ok(())
}

/// The error for an empty list.
fn nothing(found: &[Found], asked: &[String], faults: &[String], ethertype: u16) -> Error {
    let message = match found.first() {
        Some(found) => format!(
            "target `{}` answers, and offers nothing to this host: see `hosts` in its \
             configuration",
            found.offer.name
        ),
        // They name their remedies.
        None if faults.len() == asked.len() => faults.join("; "),
        None => format!(
            "no target answers on {}: check cables and VLAN, and that `tyche serve` runs on the \
             same Ethernet with EtherType {ethertype:#06x}",
            asked.join(", ")
        ),
    };
    Error::new(Code::NotFound, message)
}

fn report(found: &Found, export: &ExportInfo) -> DiscoveredExport {
    DiscoveredExport {
        export: export.name.to_string(),
        uuid: export.uuid,
        size: export.geometry.size,
        block_size: export.geometry.block_size,
        read_only: export.geometry.read_only,
        write_cache: export.geometry.write_cache,
        shared: export.shared,
        held: export.held,
        target: found.offer.target,
        target_name: found.offer.name.to_string(),
        mac: found.mac.to_string(),
        interface: found.link.clone(),
    }
}

fn state(export: &ExportInfo) -> String {
    let mut words = Vec::new();
    for (holds, word) in [
        (export.held, "in use"),
        (export.geometry.read_only, "read-only"),
        (export.geometry.write_cache, "write-back"),
        (export.shared, "shared"),
    ] {
        if holds {
            words.push(word);
        }
    }
    if words.is_empty() { "free".into() } else { words.join(", ") }
}
