//! Network interfaces that are named or used: whether they can be, and their MTU.

use tyche_link::packet::MTU_MIN;

use crate::shared::error::Code;
use crate::shared::links::mtu;
use crate::shared::report::Finding;

use super::machine::{Interface, Machine, NamedLink};

/// The MTU from which on a frame carries two pages.
const JUMBO: usize = 9000;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for link in machine.named_links().iter().filter(|link| !link.is_over_ip()) {
        findings.extend(named(machine, link));
    }
    let used = machine.used_interfaces();
    for interface in &used {
        findings.extend(properties(machine, interface));
    }
    let usable = |it: &&Interface| it.is_running && it.master.is_none();
    if !machine.interfaces.iter().any(|it| usable(&it)) {
        let found = Finding::error("no-interface", Code::Link, "no Ethernet interface is up");
        findings.push(found.remedy("`ip link set NAME up`, and a cable"));
    }
    findings.extend(used.iter().filter_map(|it| small_mtu(it)));
    findings.extend(narrowed(machine));
    findings
}

/// The faults of an interface that is named.
fn named(machine: &Machine, NamedLink { name, by }: &NamedLink) -> Option<Finding> {
    let error = |id, what: String| Finding::error(id, Code::Link, what);
    let Some(interface) = machine.interface(name) else {
        let found =
            error("link-missing", format!("{by} names {name}, and there is no such interface"));
        return Some(found.remedy("`ip link` lists them; name another, or plug the card in"));
    };
    if let Some(master) = &interface.master {
        let found = error("link-member", format!("{by} names {name}, which is part of {master}"));
        return Some(found.remedy(format!("name {master}, or `ip link set {name} nomaster`")));
    }
    if !interface.is_up {
        let found = error("link-down", format!("{name}, which {by} names, is down"));
        return Some(found.remedy(format!("`ip link set {name} up`")));
    }
    if !interface.is_running {
        let found = error("link-no-carrier", format!("{name}, which {by} names, has no carrier"));
        return Some(found.remedy("check the cable, and the port of the switch"));
    }
    None
}

/// The finding on the properties of an interface.
fn properties(machine: &Machine, interface: &Interface) -> Option<Finding> {
    let name = &interface.name;
    if machine.read(&format!("/sys/class/net/{name}/duplex")).as_deref() == Some("half") {
        let found = Finding::warning("half-duplex", format!("{name} runs in half duplex"));
        return Some(found.remedy("let both ends negotiate: `ethtool -s NAME autoneg on`"));
    }
    None
}

/// An MTU that is too small, or smaller than it could be.
fn small_mtu(interface: &Interface) -> Option<Finding> {
    let Interface { name, mtu, .. } = interface;
    if *mtu < MTU_MIN {
        let what = format!("the MTU of {name} is {mtu}: frames of Tyche need {MTU_MIN}");
        let found = Finding::error("mtu-too-small", Code::Link, what);
        return Some(found.remedy(format!("`ip link set {name} mtu 1500`")));
    }
    (*mtu < JUMBO).then(|| {
        let what = format!("the MTU of {name} is {mtu}: with {JUMBO} a frame carries two pages");
        let remedy = format!("`ip link set {name} mtu {JUMBO}`, at both ends and on the switch");
        Finding::note("mtu-not-jumbo", what).remedy(remedy)
    })
}

/// Links of sessions whose path takes only shorter frames than the interface.
fn narrowed(machine: &Machine) -> Vec<Finding> {
    let links = machine
        .sessions
        .iter()
        .flat_map(|session| session.links().iter().map(move |link| (&session.record.export, link)));
    let narrow =
        links.filter(|(_, link)| 0 < link.frame_len && link.frame_len < link.frame_len_max);
    let findings = narrow.map(|(export, link)| {
        let (name, found, own) = (&link.interface, mtu(link.frame_len), mtu(link.frame_len_max));
        let what = format!(
            "on the way to {export} over {name} frames for an MTU of {found} get through, and its \
             own is {own}"
        );
        Finding::warning("mtu-on-the-way", what)
            .remedy("raise the MTU of the switch or of the target's interface")
    });
    findings.collect()
}
