//! The cards, and what the emulator and the kernels know of them.

use std::process::Command;

use crate::attachment::Kernel;
use crate::rig::Card;

pub(super) const E1000E: Card =
    Card { device: "e1000e", driver: "e1000e", options: "romfile=", in_slot: false, mtu_max: 9000 };
pub(super) const IGB: Card =
    Card { device: "igb", driver: "igb", options: "romfile=", in_slot: true, mtu_max: 9000 };
/// A card for 100 Mbit/s, whose rings have 64 descriptors. It has taken frames that are a little
/// longer than usual since its second version.
pub(super) const RTL8139: Card = Card {
    device: "rtl8139",
    driver: "8139cp",
    options: "romfile=",
    in_slot: false,
    mtu_max: 4096,
};
pub(super) const VMXNET3: Card = Card {
    device: "vmxnet3",
    driver: "vmxnet3",
    options: "romfile=",
    in_slot: false,
    mtu_max: 9000,
};

/// Why there is no such machine here, if so.
pub(super) fn why_absent(card: &Card, kernel: Kernel) -> Option<String> {
    if let Some(reason) = kernel.why_absent() {
        return Some(reason.to_owned());
    }
    let help = Command::new("qemu-system-x86_64").args(["-device", "help"]).output().unwrap();
    let known = String::from_utf8_lossy(&help.stdout).contains(&format!("\"{}\"", card.device));
    (!known).then(|| {
        format!("this QEMU has no {}; Debian 12's backports have one that has", card.device)
    })
}
