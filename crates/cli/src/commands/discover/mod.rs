//! `tyche discover`: lists the targets and their exports.

mod fcoe;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tyche_fcoe::fc::network::Mode;
use tyche_fcoe::fc::wire::Wwn;
use tyche_link::ip::{DEFAULT_PORT, ListenAddress};
use tyche_link::udp::segment::{SEARCH_PORT, Search};
use tyche_native::{Discovery, Foreign, Found};
use tyche_numa::Placement;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{ExportInfo, Name};
use tyche_remote::LinkFault;
use tyche_session::End;
use tyche_session::fcoe::{parse_mode, parse_wwpn};
use uuid::Uuid;

use crate::output::{Format, Table, bytes, show};
use crate::shared::complete;
use crate::shared::error::{Code, Error, Result};
use crate::shared::identity;
use crate::shared::keys::public_key;
use crate::shared::links::LinkArgs;
use crate::shared::report::{DiscoveredExport, Output};
use crate::shared::seconds::positive;

/// List the targets that answer, and their exports. The exit code is 3 if there are none, but 0
/// with JSON, which has an empty list then.
#[derive(Args, Debug)]
pub struct DiscoverArgs {
    /// Interface to ask on, or udp:, tcp: or rdma:HOST:PORT of a target, or just udp: to look for
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

    /// Public key of a target, as `tyche key show` prints it there: it answers also if it is
    /// silent.
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    target_key: Option<PublicKey>,

    /// List the ports of Fibre Channel over Ethernet instead, Tyche's and others', and the disks
    /// that targets among them show to this machine. For that it logs in to them, and waits for 5 s
    /// more at most.
    #[arg(long, conflicts_with_all = ["host_id", "target_key", "ethertype"])]
    fcoe: bool,

    /// The network: vn2vn without a fabric, or fabric if switches for FCoE (FCFs) are there; this
    /// machine logs in with one then, which takes 2 s more.
    #[arg(long, value_name = "MODE", requires = "fcoe", default_value = "vn2vn",
        value_parser = parse_mode)]
    fcoe_mode: Mode,

    /// Name to log in to targets of FCoE with, instead of that of the next session.
    #[arg(long, value_name = "WWPN", requires = "fcoe", value_parser = parse_wwpn)]
    wwpn: Option<Wwn>,

    #[command(flatten)]
    pub(crate) link: LinkArgs,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// The link that stands for all targets over UDP on the segments of this machine.
const UDP: &str = "udp:";

/// The links that were asked, and the search over UDP.
struct Asked {
    /// The links.
    links: Vec<String>,
    /// The search over UDP.
    search: Option<Search>,
}

/// Asks, and listens for the time that `args` say: for half of it for addresses over UDP if these
/// are to be found out, and for the rest for the answers.
fn ask(args: &DiscoverArgs) -> Result<(Discovery, Asked)> {
    let host = args.host_id.map_or_else(identity::host, Ok)?;
    let key = args.target_key.as_ref();
    let (mut named, mut time) = (args.links.clone(), Duration::from_secs_f64(args.timeout));
    let mut search = None;
    if named.iter().any(|link| link == UDP) {
        time /= 2;
        named.retain(|link| link != UDP);
        search = Some(tyche_native::search((host, key), time)?);
    }
    let (opened, unopened) = match &search {
        None => (args.link.open_available(&named, End::Host, &Placement::default())?, Vec::new()),
        Some(search) => args.link.open_found(&named, &names(search))?,
    };
    let links = opened.logged();
    let asked = Asked { links: links.iter().map(|link| link.name().to_owned()).collect(), search };
    let mut discovery = Discovery::default();
    if !links.is_empty() {
        let ethertype = args.link.ethertype;
        discovery = tyche_native::discover(links, ethertype, (host, key), Name::EMPTY, time);
    }
    let unopened = unopened.into_iter();
    let unopened = unopened.map(|(link, error)| LinkFault { link, message: error.to_string() });
    discovery.faults.extend(unopened);
    if let Some(search) = &asked.search {
        prefer_lasting(&mut discovery.found, &search.found);
    }
    Ok((discovery, asked))
}

/// The names of the links to the addresses that were found.
fn names(search: &Search) -> Vec<String> {
    search.found.iter().map(|address| format!("{UDP}{address}")).collect()
}

