//! Two network namespaces joined by a veth pair or more: the host in one, the target in the other.
//!
//! Each side's programs run on cores of their own, unless they may run on any. Each cable is a
//! segment and a subnet of its own. A link may be shaped to a rate, in both directions; its queue
//! then has the usual length of an interface's, so that excess frames wait rather than get dropped.
//! One cable may be worse than the others, and cables can be cut. Dropping it removes everything.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::process::{Doing, Failure, Result, Stop, failed, run};

/// The first, and usually only, interface in either namespace.
pub(crate) const INTERFACE: &str = "veth0";
/// The prefix of all their names.
pub(crate) const INTERFACES: &str = "veth";
/// Addresses of a cable's subnet, in a range reserved for documentation.
const SUBNET: u16 = 16;
const SUBNET_BITS: u16 = 28;
/// Frames in the queue of a shaped link, as in an interface of that speed.
const QUEUE_FRAMES: u64 = 1000;
/// Burst of a shaped link at full speed after a pause, in microseconds.
const BURST_US: u64 = 200;
/// The same for many shaped links: a frame at a time would cost a timer each.
const BURST_MANY_US: u64 = 800;
/// Bytes of our frame before its data, and of the entry that describes them.
const FRAME_HEAD: u64 = 64;
const FRAME_ENTRY: u64 = 24;
const PAGE: u64 = 4096;
/// The kernel's maximum number of subflows and addresses.
const SUBFLOWS_MAX: &str = "8";

/// One end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Target,
}

impl Side {
    /// The first of the cores that its programs are pinned to, where each side has so many: the
    /// host has the lower ones.
    pub(crate) fn first_core(self, each: usize) -> usize {
        match self {
            Self::Host => 0,
            Self::Target => each,
        }
    }

    /// All of them, as `taskset` names them.
    fn cores(self, each: usize) -> String {
        let first = self.first_core(each);
        if each == 1 { first.to_string() } else { format!("{first}-{}", first + each - 1) }
    }
}

/// Both ends.
pub(crate) const SIDES: [Side; 2] = [Side::Host, Side::Target];

/// Properties of the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Bytes of a frame without its Ethernet header.
    pub(crate) mtu: u32,
    /// Bits per second; `None`: not shaped.
    pub(crate) rate: Option<u64>,
    /// Number of parallel cables.
    pub(crate) cables: u16,
    pub(crate) shaper: Shaper,
    /// A cable that is worse than the others.
    pub(crate) odd: Option<Odd>,
}

/// Method of shaping a link to its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shaper {
    /// `tbf`: frame by frame, with a timer for each. At 15,000 jumbo frames a second that takes a
    /// tenth of a core for each link.
    TokenBucket,
    /// `htb` with hysteresis: a timer for each burst, for many links on few cores. Hysteresis is a
    /// parameter of the kernel's module; it is restored afterwards.
    Bursts,
}

/// One cable that differs from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Odd {
    pub(crate) cable: u16,
    /// Bits per second; `None`: like the others.
    pub(crate) rate: Option<u64>,
    /// Frames lost of 10,000, each way.
    pub(crate) loss: u32,
    /// Delay of frames each way, in milliseconds. It affects only Tyche's: a wrapper of its
    /// target's link adds it, because the kernel may have no netem.
    pub(crate) delay_ms: u32,
}

/// The method of cutting links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cut {
    /// The host's interface is set down: both sides are notified.
    Down,
    /// All frames are dropped where they arrive: neither side is notified.
    Silent,
}

impl Link {
    /// One link at the machine's full speed.
    pub(crate) fn unshaped(mtu: u32) -> Self {
        Self { mtu, rate: None, cables: 1, shaper: Shaper::TokenBucket, odd: None }
    }

    /// One link of `rate` bits per second.
    pub(crate) fn shaped(mtu: u32, rate: u64) -> Self {
        Self { rate: Some(rate), ..Self::unshaped(mtu) }
    }

    /// The names of the interfaces in either namespace.
    pub(crate) fn interfaces(self) -> impl Iterator<Item = String> {
        (0..self.cables).map(interface)
    }

