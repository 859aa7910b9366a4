//! The options of every command that uses network interfaces, and the links that they open.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_link::packet::interfaces;
use tyche_numa::Placement;
use tyche_proto::BatchPolicy;
use tyche_proto::wire::ETHERTYPE;
use tyche_session::{End, LinkOptions, Opened};

use crate::error::{CodedResult, Result};
use crate::wrap::Wrapper;

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
    /// Each has a frame of its own: the baseline to measure batching against.
    None,
    /// Those that are ready at the same time share a frame; none waits.
    Natural,
    /// A frame waits up to 50 microseconds for the number that gave the best throughput lately, at
    /// most an eighth of those in progress; so none waits below depth 16.
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
        let options = LinkOptions { ethertype: self.ethertype, qdisc: self.qdisc, placement };
        let mut opened = options.open_all(named, end).coded()?;
        if let Some(wrapper) = &self.wrapper {
            let own = opened.links.iter().map(|link| link.name().to_owned()).collect();
            let names = if named.is_empty() { own } else { named.to_vec() };
            let links = names.into_iter().zip(opened.links).collect();
            opened.links = wrapper.links(links, self.spin())?;
        }
        Ok(opened)
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