/// Leaves out addresses of IPv6 that are good on their segment only, of targets that have others.
fn prefer_lasting(found: &mut Vec<Found>, searched: &[SocketAddr]) {
    let is_local = |found: &Found| {
        let mut searched = searched.iter().filter(|it| format!("{UDP}{it}") == found.link);
        searched.any(|it| matches!(it, SocketAddr::V6(it) if it.ip().is_unicast_link_local()))
    };
    // A target over UDP is to stay in the list with a link over UDP.
    let lasting = found.iter().filter(|it| it.link.starts_with(UDP) && !is_local(it));
    let lasting: Vec<_> = lasting.map(|it| it.offer.target).collect();
    found.retain(|it| !is_local(it) || !lasting.contains(&it.offer.target));
}

pub(crate) fn run(args: &DiscoverArgs) -> Result<()> {
    if args.fcoe {
        return fcoe::run(args);
    }
    let (discovery, asked) = ask(args)?;
    for foreign in &discovery.foreign {
        let Foreign { link, mac, versions } = foreign;
        tracing::warn!("the target at {mac} on {link} speaks {versions} of the protocol only");
    }
    let exports = discovery
        .found
        .iter()
        .flat_map(|found| found.offer.exports.iter().map(move |export| (found, export)));
    if exports.clone().next().is_none() && args.output == Format::Text {
        return Err(nothing(&discovery, &asked, args.link.ethertype));
    }
    for fault in &discovery.faults {
        tracing::warn!("{}", fault.message);
    }
    for listing in discovery.listings().iter().filter(|it| it.missing() > 0) {
        let (name, missing) = (listing.name, listing.missing());
        tracing::warn!(
            "target {name} has {missing} more exports, not heard in time: see --timeout"
        );
    }
    show(
        args.output,
        || {
            let exports = exports.clone().map(|(it, export)| report(it, export)).collect();
            Output::Discover { exports, ports: Vec::new(), vlans: Vec::new() }
        },
        || {
            let title = if discovery.found.iter().any(|it| key(it).is_some()) { "KEY" } else { "" };
            let head = ["EXPORT", "SIZE", "BLOCK", "STATE", "TARGET", "LINK", title];
            let mut table = Table::new(head);
            for (found, export) in exports.clone() {
                table.row([
                    export.name.to_string(),
                    bytes(export.geometry.size),
                    export.geometry.block_size.to_string(),
                    state(export),
                    format!("{} {}", found.offer.name, found.mac),
                    found.link.clone(),
                    key(found).map(|key| key.fingerprint()).unwrap_or_default(),
                ]);
            }
            table.to_string()
        },
    )
}

/// The error for an empty list.
fn nothing(discovery: &Discovery, asked: &Asked, ethertype: u16) -> Error {
    let Discovery { found, foreign, faults } = discovery;
    // They name their remedies.
    let mut parts: Vec<_> = faults.iter().map(|fault| fault.message.clone()).collect();
    parts.extend(foreign.iter().map(|foreign| {
        format!(
            "the target on {} speaks another version of the protocol: install the same release \
             on both",
            foreign.link
        )
    }));
    if let Some(found) = found.first() {
        parts.push(format!(
            "target `{}` answers, and offers nothing to this host: see `hosts` in its \
             configuration",
            found.offer.name
        ));
        return Error::new(Code::NotFound, parts.join("; "));
    }
    parts.extend(asked.search.iter().flat_map(unanswered));
    let is_explained = |link: &String| {
        faults.iter().any(|it| it.link == *link) || foreign.iter().any(|it| it.link == *link)
    };
    let searched: Vec<_> = asked.search.iter().flat_map(names).collect();
    let silent = asked.links.iter().map(String::clone).filter(|link| !is_explained(link));
    let (searched, silent): (Vec<_>, Vec<_>) = silent.partition(|link| searched.contains(link));
    if !searched.is_empty() {
        parts.push(format!(
            "a broadcast has been answered from {}, but not a question of its own",
            searched.join(", ")
        ));
    }
    let (named, silent): (Vec<_>, Vec<_>) =
        silent.into_iter().partition(|link| ListenAddress::is_named_by(link));
    if !silent.is_empty() {
        parts.push(format!(
            "no target answers on {}: check cables and VLAN, and that `tyche serve` runs on the \
             same Ethernet with EtherType {ethertype:#06x}; `--link udp:` asks for targets over \
             UDP",
            silent.join(", ")
        ));
    }
    parts.extend(named.iter().map(|link| {
        format!(
            "no target answers at {link}: check address and port, that `tyche serve --link \
             {link}` runs there, and that firewalls let it pass"
        )
    }));
    Error::new(Code::NotFound, parts.join("; "))
}

