//! Network cards: offloads, rings, and where their interrupts go.

use crate::shared::report::Finding;

use super::machine::{Machine, numbers};

/// Entries of a receive ring below which bursts are lost, if the card could have more.
const RING_SMALL: u64 = 1024;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let named = machine.named_links();
    let mut findings = Vec::new();
    for scheme in ["udp:", "tcp:"] {
        if named.iter().any(|link| link.name.starts_with(scheme)) {
            findings.extend(offloads(machine, scheme));
        }
    }
    for interface in machine.used_interfaces() {
        let name = &interface.name;
        findings.extend(ring(machine, name));
        findings.extend(interrupts(machine, name));
        findings.extend(steering(machine, name));
    }
    findings
}

/// Real cards that are up.
fn cards(machine: &Machine) -> impl Iterator<Item = &str> {
    let running = machine.interfaces.iter().filter(|it| it.is_running).map(|it| &*it.name);
    running.filter(|name| machine.has(&format!("/sys/class/net/{name}/device")))
}

/// Offloads that links over IP live on. Frames on Ethernet know none of them.
fn offloads(machine: &Machine, scheme: &str) -> Vec<Finding> {
    let wanted: &[(&str, &str)] = match scheme {
        "udp:" => {
            &[("generic-receive-offload", "gro"), ("tx-udp-segmentation", "tx-udp-segmentation")]
        }
        _ => &[("generic-receive-offload", "gro"), ("tcp-segmentation-offload", "tso")],
    };
    let mut findings = Vec::new();
    for card in cards(machine) {
        let Some(features) = (machine.tool)("ethtool", &["-k", card]) else { continue };
        let is_off = |feature: &str| {
            let value = features.lines().find_map(|line| {
                line.trim().strip_prefix(feature)?.strip_prefix(':').map(str::trim)
            });
            // What the card does not have can't be turned on.
            value == Some("off")
        };
        for (feature, short) in wanted.iter().filter(|it| is_off(it.0)) {
            let what = format!("{feature} of {card} is off: links over {scheme} are slower");
            let found = Finding::note("offload-off", what);
            findings.push(found.remedy(format!("`ethtool -K {card} {short} on`")));
        }
    }
    findings
}

/// A receive ring that is small, and could be larger.
fn ring(machine: &Machine, name: &str) -> Option<Finding> {
    let text = (machine.tool)("ethtool", &["-g", name])?;
    let mut sizes = text.lines().filter_map(|line| line.strip_prefix("RX:")?.trim().parse().ok());
    let (largest, now): (u64, u64) = (sizes.next()?, sizes.next()?);
    (now < largest && now < RING_SMALL).then(|| {
        let what = format!("the receive ring of {name} has {now} entries: bursts are lost");
        let size = largest.min(4096);
        Finding::note("ring-small", what).remedy(format!("`ethtool -G {name} rx {size}`"))
    })
}

/// Interrupts of a card that are all on one processor, or far from it.
fn interrupts(machine: &Machine, name: &str) -> Vec<Finding> {
    let device = format!("/sys/class/net/{name}/device");
    let vectors = machine.names(&format!("{device}/msi_irqs"));
    let places = vectors.iter().filter_map(|irq| {
        let list = machine.read(&format!("/proc/irq/{irq}/smp_affinity_list"))?;
        Some(numbers(&list))
    });
    let places: Vec<_> = places.filter(|cpus| !cpus.is_empty()).collect();
    let mut findings = Vec::new();
    let Some(first) = places.first() else { return findings };
    let on_one = places.len() > 2 && first.len() == 1 && places.iter().all(|it| it == first);
    if on_one && machine.cpus() > 1 {
        let what =
            format!("all {} interrupts of {name} go to processor {}", places.len(), first[0]);
        let found = Finding::note("irq-on-one-cpu", what);
        findings
            .push(found.remedy("start irqbalance, or spread them: /proc/irq/N/smp_affinity_list"));
    }
    let node = machine.number(&format!("{device}/numa_node")).filter(|&node| node >= 0);
    let near = node.and_then(|node| {
        let list = machine.read(&format!("/sys/devices/system/node/node{node}/cpulist"))?;
        Some((node, numbers(&list)))
    });
    if let Some((node, near)) = near
        && places.iter().flatten().all(|cpu| !near.contains(cpu))
    {
        let what = format!("interrupts of {name} go to processors off its NUMA node {node}");
        let found = Finding::note("irq-off-node", what);
        findings.push(
            found.remedy("bind them to the node's processors: /proc/irq/N/smp_affinity_list"),
        );
    }
    findings
}

/// RPS, which hands all raw frames between two interfaces to one processor.
fn steering(machine: &Machine, name: &str) -> Option<Finding> {
    let queues = format!("/sys/class/net/{name}/queues");
    let mut receive = machine.names(&queues).into_iter().filter(|queue| queue.starts_with("rx-"));
    let is_set = |queue: String| {
        let mask = machine.read(&format!("{queues}/{queue}/rps_cpus")).unwrap_or_default();
        mask.bytes().any(|byte| byte.is_ascii_hexdigit() && byte != b'0')
    };
    receive.any(is_set).then(|| {
        let what = format!(
            "RPS is on for {name}: all frames between two interfaces go to one more processor"
        );
        let remedy = format!("`echo 0 >{queues}/rx-0/rps_cpus`, unless other traffic needs it");
        Finding::note("rps-on", what).remedy(remedy)
    })
}
