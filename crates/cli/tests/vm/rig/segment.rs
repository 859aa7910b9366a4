//! A network namespace with a bridge, and a cable for each guest.

use std::process::Command;

use tyche_testkit::net::Namespace;

use super::run;

/// Number of cables.
pub(super) const CABLES: u8 = 2;
/// The bridge, which is this machine's interface as well.
pub(super) const BRIDGE: &str = "br0";
/// The far end of the bridge's port that is always up: this machine's interface as a host.
pub(crate) const HOST: &str = "host0";
/// MTU of the whole segment: two pages and headers.
pub(super) const MTU: &str = "9000";

/// The namespace, named after the test.
pub(super) struct Segment(Namespace);

impl Segment {
    pub(super) fn new(tag: &str) -> Self {
        let segment = Self(Namespace::new(tag));
        // IPv6 is off: the kernel's own frames would be noise.
        let quiet = "net.ipv6.conf.default.disable_ipv6=1";
        run(segment.inside("sysctl").args(["--quiet", "--write", quiet]));
        segment.ip(&["link", "set", "lo", "up"]);
        segment.ip(&["link", "add", BRIDGE, "mtu", MTU, "type", "bridge", "mcast_snooping", "0"]);
        // One port of the bridge is always up: without any, the bridge would have no carrier, and
        // the target would notice a cut cable.
        let ends = ["name", "always", "mtu", MTU, "type", "veth", "peer", "name", HOST];
        segment.ip(&[&["link", "add"], &ends[..], &["mtu", MTU]].concat());
        segment.ip(&["link", "set", HOST, "up"]);
        segment.ip(&["link", "set", "always", "master", BRIDGE, "up"]);
        for number in 0..CABLES {
            let cable = &cable(number);
            segment.ip(&["tuntap", "add", "dev", cable, "mode", "tap"]);
            segment.ip(&["link", "set", cable, "mtu", MTU, "master", BRIDGE, "up"]);
        }
        segment.ip(&["link", "set", BRIDGE, "mtu", MTU, "up"]);
        segment.ip(&["addr", "add", "10.9.0.1/24", "dev", BRIDGE]);
        segment
    }

    /// Brings a cable up or down.
    pub(super) fn set(&self, number: u8, state: &str) {
        self.ip(&["link", "set", &cable(number), state]);
    }

    /// Drops every frame with data on its way to a guest (PROTOCOL.md, "Kinds").
    pub(super) fn starve(&self, number: u8) {
        let cable = cable(number);
        self.0.nft(&format!(
            "add table netdev starved; add chain netdev starved {cable} {{ type filter hook egress \
             device {cable} priority 0; }}; add rule netdev starved {cable} ether type 0x88b5 \
             @ll,120,8 0x11 drop"
        ));
    }

    /// Loses so many of a thousand frames with the EtherType of FCoE on their way from and to a
    /// guest; frames of FIP all pass.
    pub(super) fn lose_fcoe(&self, number: u8, from: u32, to: u32) {
        let cable = cable(number);
        self.0.nft("add table netdev lossy");
        for (hook, count) in [("ingress", from), ("egress", to)] {
            self.0.nft(&format!(
                "add chain netdev lossy {hook} {{ type filter hook {hook} device {cable} \
                 priority 0; }}; add rule netdev lossy {hook} ether type 0x8906 \
                 numgen random mod 1000 < {count} drop"
            ));
        }
    }

    /// Undoes [`starve`](Self::starve).
    pub(super) fn feed(&self) {
        self.0.nft("delete table netdev starved");
    }

    /// Runs `action` in the network namespace.
    pub(super) fn on_thread<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        self.0.on_thread(action)
    }

    fn ip(&self, args: &[&str]) {
        self.0.ip(args);
    }

    /// A command in the network namespace.
    pub(super) fn inside(&self, program: &str) -> Command {
        self.0.command(program)
    }
}

/// The name of a guest's cable.
pub(super) fn cable(number: u8) -> String {
    format!("tap{number}")
}
