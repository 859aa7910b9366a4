//! The options of every command that uses network interfaces, and the links that they open.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_link::packet::interfaces;
use tyche_numa::Placement;
use tyche_proto::BatchPolicy;
use tyche_proto::wire::ETHERTYPE;
use tyche_session::{End, LinkError, LinkOptions, Opened};

use crate::shared::error::{CodedResult, Result};
use crate::shared::wrap::Wrapper;

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
        let mut opened = self.options(placement).open_all(named, end).coded()?;
        self.wrap(named, &mut opened)?;
        Ok(opened)
    }

    /// As [`open_all`](Self::open_all), but named links that may open later are missing in the
    /// result as long as there is another.
    ///
    /// # Errors
    /// If one of the named links can't be opened now nor later, or none opens.
    pub(crate) fn open_available(
        &self,
        named: &[String],
        end: End,
        placement: &Placement,
    ) -> Result<Opened> {
        let mut opened = self.options(placement).open_available(named, end).coded()?;
        self.wrap(named, &mut opened)?;
        Ok(opened)
    }

    /// Opens the [available](Self::open_available) of the named links of a host, if any are named,
    /// and those to found addresses that open; returns them, and the latter's errors.
    ///
    /// # Errors
    /// If one of the named links can't be opened now nor later, or none of them opens.
    pub(crate) fn open_found(
        &self,
        named: &[String],
        found: &[String],
    ) -> Result<(Opened, Vec<(String, LinkError)>)> {
        let placement = Placement::default();
        let options = self.options(&placement);
        let mut opened = Opened::default();
        if !named.is_empty() {
            opened = options.open_available(named, End::Host).coded()?;
        }
        let errors = options.open_some(found, End::Host, &mut opened);
        self.wrap(named, &mut opened)?;
        Ok((opened, errors))
    }

    fn options<'a>(&self, placement: &'a Placement) -> LinkOptions<'a> {
        LinkOptions { ethertype: self.ethertype, qdisc: self.qdisc, placement }
    }

    /// Has the laboratory wrap the links, the first of which were opened by the names `named`.
    fn wrap(&self, named: &[String], opened: &mut Opened) -> Result<()> {
        let Some(wrapper) = &self.wrapper else { return Ok(()) };
        let is_missing = |name: &&String| opened.missing.iter().any(|(it, _)| it == *name);
        let present: Vec<_> = named.iter().filter(|name| !is_missing(name)).collect();
        for links in std::iter::once(&mut opened.links).chain(&mut opened.further) {
            let names = present.iter().map(Some).chain(std::iter::repeat(None));
            let named = std::mem::take(links).into_iter().zip(names).map(|(link, name)| {
                let name = name.map_or(link.name(), |it| it.as_str()).to_owned();
                (name, link)
            });
            *links = wrapper.links(named.collect(), self.spin())?;
        }
        Ok(())
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
