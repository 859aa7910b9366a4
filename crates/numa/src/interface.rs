//! The node of a network interface.
//!
//! The kernel knows the nodes of devices on a bus: `numa_node` in the device's directory, -1 if the
//! firmware does not tell. A device of a device (virtio on PCI) has none of its own, so the first
//! directory upwards with one counts.

use std::fs;
use std::path::Path;

use crate::Node;

/// The most layers of interfaces: a bridge of VLANs of bonds, and one to spare.
const LAYERS_MAX: usize = 4;

/// Returns the node of the network interface `name`, if the kernel knows it; `sys` is the path of
/// sysfs.
pub(crate) fn node(sys: &Path, name: &str) -> Option<Node> {
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if is_name { at_layer(&sys.canonicalize().ok()?, name, LAYERS_MAX) } else { None }
}

fn at_layer(sys: &Path, name: &str, layers: usize) -> Option<Node> {
    let interface = sys.join("class/net").join(name);
    if let Ok(device) = interface.join("device").canonicalize() {
        return device.ancestors().take_while(|at| at.starts_with(sys)).find_map(own_node);
    }
    let mut below = fs::read_dir(&interface).ok()?.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        Some(name.strip_prefix("lower_")?.to_owned())
    });
    let layers = layers.checked_sub(1)?;
    let first = at_layer(sys, &below.next()?, layers)?;
    below.all(|name| at_layer(sys, &name, layers) == Some(first)).then_some(first)
}

/// The node in a device's own directory.
fn own_node(device: &Path) -> Option<Node> {
    let text = fs::read_to_string(device.join("numa_node")).ok()?;
    // -1, for an unknown node, does not parse.
    text.trim().parse().ok().map(Node)
}