/// The reasons for a search over UDP without a result, with their remedies.
fn unanswered(search: &Search) -> Vec<String> {
    let Search { found, asked, faults } = search;
    let mut reasons = faults.clone();
    if asked.is_empty() && faults.is_empty() {
        reasons.push("no interface with an address of IP is up".to_owned());
    } else if found.is_empty() && !asked.is_empty() {
        reasons.push(format!(
            "no target answers over UDP on {}: check that `tyche serve --link udp:ADDRESS` runs \
             on that segment, and that firewalls let pass UDP port {SEARCH_PORT} there, and \
             answers from port {DEFAULT_PORT} here; beyond a router, name the target: --link \
             udp:HOST",
            asked.join(", ")
        ));
    }
    reasons
}

/// The key that a target says, if it may be one.
fn key(found: &Found) -> Option<PublicKey> {
    PublicKey::from_bytes(found.offer.key?).ok()
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
        offline: is_offline(export),
        target: found.offer.target,
        target_name: found.offer.name.to_string(),
        mac: found.mac.to_string(),
        interface: found.link.clone(),
        target_key: key(found).map(|key| key.to_string()),
        target_fingerprint: key(found).map(|key| key.fingerprint()),
    }
}

/// Whether the disk is missing at the target: it has no bytes then.
fn is_offline(export: &ExportInfo) -> bool {
    export.geometry.size == 0
}

fn state(export: &ExportInfo) -> String {
    if is_offline(export) {
        return "offline".into();
    }
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

#[cfg(test)]
mod tests {
    use tyche_proto::wire::{Mac, Offer, Versions};

    use super::*;

    const LOCAL: &str = "udp:[fe80::1%2]:8650";
    /// A target that was named, and did not have to be found.
    const ADDRESS: &str = "udp:10.8.0.3:8650";

    /// The links with which a target stays in the list that was found with `links`.
    fn kept(links: &[&str]) -> Vec<String> {
        let found = links.iter().map(|&link| Found {
            link: link.to_owned(),
            mac: Mac([0; 6]),
            offer: Offer {
                nonce: 1,
                versions: Versions::OURS,
                target: Uuid::from_u128(1),
                name: Name::EMPTY,
                first: 0,
                total: 0,
                exports: Default::default(),
                key: None,
            },
        });
        let mut found: Vec<_> = found.collect();
        prefer_lasting(&mut found, &["[fe80::1%2]:8650".parse().unwrap()]);
        found.into_iter().map(|it| it.link).collect()
    }

    #[test]
    fn an_address_of_one_segment_is_left_out_for_another_one_over_udp_only() {
        assert_eq!(kept(&["udp:10.8.0.1:8650", LOCAL]), ["udp:10.8.0.1:8650"]);
        assert_eq!(kept(&["eth0", "tcp:10.8.0.1:8650", LOCAL]).len(), 3);
    }

    fn explained(discovery: &Discovery, links: &[&str], found: &[&str]) -> String {
        let links = links.iter().map(|&link| link.to_owned()).collect();
        let found = found.iter().map(|it| it.parse().unwrap()).collect();
        let search = Some(Search { found, asked: vec!["eth0".to_owned()], faults: Vec::new() });
        nothing(discovery, &Asked { links, search }, 0x88b5).to_string()
    }

    #[test]
    fn each_link_without_an_answer_has_its_own_reason() {
        let fault = |link: &str| LinkFault { link: link.to_owned(), message: format!("{link}!") };
        let foreign = Foreign {
            link: "udp:10.8.0.1:8650".to_owned(),
            mac: Mac([0; 6]),
            versions: Versions { min: 9, max: 9 },
        };
        let discovery =
            Discovery { found: Vec::new(), foreign: vec![foreign], faults: vec![fault("eth1")] };
        let links = ["eth1", "eth2", "udp:10.8.0.1:8650", "udp:10.8.0.2:8650", ADDRESS];
        let told = explained(&discovery, &links, &["10.8.0.1:8650", "10.8.0.2:8650"]);
        for part in [
            "eth1!; the target on udp:10.8.0.1:8650 speaks another version",
            "answered from udp:10.8.0.2:8650, but",
            "no target answers on eth2: check cables",
            "no target answers at udp:10.8.0.3:8650: check address and port",
            "`tyche serve --link udp:10.8.0.3:8650` runs there, and that firewalls",
        ] {
            assert!(told.contains(part), "{told}");
        }
        // Not even a socket: there is no route.
        let faults = vec![fault("udp:10.8.0.1:8650")];
        let discovery = Discovery { faults, ..Discovery::default() };
        assert_eq!(explained(&discovery, &[], &["10.8.0.1:8650"]), "udp:10.8.0.1:8650!");
    }
}