    /// Bits per second of a cable.
    pub(crate) fn rate_of(self, cable: u16) -> Option<u64> {
        let odd = self.odd.filter(|odd| odd.cable == cable);
        odd.and_then(|odd| odd.rate).or(self.rate)
    }
}

/// The name of both ends of a cable.
pub(crate) fn interface(cable: u16) -> String {
    format!("{INTERFACES}{cable}")
}

/// The address of one end of a cable.
pub(crate) fn address(side: Side, cable: u16) -> String {
    let end = match side {
        Side::Host => 1,
        Side::Target => 2,
    };
    format!("192.0.2.{}", cable * SUBNET + end)
}

/// The share of a link's bits that can be data in our frames: whole pages behind a header, and an
/// entry that describes them.
pub(crate) fn payload_share(mtu: u32) -> f64 {
    let frame = u64::from(mtu) + 14;
    let room = frame - FRAME_HEAD - FRAME_ENTRY;
    let data = if room < PAGE { room } else { room / PAGE * PAGE };
    data as f64 / (data + FRAME_HEAD + FRAME_ENTRY) as f64
}

/// Frames and bytes that passed an interface so far, both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

/// The namespaces and the cables.
pub(crate) struct Network {
    tag: String,
    link: Link,
    /// Whether segmentation is left to the interface; `None`: not set yet.
    offloads: Option<bool>,
    /// Cables that multipath TCP uses; 0: not set up yet.
    subflows: u16,
    /// Number of cores that each side's programs have for their own; `None`: they run on any.
    cores: Option<usize>,
    _hysteresis: Option<Hysteresis>,
}

impl Network {
    /// Sets up the network; both ends are up when it returns.
    pub(crate) fn lay(link: Link, stop: &Stop) -> Result<Self> {
        let tag = format!("tyche-bench-{}", std::process::id());
        // From here on, dropping it removes the parts that exist.
        let (offloads, subflows, cores) = (None, 0, Some(1));
        let mut network = Self { tag, link, offloads, subflows, cores, _hysteresis: None };
        for side in SIDES {
            ip(&["netns", "add", &network.namespace(side)], stop)?;
        }
        for cable in 0..link.cables {
            network.lay_cable(cable, stop)?;
        }
        if let Some(Odd { cable, loss: loss @ 1.., .. }) = link.odd {
            let rule = format!("numgen random mod 10000 < {loss} drop");
            network.filter("loss", &SIDES, &[cable], &rule, stop)?;
        }
        // Only now: the module is loaded with the first shaped link.
        if link.rate.is_some() && link.shaper == Shaper::Bursts {
            network._hysteresis = Some(Hysteresis::set()?);
        }
        Ok(network)
    }

    fn lay_cable(&self, cable: u16, stop: &Stop) -> Result<()> {
        let interface = &interface(cable);
        let (host, target) = (self.namespace(Side::Host), self.namespace(Side::Target));
        let mtu = self.link.mtu.to_string();
        let add = ["-n", &host, "link", "add", interface, "mtu", &mtu, "type", "veth", "peer"];
        ip(&[&add[..], &["name", interface, "mtu", &mtu, "netns", &target]].concat(), stop)?;
        for side in SIDES {
            let namespace = self.namespace(side);
            let set = ["-n", &namespace, "link", "set", interface];
            // No IPv6: the cable carries only what is measured.
            ip(&[&set[..], &["addrgenmode", "none", "up"]].concat(), stop)?;
            let address = format!("{}/{SUBNET_BITS}", address(side, cable));
            ip(&["-n", &namespace, "address", "add", &address, "dev", interface], stop)?;
            if let Some(rate) = self.link.rate_of(cable) {
                self.shape(side, interface, rate, stop)?;
            }
        }
        Ok(())
    }

    pub(crate) fn link(&self) -> Link {
        self.link
    }

    /// Gives the programs of each side so many cores; `None`: they run on any.
    pub(crate) fn pin(&mut self, cores: Option<usize>) {
        self.cores = cores;
    }

