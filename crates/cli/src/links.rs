//! The options of every command that uses network interfaces, and what they open.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_link::Link;
use tyche_link::packet::{PacketLink, PacketOptions, interfaces};
use tyche_link::tcp::{Place, TcpClient, TcpOptions, TcpServer};
use tyche_numa::Placement;
use tyche_proto::BatchPolicy;
use tyche_proto::wire::ETHERTYPE;

use crate::error::{Code, Context, Error, Result};

/// On which end of sessions a command is: over TCP, one listens and the other connects.
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
    #[arg(long, value_name = "MICROSECONDS")]
    spin: Option<u64>,

    /// How what this side sends shares frames.
    #[arg(long, value_enum, value_name = "POLICY", default_value_t)]
    batch: Batch,
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
    /// How long to spin.
    pub(crate) fn spin(&self) -> Duration {
        let roomy = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 2);
        Duration::from_micros(self.spin.unwrap_or(if roomy { 50 } else { 0 }))
    }

    /// How what is sent shares frames.
    pub(crate) fn batch(&self) -> BatchPolicy {
        match self.batch {
            Batch::None => BatchPolicy::None,
            Batch::Natural => BatchPolicy::Natural,
            Batch::Adaptive => BatchPolicy::Adaptive,
        }
    }

    /// Opens a link on an interface, or over TCP. What the kernel allocates for it is placed.
    fn open(&self, interface: &str, end: End, placement: &Placement) -> Result<Box<dyn Link>> {
        let home = placement.home(interface)?;
        if placement.is_active() && home.node().is_none() {
            tracing::warn!(interface, "is on no NUMA node: --affinity does nothing for it");
        }
        let _near = home.near()?;
        // A target may leave the choice of a port to the kernel, and says what it was.
        let port_min = u16::from(end == End::Host);
        let place = Place::parse(interface, port_min);
        if let Some(place) = place.map_err(|it| Error::new(Code::Usage, it.to_string()))? {
            return open_tcp(&place, end);
        }
        let mut options = PacketOptions::new(interface);
        options.ethertype = self.ethertype;
        options.qdisc_bypass = !self.qdisc;
        let link = PacketLink::open(&options)?;
        if let Some(shortfall) = link.shortfall() {
            tracing::warn!(interface, "{shortfall}");
        }
        Ok(Box::new(link))
    }

    /// Opens the links named, or one on each interface that is running if none is.
    pub(crate) fn open_all(
        &self,
        named: &[String],
        end: End,
        placement: &Placement,
    ) -> Result<Vec<Box<dyn Link>>> {
        if !named.is_empty() {
            return named.iter().map(|name| self.open(name, end, placement)).collect();
        }
        let running: Vec<_> = interfaces()?.into_iter().filter(|it| it.running).collect();
        if running.is_empty() {
            let message = "no Ethernet interface is up; `ip link set NAME up` starts one";
            return Err(Error::new(Code::Link, message));
        }
        running.iter().map(|interface| self.open(&interface.name, end, placement)).collect()
    }
}

fn open_tcp(place: &Place, end: End) -> Result<Box<dyn Link>> {
    let found = place.resolve();
    let addresses =
        found.context(Code::Unreachable, format_args!("find the address of {}", place.host()))?;
    let options = TcpOptions::default();
    Ok(match end {
        End::Host => Box::new(TcpClient::connect(&addresses, &options)?),
        End::Target => Box::new(TcpServer::listen(&addresses, &options)?),
    })
}
