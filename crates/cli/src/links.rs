//! The options of every command that uses network interfaces, and what they open.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::Args;
use tyche_link::Link;
use tyche_link::packet::{PacketLink, PacketOptions, interfaces, receive_buffer_for};
use tyche_link::tcp::{TcpClient, TcpOptions, TcpServer};
use tyche_proto::wire::{ETHERTYPE, FRAME_LEN_MAX};

use crate::error::{Code, Context, Error, Result};

/// Frames of the longest kind that a receive buffer should hold: two full windows.
const RECEIVE_FRAMES: usize = 1024;

/// What the name of a link over TCP begins with.
const TCP: &str = "tcp:";

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

    /// Opens a link on an interface, or over TCP.
    fn open(&self, interface: &str, end: End) -> Result<Box<dyn Link>> {
        if let Some(place) = interface.strip_prefix(TCP) {
            return open_tcp(place, end);
        }
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

    /// Opens the links named, or one on each interface that is running if none is.
    pub(crate) fn open_all(&self, named: &[String], end: End) -> Result<Vec<Box<dyn Link>>> {
        if !named.is_empty() {
            return named.iter().map(|name| self.open(name, end)).collect();
        }
        let running: Vec<_> = interfaces()?.into_iter().filter(|it| it.running).collect();
        if running.is_empty() {
            let message = "no Ethernet interface is up; `ip link set NAME up` starts one";
            return Err(Error::new(Code::Link, message));
        }
        running.iter().map(|interface| self.open(&interface.name, end)).collect()
    }
}

/// Whether a link of that name needs no Ethernet.
pub(crate) fn is_tcp(name: &str) -> bool {
    name.starts_with(TCP)
}

fn open_tcp(place: &str, end: End) -> Result<Box<dyn Link>> {
    let addresses = addresses(place, end)?;
    let options = TcpOptions::default();
    Ok(match end {
        End::Host => Box::new(TcpClient::connect(&addresses, &options)?),
        End::Target => Box::new(TcpServer::listen(&addresses, &options)?),
    })
}

/// The addresses that `HOST:PORT` stands for.
fn addresses(place: &str, end: End) -> Result<Vec<SocketAddr>> {
    let misspelt = |what: &str| {
        let message = format!(
            "`{TCP}{place}`: {what}; write {TCP}HOST:PORT, such as {TCP}192.0.2.1:8650 or \
             {TCP}[2001:db8::1]:8650"
        );
        Error::new(Code::Usage, message)
    };
    let (host, port) = place.rsplit_once(':').ok_or_else(|| misspelt("there is no port"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let bare = match bare {
        Some(bare) => bare,
        None if host.contains(':') => return Err(misspelt("an IPv6 address needs brackets")),
        None => host,
    };
    if bare.is_empty() {
        return Err(misspelt("there is no host"));
    }
    // A target may leave the choice to the kernel, and says what it was.
    match port.parse::<u16>() {
        Ok(port) if port > 0 || end == End::Target => {
            let found = (bare, port).to_socket_addrs();
            Ok(found.context(Code::Unreachable, format!("find the address of {bare}"))?.collect())
        }
        _ => Err(misspelt("the port is no number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ipv4_ipv6_or_names() {
        let one = |place: &str| addresses(place, End::Host).unwrap()[0].to_string();
        assert_eq!(one("127.0.0.1:8650"), "127.0.0.1:8650");
        assert_eq!(one("[::1]:8650"), "[::1]:8650");
        assert!(one("localhost:1").ends_with(":1"));
        assert_eq!(addresses("[::]:0", End::Target).unwrap()[0].port(), 0);
    }

    #[test]
    fn misspelt_places_are_usage_errors() {
        for place in ["", "host", ":1", "[]:1", "::1:8650", "a:b", "a:0", "a:65536", "a:", "a:-1"] {
            let error = addresses(place, End::Host).unwrap_err();
            assert_eq!(error.code, Code::Usage, "{place}: {error}");
            assert!(error.message.contains("tcp:HOST:PORT"), "{error}");
        }
    }
}
