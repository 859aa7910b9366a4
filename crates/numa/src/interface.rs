//! The devices of a network interface: their node, and the CPUs that they interrupt.
//!
//! The kernel knows the nodes of devices on a bus: `numa_node` in the device's directory, -1 if the
//! firmware does not tell. A device of a device (virtio on PCI) has none of its own, so the first
//! directory upwards with one counts; with its interrupts it is the same.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Cpus, Node};

/// The most layers of interfaces: a bridge of VLANs of bonds, and one to spare.
const LAYERS_MAX: usize = 4;

/// Returns the node of the network interface `name`, if the kernel knows it; `sys` is the path of
/// sysfs.
pub(crate) fn node(sys: &Path, name: &str) -> Option<Node> {
    let devices = devices(sys, name)?;
    let mut nodes = devices.iter().map(|device| upwards(sys, device, own_node));
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// Returns the CPUs that the interface interrupts, as far as the kernel tells; `proc` is the path
/// of procfs.
pub(crate) fn interrupted(sys: &Path, proc: &Path, name: &str) -> Cpus {
    let devices = devices(sys, name).unwrap_or_default();
    let numbers = devices.iter().filter_map(|device| upwards(sys, device, own_interrupts));
    let cpus = numbers.flatten().filter_map(|number| {
        let interrupt = proc.join("irq").join(number);
        let effective = Cpus::read(&interrupt.join("effective_affinity_list"));
        effective
            .filter(|cpus| !cpus.is_empty())
            .or_else(|| Cpus::read(&interrupt.join("smp_affinity_list")))
    });
    cpus.fold(Cpus::default(), |all, cpus| all.union(&cpus))
}

/// The directories of the devices that an interface is made of: several of a bond. `None` if a part
/// of it has none.
fn devices(sys: &Path, name: &str) -> Option<Vec<PathBuf>> {
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if is_name { at_layer(sys, name, LAYERS_MAX) } else { None }
}

fn at_layer(sys: &Path, name: &str, layers: usize) -> Option<Vec<PathBuf>> {
    let interface = sys.join("class/net").join(name);
    if let Ok(device) = interface.join("device").canonicalize() {
        return Some(vec![device]);
    }
    let layers = layers.checked_sub(1)?;
    let mut all = Vec::new();
    for entry in fs::read_dir(&interface).ok()?.flatten() {
        if let Some(below) = entry.file_name().to_str().and_then(|it| it.strip_prefix("lower_")) {
            all.extend(at_layer(sys, below, layers)?);
        }
    }
    (!all.is_empty()).then_some(all)
}

/// The answer of the first directory that has one, from that of a device upwards.
fn upwards<T>(sys: &Path, device: &Path, tell: fn(&Path) -> Option<T>) -> Option<T> {
    let sys = sys.canonicalize().ok()?;
    device.ancestors().take_while(|at| at.starts_with(&sys)).find_map(tell)
}

/// The node in a device's own directory.
fn own_node(device: &Path) -> Option<Node> {
    let text = fs::read_to_string(device.join("numa_node")).ok()?;
    // -1, for an unknown node, does not parse.
    text.trim().parse().ok().map(Node)
}

/// The numbers of a device's own interrupts.
fn own_interrupts(device: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(device.join("msi_irqs")).ok()?;
    Some(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}
