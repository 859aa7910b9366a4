//! The options of every command that uses network interfaces, and the links that they open.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_link::Link;
use tyche_link::packet::{
    InterfaceInfo, PacketLink, PacketOptions, interfaces, relations, usable_interfaces,
};
use tyche_link::tcp::{Place, TcpClient, TcpOptions, TcpServer};
use tyche_numa::Placement;
use tyche_proto::BatchPolicy;
use tyche_proto::wire::{ETHERTYPE, Mac};

use crate::error::{Code, CodedResult, Context, Error, Result};
use crate::wrap::Wrapper;

/// The end of a session that a command is at: over TCP, the target listens and the host connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Host,
    Target,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LinkArgs {
    /// EtherType of the frames, the same on both sides.
    #[arg(long, value_name = "NUMBER", default_value = "0x88b5", value_parser = ethertype)]
    pub(crate) ethertype: u16,

    /// Send through the interface's queueing discipline, so that traffic control (tc) applies;
    /// costs some speed.
    #[arg(long)]
    pub(crate) qdisc: bool,

    /// Spin for up to this many microseconds for more work before sleeping, while that pays.
    /// Lowers latency, takes a core. By default 50 where there are more than 2 cores, else 0.
    #[arg(long, value_name = "MICROSECONDS",
        value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    spin: Option<u64>,

    /// Batching policy: how the requests or answers of this side share frames.
    #[arg(long, value_enum, value_name = "POLICY", default_value_t)]
    batch: Batch,

    /// A laboratory's wrapper around links and stores.
    #[arg(skip)]
    pub(crate) wrapper: Option<Arc<dyn Wrapper>>,
}

/// How requests or answers share frames.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Batch {
    /// Each has a frame of its own: what batching is measured against.
    None,
    /// What is ready at the same time goes together; nothing waits.
    Natural,
    /// A frame waits up to 50 microseconds for as many as gave the best throughput lately, an
    /// eighth of what is in progress at most; so nothing waits below depth 16.
    #[default]
    Adaptive,
}

fn ethertype(text: &str) -> Result<u16, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(number) if number >= 0x600 => Ok(number),
        _ => Err(format!("an EtherType is a number from 0x0600 on, such as {ETHERTYPE:#06x}")),
    }
}

impl LinkArgs {
    /// The spin time.
    pub(crate) fn spin(&self) -> Duration {
        let roomy = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 2);
        Duration::from_micros(self.spin.unwrap_or(if roomy { 50 } else { 0 }))
    }

    /// The batch policy for sent frames.
    pub(crate) fn batch(&self) -> BatchPolicy {
        match self.batch {
            Batch::None => BatchPolicy::None,
            Batch::Natural => BatchPolicy::Natural,
            Batch::Adaptive => BatchPolicy::Adaptive,
        }
    }

    /// Opens a link on an interface, or over TCP. The kernel's memory for it is placed on its NUMA
    /// node.
    fn open(&self, interface: &str, end: End, placement: &Placement) -> Result<Box<dyn Link>> {
        let home = placement.home(interface).coded()?;
        if placement.is_active() && home.node().is_none() {
            tracing::warn!(interface, "is on no NUMA node: --affinity does nothing for it");
        }
        let _near = home.near().coded()?;
        // A target may use port 0: the kernel chooses a port, and the target reports it.
        let port_min = u16::from(end == End::Host);
        let place = Place::parse(interface, port_min);
        if let Some(place) = place.map_err(|it| Error::new(Code::Usage, it.to_string()))? {
            return open_tcp(&place, end);
        }
        let mut options = PacketOptions::new(interface);
        options.ethertype = self.ethertype;
        options.qdisc_bypass = !self.qdisc;
        let link = PacketLink::open(&options).coded()?;
        if let Some(shortfall) = link.shortfall() {
            tracing::warn!(interface, "{shortfall}");
        }
        Ok(Box::new(link))
    }

    /// Opens the named links, or one on each usable interface if none is named.
    ///
    /// # Errors
    /// If one of the named links can't be opened, or no interface at all.
    pub(crate) fn open_all(
        &self,
        named: &[String],
        end: End,
        placement: &Placement,
    ) -> Result<Opened> {
        let mut opened = if named.is_empty() {
            self.open_every(end, placement)?
        } else {
            let links = named.iter().map(|name| self.open(name, end, placement));
            Opened { links: links.collect::<Result<_>>()?, warnings: Vec::new() }
        };
        opened.warnings.extend(twins(&opened.links));
        if let Some(wrapper) = &self.wrapper {
            let own = opened.links.iter().map(|link| link.name().to_owned()).collect();
            let names = if named.is_empty() { own } else { named.to_vec() };
            let links = names.into_iter().zip(opened.links).collect();
            opened.links = wrapper.links(links, self.spin())?;
        }
        Ok(opened)
    }

    /// Opens a link on each interface that is running and not part of another. Failures are
    /// warnings unless all interfaces fail.
    fn open_every(&self, end: End, placement: &Placement) -> Result<Opened> {
        let (mut links, mut errors) = (Vec::new(), Vec::new());
        for InterfaceInfo { name, .. } in usable_interfaces()? {
            match self.open(&name, end, placement) {
                Ok(link) => links.push(link),
                Err(error) => errors.push(error),
            }
        }
        if links.is_empty() {
            let message = "no Ethernet interface is up; `ip link set NAME up` starts one";
            let none = || Error::new(Code::Link, message);
            return Err(errors.into_iter().next().unwrap_or_else(none));
        }
        let warnings = errors.iter().map(|error| format!("{error}; going on without it"));
        Ok(Opened { links, warnings: warnings.collect() })
    }
}

