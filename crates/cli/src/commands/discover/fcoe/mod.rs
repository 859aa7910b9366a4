//! `tyche discover --fcoe`: the ports of Fibre Channel, and the disks of those that are targets.

mod fabric;
mod luns;

use std::collections::BTreeSet;
use std::time::Duration;

use tyche_fcoe::fc::network::Mode;
use tyche_fcoe::{Discovery, FoundVlan, discover};
use tyche_session::fcoe::{Numbers, PortName};

use super::DiscoverArgs;
use crate::output::{Format, Table, show};
use crate::shared::error::{Code, CodedResult, Error, Result};
use crate::shared::report::{DiscoveredPort, DiscoveredVlan, Output};

/// The links that were asked, and remarks about them.
struct Asked {
    links: Vec<String>,
    remarks: Vec<String>,
}

fn ask(args: &DiscoverArgs) -> Result<(Discovery, Asked)> {
    let interfaces = args.link.open_fcoe(&args.links)?;
    let names = interfaces.iter().map(|it| PortName::take(it.mac(), Numbers::Discovery).coded());
    let names: Vec<_> = names.collect::<Result<_>>()?;
    let numbered = interfaces.into_iter().zip(&names);
    let mut asked = Asked { links: Vec::new(), remarks: Vec::new() };
    let links = numbered.map(|(interface, name)| {
        asked.links.push(interface.name().to_owned());
        asked.remarks.extend(interface.warning());
        (interface.fip, name.number)
    });
    let discovery = discover(links.collect(), Duration::from_secs_f64(args.timeout));
    Ok((discovery, asked))
}

pub(super) fn run(args: &DiscoverArgs) -> Result<()> {
    if args.fcoe_mode == Mode::Fabric {
        return fabric::run(args);
    }
    let (discovery, asked) = ask(args)?;
    if discovery.neighbours.is_empty() && args.output == Format::Text {
        return Err(nothing(&discovery, &asked));
    }
    let faults = discovery.faults.iter().map(|fault| &fault.message);
    for remark in faults.chain(&asked.remarks) {
        tracing::warn!("{remark}");
    }
    let ports = luns::find(args, &discovery.neighbours);
    print(args, &ports, &discovery.vlans)
}

fn print(args: &DiscoverArgs, ports: &[DiscoveredPort], vlans: &BTreeSet<FoundVlan>) -> Result<()> {
    let output = || Output::Discover {
        exports: Vec::new(),
        ports: ports.to_vec(),
        vlans: vlans.iter().map(DiscoveredVlan::from).collect(),
    };
    let others = vlans.iter().filter(|vlan| vlan.vid != 0).map(vlan_in_words);
    let text = || others.fold(in_words(ports), |text, vlan| format!("{text}\n{vlan}\n"));
    show(args.output, output, text)
}

/// The ports, and the disks of the targets among them.
fn in_words(ports: &[DiscoveredPort]) -> String {
    let head = ["WWPN", "WWNN", "N_PORT_ID", "FUNCTIONS", "SIZE", "LINK"];
    let mut table = Table::new(head);
    for port in ports {
        table.row([
            port.wwpn.clone(),
            port.wwnn.clone().unwrap_or_else(|| "-".to_owned()),
            port.n_port_id.clone(),
            functions(port).to_owned(),
            port.size.to_string(),
            port.interface.clone(),
        ]);
    }
    let mut text = table.to_string();
    if ports.iter().any(|port| port.target) {
        text += "\n";
        text += &luns::in_words(ports);
    }
    text
}

fn functions(port: &DiscoveredPort) -> &'static str {
    match (port.target, port.initiator) {
        (true, true) => "target, initiator",
        (true, false) => "target",
        (false, true) => "initiator",
        (false, false) => "none",
    }
}

/// The error for an empty list.
fn nothing(discovery: &Discovery, asked: &Asked) -> Error {
    let Discovery { vlans, fabrics, faults, .. } = discovery;
    // They name their remedies.
    let mut parts: Vec<_> = faults.iter().map(|fault| fault.message.clone()).collect();
    parts.extend(vlans.iter().filter(|vlan| vlan.vid != 0).map(vlan_in_words));
    parts.extend(
        fabrics
            .iter()
            .map(|link| format!("a fabric answers on {link}: --fcoe-mode fabric lists its ports")),
    );
    let is_explained = |link: &&String| {
        let has_vlan = vlans.iter().any(|it| it.link == **link && it.vid != 0);
        has_vlan || fabrics.contains(*link) || faults.iter().any(|it| it.link == **link)
    };
    let silent = asked.links.iter().filter(|link| !is_explained(link));
    let silent: Vec<_> = silent.map(String::as_str).collect();
    if !silent.is_empty() {
        parts.push(format!(
            "no port of FCoE answers on {}: check cables and VLAN, and that `tyche serve --fcoe`, \
             or another port without a fabric (VN2VN), is on the same Ethernet",
            silent.join(", ")
        ));
    }
    parts.extend(asked.remarks.iter().cloned());
    Error::new(Code::NotFound, parts.join("; "))
}

fn vlan_in_words(vlan: &FoundVlan) -> String {
    let FoundVlan { link, vid, .. } = vlan;
    format!(
        "FCoE is spoken on VLAN {vid} of {link}: `ip link add link {link} name {link}.{vid} type \
         vlan id {vid}` and `ip link set {link}.{vid} up` make its interface, {link}.{vid}"
    )
}

#[cfg(test)]
mod tests {
    use tyche_fcoe::fc::wire::Mac;
    use tyche_remote::LinkFault;

    use super::*;

    #[test]
    fn each_link_without_an_answer_has_its_own_reason() {
        let link = |name: &str| name.to_owned();
        let discovery = Discovery {
            vlans: [FoundVlan { link: link("eth1"), vid: 7, mac: Mac::default() }].into(),
            fabrics: [link("eth2")].into(),
            faults: vec![LinkFault { link: link("eth3"), message: link("eth3!") }],
            ..Discovery::default()
        };
        let links = ["eth1", "eth2", "eth3", "eth4"].map(link).into();
        let told = nothing(&discovery, &Asked { links, remarks: vec![link("eth4?")] }).to_string();
        for part in [
            "eth3!; FCoE is spoken on VLAN 7 of eth1: `ip link add link eth1 name eth1.7 type",
            "a fabric answers on eth2",
            "answers on eth4: check",
            "eth4?",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }
}
