//! Two network namespaces joined by a virtual cable, with or without a bridge in the middle.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Side, run};

/// Names of the interfaces, the same in every pair of namespaces.
const LINKS: [&str; 2] = ["tye-t", "tye-h"];

/// The namespaces and what joins them.
pub(crate) struct Cable {
    tag: String,
}

impl Cable {
    /// A veth pair whose ends are up.
    pub(super) fn lay(tag: &str, mtu: u32) -> Self {
        let cable = Self { tag: tag.to_owned() };
        for side in [Side::Target, Side::Host] {
            ip(&["netns", "add", &cable.namespace(side)]);
        }
        let (target, host) = (cable.namespace(Side::Target), cable.namespace(Side::Host));
        let mtu = &mtu.to_string();
        let first = ["-n", &target, "link", "add", LINKS[0], "mtu", mtu, "type", "veth"];
        let second = ["peer", "name", LINKS[1], "mtu", mtu, "netns", &host];
        ip(&[&first[..], &second[..]].concat());
        cable.up(Side::Target);
        cable.up(Side::Host);
        cable
    }

    fn up(&self, side: Side) {
        self.ip(side, &["link", "set", self.link(side), "up"]);
    }

    /// Replaces the cable by one with a bridge in the middle that takes less than its ends do.
    pub(crate) fn insert_bridge(&self, mtu_ends: u32, mtu_bridge: u32) {
        self.ip(Side::Target, &["link", "del", self.link(Side::Target)]);
        let middle = format!("{}-m", self.tag);
        ip(&["netns", "add", &middle]);
        let (ends, bridge) = (&mtu_ends.to_string(), &mtu_bridge.to_string());
        ip(&["-n", &middle, "link", "add", "name", "br", "type", "bridge"]);
        for (side, port) in [(Side::Target, "port-t"), (Side::Host, "port-h")] {
            let namespace = self.namespace(side);
            let first = ["-n", &middle, "link", "add", port, "mtu", bridge, "type", "veth"];
            let second = ["peer", "name", self.link(side), "mtu", ends, "netns", &namespace];
            ip(&[&first[..], &second[..]].concat());
            ip(&["-n", &middle, "link", "set", port, "master", "br", "up"]);
            self.up(side);
        }
        ip(&["-n", &middle, "link", "set", "dev", "br", "mtu", bridge, "up"]);
    }

    /// The interface at one end.
    pub(crate) fn link(&self, side: Side) -> &'static str {
        LINKS[side as usize]
    }

    fn namespace(&self, side: Side) -> String {
        format!("{}-{}", self.tag, if side == Side::Target { "t" } else { "h" })
    }

    /// Runs `ip` at one end.
    pub(crate) fn ip(&self, side: Side, args: &[&str]) {
        ip(&[&["-n", &self.namespace(side)], args].concat());
    }

    /// Loses so many of 10,000 frames of ours from now on, each way.
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

    /// A command at one end; all but its network is the machine's.
    pub(crate) fn inside(&self, side: Side, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(side))).arg("--");
        command.arg(program.as_ref());
        command
    }

    /// Does something on a thread at one end.
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
            // Also after a failure half-way through the making.
            let _ =
                Command::new("ip").args(["netns", "del", &format!("{}-{end}", self.tag)]).output();
        }
    }
}

fn ip(args: &[&str]) {
    run(Command::new("ip").args(args));
}