/// Open links, and warnings about them in words.
pub(crate) struct Opened {
    pub(crate) links: Vec<Box<dyn Link>>,
    pub(crate) warnings: Vec<String>,
}

impl Opened {
    /// The links; logs the warnings.
    pub(crate) fn logged(self) -> Vec<Box<dyn Link>> {
        log_warnings(&self.warnings);
        self.links
    }
}

/// The MTU of an interface, by the length of its longest frames in bytes.
pub(crate) fn mtu(frame_len: u64) -> u64 {
    /// Two addresses and the EtherType.
    const ETHERNET_HEADER: u64 = 14;
    frame_len.saturating_sub(ETHERNET_HEADER)
}

/// The MTUs of the interfaces named, or of all that are running, in words.
pub(crate) fn mtus(named: &[String]) -> String {
    let mut interfaces = interfaces().unwrap_or_default();
    interfaces.retain(|it| if named.is_empty() { it.running } else { named.contains(&it.name) });
    let mtus = interfaces.iter().map(|it| format!("that of {} is {}", it.name, it.mtu));
    let mtus: Vec<_> = mtus.collect();
    format!("something on the way has a smaller MTU than this end: {}", mtus.join(", "))
}

/// Writes warnings to the log.
pub(crate) fn log_warnings(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// The links on all usable interfaces, with default options.
pub(crate) fn open_usable() -> Vec<Box<dyn Link>> {
    let names = usable_interfaces().unwrap_or_default().into_iter().map(|it| it.name);
    let links = names.filter_map(|name| PacketLink::open(&PacketOptions::new(&name)).ok());
    links.map(|link| Box::new(link) as Box<dyn Link>).collect()
}

/// Warnings of interfaces that share an address: a switch delivers frames for it to one of them.
fn twins(links: &[Box<dyn Link>]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, link) in links.iter().enumerate() {
        // A VLAN has the address of its parent interface, and a segment of its own.
        let mut same = links[..index].iter().filter(|it| it.mac() == link.mac());
        let first = same.find(|it| vlan(it.name()) == vlan(link.name())).map(|it| it.name());
        // All TCP links have the same address; their streams tell them apart.
        let Some(first) = first.filter(|name| !Place::is_named_by(name)) else { continue };
        let (second, mac) = (link.name(), Mac(link.mac()));
        warnings.push(format!(
            "interfaces {first} and {second} have the same address {mac}: on one switch only one \
             of them works; `ip link set {second} address ..` gives it another"
        ));
    }
    warnings
}

/// The VLAN ID of an interface, if it is a VLAN.
fn vlan(interface: &str) -> Option<u16> {
    let found = interfaces().ok()?.into_iter().find(|it| it.name == interface)?;
    relations(found.index).ok()?.vlan
}

fn open_tcp(place: &Place, end: End) -> Result<Box<dyn Link>> {
    let found = place.resolve();
    let addresses =
        found.context(Code::Unreachable, format_args!("find the address of {}", place.host()))?;
    let options = TcpOptions::default();
    Ok(match end {
        End::Host => Box::new(TcpClient::connect(&addresses, &options).coded()?),
        End::Target => Box::new(TcpServer::listen(&addresses, &options).coded()?),
    })
}
