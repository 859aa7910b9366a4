//! Two network namespaces joined by a veth pair or more: the host in one, the target in the other.
//!
//! Each side's programs run on a core of their own. A link may be shaped to a rate, in both
//! directions, by a token bucket; its queue then holds as much as an interface's usually does, so
//! that whoever sends more is held up rather than robbed. Dropped, all of it is gone.

use std::fs;
use std::process::Command;

use crate::process::{Doing, Failure, Result, Stop, failed, run};

/// The first, and usually only, interface in either namespace.
pub(crate) const INTERFACE: &str = "veth0";
/// What the names of all of them begin with.
const INTERFACES: &str = "veth";
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

/// What the links are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Bytes of a frame without its Ethernet header.
    pub(crate) mtu: u32,
    /// Bits per second; `None`: as many as the machine can.
    pub(crate) rate: Option<u64>,
    /// How many there are beside each other.
    pub(crate) cables: u16,
}

impl Link {
    /// One link that is as fast as the machine can.
    pub(crate) fn unshaped(mtu: u32) -> Self {
        Self { mtu, rate: None, cables: 1 }
    }

    /// One link of so many bits per second.
    pub(crate) fn shaped(mtu: u32, rate: u64) -> Self {
        Self { rate: Some(rate), ..Self::unshaped(mtu) }
    }

    /// The names of the interfaces in either namespace.
    pub(crate) fn interfaces(self) -> impl Iterator<Item = String> {
        (0..self.cables).map(|number| format!("{INTERFACES}{number}"))
    }
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
        for interface in link.interfaces() {
            network.lay_cable(&interface, stop)?;
        }
        for (side, address) in [(Side::Host, HOST_ADDRESS), (Side::Target, TARGET_ADDRESS)] {
            let address = format!("{address}/24");
            let add = ["address", "add", &address, "dev", INTERFACE];
            ip(&[&["-n", &network.namespace(side)][..], &add].concat(), stop)?;
        }
        Ok(network)
    }

    fn lay_cable(&self, interface: &str, stop: &Stop) -> Result<()> {
        let (host, target) = (self.namespace(Side::Host), self.namespace(Side::Target));
        let mtu = self.link.mtu.to_string();
        let add = ["-n", &host, "link", "add", interface, "mtu", &mtu, "type", "veth", "peer"];
        ip(&[&add[..], &["name", interface, "mtu", &mtu, "netns", &target]].concat(), stop)?;
        for side in [Side::Host, Side::Target] {
            let namespace = self.namespace(side);
            let set = ["-n", &namespace, "link", "set", interface];
            // No IPv6: nothing is to be on the cable but what is measured.
            ip(&[&set[..], &["addrgenmode", "none", "up"]].concat(), stop)?;
            if let Some(rate) = self.link.rate {
                self.shape(side, interface, rate, stop)?;
            }
        }
        Ok(())
    }

    pub(crate) fn link(&self) -> Link {
        self.link
    }

    fn shape(&self, side: Side, interface: &str, rate: u64, stop: &Stop) -> Result<()> {
        let frame = u64::from(self.link.mtu) + 14;
        let burst = (rate / 8 * BURST_US / 1_000_000).max(2 * frame).to_string();
        let (rate, limit) = (format!("{rate}bit"), (QUEUE_FRAMES * frame).to_string());
        let mut tc = self.inside(side, "tc");
        tc.args(["qdisc", "replace", "dev", interface, "root", "tbf"]);
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

/// The sum over our interfaces; `None` if there is none.
fn parse_traffic(table: &str) -> Option<Traffic> {
    let lines = table.lines().filter_map(|line| line.trim().split_once(':'));
    let counters = lines.filter(|(name, _)| name.starts_with(INTERFACES));
    let of = |counters: &str| {
        let numbers = counters.split_whitespace().map(|number| number.parse().ok());
        // Received bytes and packets, six more counters, and the same sent.
        match numbers.collect::<Option<Vec<u64>>>()?[..] {
            [rx_bytes, rx, _, _, _, _, _, _, tx_bytes, tx, ..] => {
                Some(Traffic { frames: rx + tx, bytes: rx_bytes + tx_bytes })
            }
            _ => None,
        }
    };
    let all = counters.map(|(_, counters)| of(counters));
    all.reduce(|a, b| {
        let (a, b) = (a?, b?);
        Some(Traffic { frames: a.frames + b.frames, bytes: a.bytes + b.bytes })
    })?
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
        let two = table.replace("lo: ", "veth1: ");
        assert_eq!(parse_traffic(&two), Some(Traffic { frames: 7, bytes: 1102 }));
        assert_eq!(parse_traffic("veth0: 1"), None);
        assert_eq!(parse_traffic("eth0: 1 1 0 0 0 0 0 0 1 1"), None);
    }
}