    fn shape(&self, side: Side, interface: &str, rate: u64, stop: &Stop) -> Result<()> {
        let frame = u64::from(self.link.mtu) + 14;
        let burst = |us: u64| (rate / 8 * us / 1_000_000).max(2 * frame).to_string();
        let (bits, limit) = (format!("{rate}bit"), (QUEUE_FRAMES * frame).to_string());
        let tc = |args: &[&str]| {
            let (verb, rest) = args.split_at(2);
            let mut tc = self.inside(side, "tc");
            run(tc.args(verb).args(["dev", interface]).args(rest), stop).map(drop)
        };
        match self.link.shaper {
            Shaper::TokenBucket => {
                let bucket = ["rate", &bits, "burst", &burst(BURST_US), "limit", &limit];
                tc(&[&["qdisc", "replace", "root", "tbf"][..], &bucket].concat())
            }
            Shaper::Bursts => {
                let burst = burst(BURST_MANY_US);
                tc(&["qdisc", "replace", "root", "handle", "1:", "htb", "default", "1"])?;
                let class = ["class", "add", "parent", "1:", "classid", "1:1", "htb"];
                let bucket = ["rate", &bits, "burst", &burst, "cburst", &burst];
                // A class's turn before others get theirs; there are no others.
                tc(&[&class[..], &bucket, &["quantum", "60000"]].concat())?;
                tc(&["qdisc", "add", "parent", "1:1", "bfifo", "limit", &limit])
            }
        }
    }

    /// Adds a rule for frames that arrive over these cables at these ends, until
    /// [`unfilter`](Self::unfilter) with the same name.
    pub(crate) fn filter(
        &self,
        name: &str,
        sides: &[Side],
        cables: &[u16],
        rule: &str,
        stop: &Stop,
    ) -> Result<()> {
        let devices: Vec<_> = cables.iter().map(|cable| interface(*cable)).collect();
        let rules = format!(
            "add table netdev {name}; add chain netdev {name} frames {{ type filter hook ingress \
             devices = {{ {} }} priority 0; }}; add rule netdev {name} frames {rule}",
            devices.join(", ")
        );
        for side in sides {
            run(self.inside(*side, "nft").arg(&rules), stop)?;
        }
        Ok(())
    }

    /// Removes the rules of [`filter`](Self::filter), if there are any.
    pub(crate) fn unfilter(&self, name: &str, sides: &[Side], stop: &Stop) -> Result<()> {
        // Added first: a table that does not exist can't be deleted.
        let rules = format!("add table netdev {name}; delete table netdev {name}");
        for side in sides {
            run(self.inside(*side, "nft").arg(&rules), stop)?;
        }
        Ok(())
    }

    /// Cuts cables.
    pub(crate) fn cut(&self, cables: &[u16], how: Cut, stop: &Stop) -> Result<()> {
        match how {
            Cut::Down => self.set_links(Side::Host, cables, "down", stop),
            Cut::Silent => self.filter("cut", &SIDES, cables, "drop", stop),
        }
    }

    /// Restores cables that [`cut`](Self::cut) has cut.
    pub(crate) fn mend(&self, cables: &[u16], how: Cut, stop: &Stop) -> Result<()> {
        match how {
            Cut::Down => self.set_links(Side::Host, cables, "up", stop),
            Cut::Silent => self.unfilter("cut", &SIDES, stop),
        }
    }

    /// Sets interfaces of one end up or down.
    pub(crate) fn set_links(
        &self,
        side: Side,
        cables: &[u16],
        state: &str,
        stop: &Stop,
    ) -> Result<()> {
        let namespace = self.namespace(side);
        for cable in cables {
            ip(&["-n", &namespace, "link", "set", &interface(*cable), state], stop)?;
        }
        Ok(())
    }

    /// Lets multipath TCP use this many cables, from the first on: the target announces the
    /// addresses on the others to hosts that connect over the first.
    pub(crate) fn set_subflows(&mut self, cables: u16, stop: &Stop) -> Result<()> {
        if self.subflows == cables {
            return Ok(());
        }
        for side in SIDES {
            let limits = ["subflow", SUBFLOWS_MAX, "add_addr_accepted", SUBFLOWS_MAX];
            let set = ["-n", &self.namespace(side), "mptcp", "limits", "set"];
            ip(&[&set[..], &limits].concat(), stop)?;
        }
        let target = self.namespace(Side::Target);
        ip(&["-n", &target, "mptcp", "endpoint", "flush"], stop)?;
        for cable in 1..cables {
            let (address, device) = (address(Side::Target, cable), interface(cable));
            let add = ["-n", &target, "mptcp", "endpoint", "add", &address];
            ip(&[&add[..], &["dev", &device, "signal"]].concat(), stop)?;
        }
        self.subflows = cables;
        Ok(())
    }

