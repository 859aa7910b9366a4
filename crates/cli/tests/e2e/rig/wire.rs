//! Two network namespaces and the network between them: virtual cables, with or without a bridge in
//! the middle.

use std::sync::OnceLock;

use serde_json::Value;
use tyche_testkit::net::{Namespace, lay_cable};
use tyche_testkit::process::run;

use super::{Side, wait_until};

/// Names of the interfaces, the same in every pair of namespaces.
const LINKS: [&str; 2] = ["tye-t", "tye-h"];

/// The rules that match frames of ours, and datagrams with such.
pub(crate) const FRAMES: &str = "ether type 0x88b5";
pub(crate) const DATAGRAMS: &str = "ip protocol udp";

/// The addresses of the ends with a router between them, each with that of the router's interface.
const ROUTED: [[&str; 2]; 2] = [["10.8.0.1", "10.8.0.254"], ["10.8.1.1", "10.8.1.254"]];

/// The name of the interface in the middle at the other end of a cable.
fn port(link: &str) -> String {
    format!("p-{link}")
}

/// The namespaces and the network between them.
pub(crate) struct Cable {
    tag: String,
    ends: [Namespace; 2],
    /// The namespace of the bridges between the ends.
    middle: OnceLock<Namespace>,
}

impl Cable {
    /// Makes the namespaces alone.
    pub(super) fn none(tag: &str) -> Self {
        let ends = ["t", "h"].map(|end| Namespace::new(format!("{tag}-{end}")));
        Self { tag: tag.to_owned(), ends, middle: OnceLock::new() }
    }

    /// Makes the namespaces and a veth pair whose ends are up.
    pub(super) fn lay(tag: &str, mtu: u32) -> Self {
        let cable = Self::none(tag);
        cable.lay_one(LINKS[0], LINKS[1], mtu);
        cable
    }

    /// Adds cables between interfaces of these names, and waits until they carry frames.
    pub(crate) fn add(&self, ends: &[(&str, &str)], mtu: u32) {
        for (target, host) in ends {
            self.lay_one(target, host, mtu);
        }
        let sides = ends.iter().flat_map(|it| [(Side::Target, it.0), (Side::Host, it.1)]);
        self.await_running(&sides.collect::<Vec<_>>());
    }

    fn lay_one(&self, target: &str, host: &str, mtu: u32) {
        lay_cable([(self.end(Side::Target), target, mtu), (self.end(Side::Host), host, mtu)]);
    }

    /// Replaces the cable by one with a bridge in the middle that has a smaller MTU than the ends.
    pub(crate) fn insert_bridge(&self, mtu_ends: u32, mtu_bridge: u32) {
        self.ip(Side::Target, &["link", "del", self.link(Side::Target)]);
        let sides = [Side::Target, Side::Host];
        self.lay_bridge(&sides.map(|side| (side, self.link(side))), mtu_ends, mtu_bridge);
    }

    /// Adds cables from new interfaces of these names to one bridge.
    pub(crate) fn lay_bridge(&self, links: &[(Side, &str)], mtu_ends: u32, mtu_bridge: u32) {
        self.middle().ip(&["link", "add", "name", "br", "type", "bridge"]);
        for (side, link) in links {
            self.plug("br", (*side, link), (mtu_ends, mtu_bridge));
        }
        let mtu = &mtu_bridge.to_string();
        self.middle().ip(&["link", "set", "dev", "br", "mtu", mtu, "up"]);
        self.await_running(links);
    }

    /// Replaces the cable by two with a router in the middle. Each end has an address of its own
    /// network, [`ROUTED`].
    pub(crate) fn insert_router(&self, mtu: u32) {
        self.ip(Side::Target, &["link", "del", self.link(Side::Target)]);
        let sides = [Side::Target, Side::Host];
        for (side, [address, router]) in sides.into_iter().zip(ROUTED) {
            let (link, port) = (self.link(side), &port(self.link(side)));
            lay_cable([(self.middle(), port, mtu), (self.end(side), link, mtu)]);
            let add = |end: &Namespace, address: &str, link: &str| {
                end.ip(&["address", "add", &format!("{address}/24"), "dev", link]);
            };
            add(self.middle(), router, port);
            add(self.end(side), address, link);
            self.ip(side, &["route", "add", "default", "via", router]);
        }
        let forward = "echo 1 >/proc/sys/net/ipv4/ip_forward";
        run(self.middle().command("sh").args(["-c", forward]));
        self.await_running(&sides.map(|side| (side, self.link(side))));
    }

