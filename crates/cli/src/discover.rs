//! `tyche discover`: lists the targets and their exports.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tyche_engine::{Discovery, Foreign, Found};
use tyche_link::ip::DEFAULT_PORT;
use tyche_link::udp::segment::{SEARCH_PORT, Search};
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
    /// Interface to ask on, or udp:HOST:PORT or tcp:HOST:PORT of a target, or just udp: to look for
    /// targets over UDP on the segments of this machine; may be repeated. By default all interfaces
    /// that are up, except members of a bridge or bond.
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

/// The link that stands for all targets over UDP on the segments of this machine.
const UDP: &str = "udp:";

/// The links of a discovery, and what became of them.
struct Asked {
    /// The links.
    links: Vec<String>,
    /// Faults of links, with their remedies.
    faults: Vec<String>,
    /// The search over UDP.
    search: Option<Search>,
}

/// Asks, and listens for the time that `args` say: for half of it for addresses over UDP if these
/// are to be found out, and for the rest for the answers.
fn ask(args: &DiscoverArgs) -> Result<(Discovery, Asked)> {
    let host = args.host_id.map_or_else(identity::host, Ok)?;
    let (mut named, mut time) = (args.links.clone(), Duration::from_secs_f64(args.timeout));
    let mut search = None;
    if named.iter().any(|link| link == UDP) {
        time /= 2;
        let found = tyche_engine::search(host, time)?;
        named.retain(|link| link != UDP);
        named.extend(found.found.iter().map(|address| format!("{UDP}{address}")));
        search = Some(found);
    }
    // Without a name all interfaces would be asked.
    let links = if search.is_some() && named.is_empty() {
        Vec::new()
    } else {
        args.link.open_all(&named, End::Host, &Placement::default())?.logged()
    };
    let names = links.iter().map(|link| link.name().to_owned()).collect();
    let mut asked = Asked { links: names, faults: Vec::new(), search };
    if links.is_empty() {
        return Ok((Discovery::default(), asked));
    }
    let ethertype = args.link.ethertype;
    let mut discovery = tyche_engine::discover(links, ethertype, host, Name::EMPTY, time);
    asked.faults = std::mem::take(&mut discovery.faults);
    if let Some(search) = &asked.search {
        prefer_lasting(&mut discovery.found, &search.found);
    }
    Ok((discovery, asked))
}

/// Leaves out addresses of IPv6 that are good on their segment only, of targets that have others.
fn prefer_lasting(found: &mut Vec<Found>, searched: &[SocketAddr]) {
    let is_local = |found: &Found| {
        let mut searched = searched.iter().filter(|it| format!("{UDP}{it}") == found.link);
        searched.any(|it| matches!(it, SocketAddr::V6(it) if it.ip().is_unicast_link_local()))
    };
    let lasting = found.iter().filter(|it| !is_local(it)).map(|it| it.offer.target);
    let lasting: Vec<_> = lasting.collect();
    found.retain(|it| !is_local(it) || !lasting.contains(&it.offer.target));
}

pub(crate) fn run(args: &DiscoverArgs) -> Result<()> {
    let (discovery, asked) = ask(args)?;
    for foreign in &discovery.foreign {
        let Foreign { link, mac, versions } = foreign;
        tracing::warn!("the target at {mac} on {link} speaks {versions} of the protocol only");
    }
    let found = discovery.found;
    let exports = found
        .iter()
        .flat_map(|found| found.offer.exports.iter().map(move |export| (found, export)));
    if exports.clone().next().is_none() && args.output == Format::Text {
        return Err(nothing(&found, &asked, args.link.ethertype));
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
fn nothing(found: &[Found], asked: &Asked, ethertype: u16) -> Error {
    let Asked { links, faults, search } = asked;
    if let Some(found) = found.first() {
        let message = format!(
            "target `{}` answers, and offers nothing to this host: see `hosts` in its \
             configuration",
            found.offer.name
        );
        return Error::new(Code::NotFound, message);
    }
    let mut parts: Vec<_> = search.iter().map(unanswered).collect();
    if !links.is_empty() && faults.len() == links.len() {
        // They name their remedies.
        parts.extend(faults.iter().cloned());
    } else if !links.is_empty() {
        parts.push(format!(
            "no target answers on {}: check cables and VLAN, and that `tyche serve` runs on the \
             same Ethernet with EtherType {ethertype:#06x}",
            links.join(", ")
        ));
    }
    Error::new(Code::NotFound, parts.join("; "))
}

/// Why a search over UDP has led to nothing.
fn unanswered(search: &Search) -> String {
    let Search { found, asked, faults } = search;
    if let Some(place) = found.first() {
        return format!(
            "a target at {place} has answered a broadcast, but not a question of its own"
        );
    }
    if asked.is_empty() && faults.is_empty() {
        return "no interface with an address of IP is up".to_owned();
    }
    let faults = faults.iter().map(|fault| format!("{fault}; ")).collect::<String>();
    if asked.is_empty() {
        return faults.trim_end_matches("; ").to_owned();
    }
    format!(
        "{faults}no target answers over UDP on {}: check that `tyche serve --link udp:ADDRESS` \
         runs on that segment, and that firewalls let pass UDP port {SEARCH_PORT} there, and \
         answers from port {DEFAULT_PORT} here; beyond a router, name the target: --link udp:HOST",
        asked.join(", ")
    )
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