    /// Leaves segmentation to the interface, as is usual, or has the kernel's TCP make and take
    /// every single frame, as with a NIC without offloads.
    pub(crate) fn set_offloads(&mut self, on: bool, stop: &Stop) -> Result<()> {
        if self.offloads == Some(on) {
            return Ok(());
        }
        let setting = if on { "on" } else { "off" };
        for interface in self.link.interfaces() {
            for side in SIDES {
                let mut ethtool = self.inside(side, "ethtool");
                ethtool.args(["-K", &interface, "tso", setting, "gso", setting]);
                if !on {
                    // GRO is off in a new veth pair.
                    ethtool.args(["gro", setting]);
                }
                run(&mut ethtool, stop)?;
            }
        }
        self.offloads = Some(on);
        Ok(())
    }

    /// A program in one side's network namespace; its other namespaces, mounts in particular, are
    /// this process's.
    pub(crate) fn inside(&self, side: Side, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(side))).args(["--", program]);
        command
    }

    /// A program on one side, pinned to that side's cores unless cores are free.
    pub(crate) fn pinned(&self, side: Side, program: &str) -> Command {
        let Some(each) = self.cores else { return self.inside(side, program) };
        let mut command = self.inside(side, "taskset");
        command.args(["--cpu-list", &side.cores(each), program]);
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
        for side in SIDES {
            let name = self.namespace(side);
            if !fs::exists(format!("/run/netns/{name}")).unwrap_or(false) {
                continue;
            }
            // The cables go with their ends. The user can no longer interrupt this.
            match Command::new("ip").args(["netns", "del", &name]).output() {
                Ok(output) if output.status.success() => {}
                _ => eprintln!("left behind: network namespace; ip netns del {name}"),
            }
        }
    }
}

/// The hysteresis of `htb`, switched on until this is dropped.
struct Hysteresis {
    before: String,
}

impl Hysteresis {
    const PARAMETER: &str = "/sys/module/sch_htb/parameters/htb_hysteresis";

    fn set() -> Result<Self> {
        let before = fs::read_to_string(Self::PARAMETER).doing(Self::PARAMETER)?;
        fs::write(Self::PARAMETER, "1").doing(Self::PARAMETER)?;
        Ok(Self { before })
    }
}

impl Drop for Hysteresis {
    fn drop(&mut self) {
        if fs::write(Self::PARAMETER, &self.before).is_err() {
            eprintln!("left behind: echo {} > {}", self.before.trim(), Self::PARAMETER);
        }
    }
}

/// Traffic of the cables so far, as the process `pid` at one end sees it.
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
        // Received bytes and packets, six more counters, then the same for sent ones.
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
    fn one_cable_may_be_slower() {
        let odd = Odd { cable: 2, rate: Some(200), loss: 0, delay_ms: 0 };
        let link = Link { cables: 3, odd: Some(odd), ..Link::shaped(9000, 1000) };
        assert_eq!([0, 1, 2].map(|cable| link.rate_of(cable)), [Some(1000), Some(1000), Some(200)]);
        assert_eq!(address(Side::Target, 0), "192.0.2.2");
        assert_eq!(address(Side::Host, 5), "192.0.2.81");
    }

    #[test]
    fn the_host_has_the_lower_cores() {
        assert_eq!(SIDES.map(|side| side.cores(1)), ["0", "1"]);
        assert_eq!(SIDES.map(|side| side.cores(8)), ["0-7", "8-15"]);
    }

    #[test]
    fn whole_pages_are_payload() {
        assert_eq!(payload_share(9000), 8192.0 / 8280.0);
        assert_eq!(payload_share(1500), 1426.0 / 1514.0);
    }

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