    /// Changes the MTU of the router's interface towards one end. Longer packets to that end are
    /// reported to their sender (ICMP), longer ones from it are lost.
    pub(crate) fn narrow_router(&self, side: Side, mtu: u32) {
        self.middle().ip(&["link", "set", &port(self.link(side)), "mtu", &mtu.to_string()]);
    }

    /// Adds cables from new interfaces of these names to one hub: every frame goes to all.
    pub(crate) fn lay_hub(&self, hub: &str, links: &[(Side, &str)]) {
        // A bridge without memory: it learns no addresses, so it floods every frame.
        self.middle().ip(&["link", "add", "name", hub, "type", "bridge", "ageing_time", "0"]);
        self.middle().ip(&["link", "set", hub, "up"]);
        links.iter().for_each(|(side, link)| self.plug_in(hub, *side, link));
        self.await_running(links);
    }

    /// Adds one more cable to a hub.
    pub(crate) fn plug_in(&self, hub: &str, side: Side, link: &str) {
        self.plug(hub, (side, link), (1500, 1500));
    }

    /// Connects a new interface to a new port of a bridge.
    fn plug(&self, bridge: &str, (side, link): (Side, &str), (mtu, mtu_port): (u32, u32)) {
        let port = &port(link);
        lay_cable([(self.middle(), port, mtu_port), (self.end(side), link, mtu)]);
        self.middle().ip(&["link", "set", port, "master", bridge]);
    }

    /// The network namespace of the bridges.
    pub(crate) fn middle(&self) -> &Namespace {
        self.middle.get_or_init(|| Namespace::new(format!("{}-m", self.tag)))
    }

    /// Waits until the kernel reports interfaces as running, which it does some time after frames
    /// can flow: commands that use all interfaces look at that.
    pub(crate) fn await_running(&self, links: &[(Side, &str)]) {
        for (side, link) in links {
            wait_until("an interface runs", || self.show(*side, link)["operstate"] == "UP");
        }
    }

    /// The interface at one end.
    pub(crate) fn link(&self, side: Side) -> &'static str {
        LINKS[side as usize]
    }

    /// The network namespace of one end.
    pub(crate) fn end(&self, side: Side) -> &Namespace {
        &self.ends[side as usize]
    }

    /// The address of an interface at one end.
    pub(crate) fn mac(&self, side: Side, link: &str) -> String {
        self.show(side, link)["address"].as_str().unwrap().to_owned()
    }

    /// The output of `ip link show` for an interface at one end.
    fn show(&self, side: Side, link: &str) -> Value {
        let shown = self.end(side).ip(&["-json", "link", "show", link]);
        let mut shown: Value = serde_json::from_str(&shown).unwrap();
        shown[0].take()
    }

    /// Runs `ip` at one end.
    pub(crate) fn ip(&self, side: Side, args: &[&str]) {
        self.end(side).ip(args);
    }

    /// Drops this many of 10,000 of our frames from now on, each way.
    pub(crate) fn lose_of_10000(&self, frames: u32) {
        self.lose(FRAMES, frames);
    }

    /// Drops this many of 10,000 frames that a rule matches, such as [`DATAGRAMS`].
    pub(crate) fn lose(&self, ours: &str, frames: u32) {
        for side in [Side::Target, Side::Host] {
            let link = self.link(side);
            let chain = format!(
                "add table netdev tyche; add chain netdev tyche loss {{ type filter hook ingress \
                 device {link} priority 0; }}; add rule netdev tyche loss {ours} \
                 numgen random mod 10000 < {frames} drop"
            );
            self.end(side).nft(&chain);
        }
    }

    /// Drops all of our frames that come in on these links of one end, until [`mend`](Self::mend).
    /// The interfaces stay up.
    pub(crate) fn cut(&self, side: Side, links: &[&str]) {
        self.drop_all(side, links, FRAMES);
    }

    /// Drops all frames that a rule matches and that come in on these links of one end, until
    /// [`mend`](Self::mend).
    pub(crate) fn drop_all(&self, side: Side, links: &[&str], ours: &str) {
        let links = links.join(", ");
        let chain = format!(
            "add table netdev cut; add chain netdev cut ours {{ type filter hook ingress devices = \
             {{ {links} }} priority 0; }}; add rule netdev cut ours {ours} drop"
        );
        self.end(side).nft(&chain);
    }

    /// Undoes [`cut`](Self::cut) and [`drop_all`](Self::drop_all).
    pub(crate) fn mend(&self, side: Side) {
        self.end(side).nft("delete table netdev cut");
    }
}
