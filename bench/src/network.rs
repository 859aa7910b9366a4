//! Two network namespaces joined by a veth pair: the host in one, the target in the other.
//!
//! Each side's programs run on a core of their own. A link may be shaped to a rate, in both
//! directions, by a token bucket; its queue then holds as much as an interface's usually does, so
//! that whoever sends more is held up rather than robbed. Dropped, all of it is gone.

use std::fs;
use std::process::Command;

use crate::process::{Doing, Failure, Result, Stop, failed, run};

/// The interface in either namespace.
pub(crate) const INTERFACE: &str = "veth0";
/// The target's address, of those that are for documentation and nobody's.
pub(crate) const TARGET_ADDRESS: &str = "192.0.2.2";
const HOST_ADDRESS: &str = "192.0.2.1";
/// Frames in the queue of a shaped link, as of an interface that is as fast.
const QUEUE_FRAMES: u64 = 1000;
/// How long a shaped link may send at full speed after a pause, in microseconds.
const BURST_US: u64 = 200;

/// One end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Target,
}

/// What the link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Bytes of a frame without its Ethernet header.
    pub(crate) mtu: u32,
    /// Bits per second; `None`: as many as the machine can.
    pub(crate) rate: Option<u64>,
}

/// What passed an interface so far, both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

/// The namespaces and the cable.
pub(crate) struct Network {
    tag: String,
    link: Link,
    /// Whether segmentation is left to the interface; `None`: not set yet.
    offloads: Option<bool>,
}

impl Network {
    /// Lays the cable; both ends are up when it returns.
    pub(crate) fn lay(link: Link, stop: &Stop) -> Result<Self> {
        let tag = format!("tyche-bench-{}", std::process::id());
        // From here on, what there is of it goes when it is dropped.
        let network = Self { tag, link, offloads: None };
        for side in [Side::Host, Side::Target] {
            ip(&["netns", "add", &network.namespace(side)], stop)?;
        }
        let (host, target) = (network.namespace(Side::Host), network.namespace(Side::Target));
        let mtu = link.mtu.to_string();
        let add = ["-n", &host, "link", "add", INTERFACE, "mtu", &mtu, "type", "veth", "peer"];
        ip(&[&add[..], &["name", INTERFACE, "mtu", &mtu, "netns", &target]].concat(), stop)?;
        for (side, address) in [(Side::Host, HOST_ADDRESS), (Side::Target, TARGET_ADDRESS)] {
            let namespace = network.namespace(side);
            let inside = ["-n", &namespace];
            let address = format!("{address}/24");
            // No IPv6: nothing is to be on the cable but what is measured.
            let quiet = ["link", "set", INTERFACE, "addrgenmode", "none"];
            ip(&[&inside[..], &quiet].concat(), stop)?;
            ip(&[&inside[..], &["address", "add", &address, "dev", INTERFACE]].concat(), stop)?;
            ip(&[&inside[..], &["link", "set", INTERFACE, "up"]].concat(), stop)?;
            if let Some(rate) = link.rate {
                network.shape(side, rate, stop)?;
            }
        }
        Ok(network)
    }

    pub(crate) fn link(&self) -> Link {
        self.link
    }

    fn shape(&self, side: Side, rate: u64, stop: &Stop) -> Result<()> {
        let frame = u64::from(self.link.mtu) + 14;
        let burst = (rate / 8 * BURST_US / 1_000_000).max(2 * frame).to_string();
        let (rate, limit) = (format!("{rate}bit"), (QUEUE_FRAMES * frame).to_string());
        let mut tc = self.inside(side, "tc");
        tc.args(["qdisc", "replace", "dev", INTERFACE, "root", "tbf"]);
        tc.args(["rate", &rate, "burst", &burst, "limit", &limit]);
        run(&mut tc, stop).map(drop)
    }

    /// Leaves segmentation to the interface, as is usual, or has the kernel's TCP make and take
    /// every single frame, as with a card that can do nothing for it.
    pub(crate) fn set_offloads(&mut self, on: bool, stop: &Stop) -> Result<()> {
        if self.offloads == Some(on) {
            return Ok(());
        }
        let setting = if on { "on" } else { "off" };
        for side in [Side::Host, Side::Target] {
            let mut ethtool = self.inside(side, "ethtool");
            ethtool.args(["-K", INTERFACE, "tso", setting, "gso", setting]);
            if !on {
                // It is off in a veth pair that nobody has changed.
                ethtool.args(["gro", setting]);
            }
            run(&mut ethtool, stop)?;
        }
        self.offloads = Some(on);
        Ok(())
    }

    /// A program on one side, with everything else, mounts in particular, as it is here.
    pub(crate) fn inside(&self, side: Side, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(side))).args(["--", program]);
        command
    }

    /// A program on one side, on that side's core.
    pub(crate) fn pinned(&self, side: Side, program: &str) -> Command {
        let core = match side {
            Side::Host => "0",
            Side::Target => "1",
        };
        let mut command = self.inside(side, "taskset");
        command.args(["--cpu-list", core, program]);
        command
    }

    fn namespace(&self, side: Side) -> String {
        match side {
            Side::Host => format!("{}-h", self.tag),
            Side::Target => format!("{}-t", self.tag),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for side in [Side::Host, Side::Target] {
            let name = self.namespace(side);
            if !fs::exists(format!("/run/netns/{name}")).unwrap_or(false) {
                continue;
            }
            // The cable goes with its ends. Nobody can be asked to stop any more.
            match Command::new("ip").args(["netns", "del", &name]).output() {
                Ok(output) if output.status.success() => {}
                _ => eprintln!("left behind: network namespace; ip netns del {name}"),
            }
        }
    }
}

/// What passed the cable so far, as the process `pid` at one end sees it.
pub(crate) fn traffic(pid: u32) -> Result<Traffic> {
    let path = format!("/proc/{pid}/net/dev");
    let table = fs::read_to_string(&path).doing(&path)?;
    parse_traffic(&table).ok_or_else(|| Failure::Failed(format!("{path}: no {INTERFACE}")))
}

fn parse_traffic(table: &str) -> Option<Traffic> {
    let line =
        table.lines().find_map(|line| line.trim().strip_prefix(INTERFACE)?.strip_prefix(':'));
    let numbers: Option<Vec<u64>> =
        line?.split_whitespace().map(|number| number.parse().ok()).collect();
    // Received bytes and packets, six more counters, and the same sent.
    match numbers?[..] {
        [rx_bytes, rx, _, _, _, _, _, _, tx_bytes, tx, ..] => {
            Some(Traffic { frames: rx + tx, bytes: rx_bytes + tx_bytes })
        }
        _ => None,
    }
}

fn ip(args: &[&str], stop: &Stop) -> Result<()> {
    match run(Command::new("ip").args(args), stop) {
        Err(Failure::Failed(message)) if message.contains("not permitted") => {
            failed(format!("{message}\nnetwork namespaces need root"))
        }
        result => result.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_counted() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    \
            lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n veth0: 100 2 0 0 0 0 0 0 1000 3 0 0 0 0 0 0\n";
        assert_eq!(parse_traffic(table), Some(Traffic { frames: 5, bytes: 1100 }));
        assert_eq!(parse_traffic("veth01: 1"), None);
    }
}
