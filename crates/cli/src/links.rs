//! The options of every command that uses network interfaces, and what they open.

use std::time::Duration;

use clap::Args;
use tyche_link::Link;
use tyche_link::packet::{PacketLink, PacketOptions, interfaces, receive_buffer_for};
use tyche_proto::wire::{ETHERTYPE, FRAME_LEN_MAX};

use crate::error::{Code, Error, Result};

/// Frames of the longest kind that a receive buffer should hold: two full windows.
const RECEIVE_FRAMES: usize = 1024;

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

    /// Opens a link on an interface.
    pub(crate) fn open(&self, interface: &str) -> Result<Box<dyn Link>> {
        let mut options = PacketOptions::new(interface);
        options.ethertype = self.ethertype;
        options.qdisc_bypass = !self.qdisc;
        let mtu = interfaces()?.into_iter().find(|it| it.name == interface).map(|it| it.mtu);
        let frame_len = mtu.map_or(FRAME_LEN_MAX, |mtu| (mtu + 14).min(FRAME_LEN_MAX));
        options.receive_buffer = receive_buffer_for(RECEIVE_FRAMES, frame_len);
        let link = PacketLink::open(&options)?;
        for shortfall in link.shortfalls() {
            tracing::warn!(interface, "{shortfall}");
        }
        Ok(Box::new(link))
    }

    /// Opens links on the interfaces named, or on all that are running if none is.
    pub(crate) fn open_all(&self, named: &[String]) -> Result<Vec<Box<dyn Link>>> {
        if !named.is_empty() {
            return named.iter().map(|interface| self.open(interface)).collect();
        }
        let running: Vec<_> = interfaces()?.into_iter().filter(|it| it.running).collect();
        if running.is_empty() {
            let message = "no Ethernet interface is up; `ip link set NAME up` starts one";
            return Err(Error::new(Code::Link, message));
        }
        running.iter().map(|interface| self.open(&interface.name)).collect()
    }
}
