//! Two network namespaces and the network between them: virtual cables, with or without a bridge in
//! the middle.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use super::{Side, run, wait_until};

/// Names of the interfaces, the same in every pair of namespaces.
const LINKS: [&str; 2] = ["tye-t", "tye-h"];

/// The namespaces and the network between them.
pub(crate) struct Cable {
    tag: String,
}

impl Cable {
    /// Makes the namespaces alone.
    pub(super) fn none(tag: &str) -> Self {
        let cable = Self { tag: tag.to_owned() };
        for side in [Side::Target, Side::Host] {
            ip(&["netns", "add", &cable.namespace(side)]);
        }
        cable
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
        let namespaces = [self.namespace(Side::Target), self.namespace(Side::Host)];
        let mtu = &mtu.to_string();
        let first = ["-n", &namespaces[0], "link", "add", target, "mtu", mtu, "type", "veth"];
        let second = ["peer", "name", host, "mtu", mtu, "netns", &namespaces[1]];
        ip(&[&first[..], &second[..]].concat());
        self.up(Side::Target, target);
        self.up(Side::Host, host);
    }

    fn up(&self, side: Side, link: &str) {
        self.ip(side, &["link", "set", link, "up"]);
    }

    /// Replaces the cable by one with a bridge in the middle that has a smaller MTU than the ends.
    pub(crate) fn insert_bridge(&self, mtu_ends: u32, mtu_bridge: u32) {
        self.ip(Side::Target, &["link", "del", self.link(Side::Target)]);
        let sides = [Side::Target, Side::Host];
        self.lay_bridge(&sides.map(|side| (side, self.link(side))), mtu_ends, mtu_bridge);
    }

    /// Adds cables from new interfaces of these names to one bridge.
    pub(crate) fn lay_bridge(&self, links: &[(Side, &str)], mtu_ends: u32, mtu_bridge: u32) {
        ip(&["netns", "add", &self.middle()]);
        ip(&["-n", &self.middle(), "link", "add", "name", "br", "type", "bridge"]);
        for (side, link) in links {
            self.plug("br", (*side, link), (mtu_ends, mtu_bridge));
        }
        let mtu = &mtu_bridge.to_string();
        ip(&["-n", &self.middle(), "link", "set", "dev", "br", "mtu", mtu, "up"]);
        self.await_running(links);
    }

    /// Adds cables from new interfaces of these names to one hub: every frame goes to all.
    pub(crate) fn lay_hub(&self, hub: &str, links: &[(Side, &str)]) {
        let middle = &self.middle();
        if !Path::new("/run/netns").join(middle).exists() {
            ip(&["netns", "add", middle]);
        }
        // A bridge without memory: it learns no addresses, so it floods every frame.
        let forgetful = ["type", "bridge", "ageing_time", "0"];
        ip(&[&["-n", middle, "link", "add", "name", hub], &forgetful[..]].concat());
        ip(&["-n", middle, "link", "set", hub, "up"]);
        links.iter().for_each(|(side, link)| self.plug_in(hub, *side, link));
        self.await_running(links);
    }

    /// Adds one more cable to a hub.
    pub(crate) fn plug_in(&self, hub: &str, side: Side, link: &str) {
        self.plug(hub, (side, link), (1500, 1500));
    }

    /// Connects a new interface to a new port of a bridge.
    fn plug(&self, bridge: &str, (side, link): (Side, &str), (mtu, mtu_port): (u32, u32)) {
        let (namespace, middle, port) = (self.namespace(side), self.middle(), format!("p-{link}"));
        let (mtu, mtu_port) = (&mtu.to_string(), &mtu_port.to_string());
        let first = ["-n", &middle, "link", "add", &port, "mtu", mtu_port, "type", "veth"];
        let second = ["peer", "name", link, "mtu", mtu, "netns", &namespace];
        ip(&[&first[..], &second[..]].concat());
        ip(&["-n", &middle, "link", "set", &port, "master", bridge, "up"]);
        self.up(side, link);
    }

    /// The namespace of the bridges between the ends.
    fn middle(&self) -> String {
        format!("{}-m", self.tag)
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

    fn namespace(&self, side: Side) -> String {
        format!("{}-{}", self.tag, if side == Side::Target { "t" } else { "h" })
    }

    /// The address of an interface at one end.
    pub(crate) fn mac(&self, side: Side, link: &str) -> String {
        self.show(side, link)["address"].as_str().unwrap().to_owned()
    }

    /// The output of `ip link show` for an interface at one end.
    fn show(&self, side: Side, link: &str) -> Value {
        let show = ["-n", &self.namespace(side), "-json", "link", "show", link];
        let mut shown: Value = serde_json::from_str(&run(Command::new("ip").args(show))).unwrap();
        shown[0].take()
    }

    /// Runs `ip` at one end.
    pub(crate) fn ip(&self, side: Side, args: &[&str]) {
        ip(&[&["-n", &self.namespace(side)], args].concat());
    }

    /// Drops this many of 10,000 of our frames from now on, each way.
    pub(crate) fn lose_of_10000(&self, frames: u32) {
        for side in [Side::Target, Side::Host] {
            let link = self.link(side);
            let chain = format!(
                "add table netdev tyche; add chain netdev tyche loss {{ type filter hook ingress \
                 device {link} priority 0; }}; add rule netdev tyche loss ether type 0x88b5 \
                 numgen random mod 10000 < {frames} drop"
            );
            run(self.inside(side, "nft").arg(chain));
        }
    }

    /// Drops all of our frames that come in on these links of one end, until [`mend`](Self::mend).
    /// The interfaces stay up.
    pub(crate) fn cut(&self, side: Side, links: &[&str]) {
        let links = links.join(", ");
        let chain = format!(
            "add table netdev cut; add chain netdev cut ours {{ type filter hook ingress devices = \
             {{ {links} }} priority 0; }}; add rule netdev cut ours ether type 0x88b5 drop"
        );
        run(self.inside(side, "nft").arg(chain));
    }

    /// Undoes [`cut`](Self::cut).
    pub(crate) fn mend(&self, side: Side) {
        run(self.inside(side, "nft").arg("delete table netdev cut"));
    }

    /// A command in one end's network namespace; its other namespaces are the machine's.
    pub(crate) fn inside(&self, side: Side, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(side))).arg("--");
        command.arg(program.as_ref());
        command
    }

    /// Runs `action` on a thread at one end.
    pub(crate) fn on_thread<T: Send>(&self, side: Side, action: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.namespace(side))).unwrap();
        let enter = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            action()
        };
        thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for end in ["t", "h", "m"] {
            // Also after a set-up that failed half-way.
            let _ =
                Command::new("ip").args(["netns", "del", &format!("{}-{end}", self.tag)]).output();
        }
    }
}

fn ip(args: &[&str]) {
    run(Command::new("ip").args(args));
}
