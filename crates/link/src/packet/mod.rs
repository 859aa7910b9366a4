//! An AF_PACKET socket on a network interface.
//!
//! The socket is bound to one interface and one EtherType, so the kernel's own demultiplexer
//! keeps everything else away. What comes in: frames to the interface's address and broadcasts;
//! no promiscuous mode, no multicast. What goes out bypasses the traffic control layer (qdisc)
//! unless told otherwise: one lock and one queue less for a frame.
//!
//! # When the interface changes
//! - *Down, or no carrier to send on*: calls fail with `NetworkDown`. *Removed*: `NotFound`.
//!   A down interface wakes a waiter once, not again; whoever waits for it to come back must call
//!   [`receive`](Link::receive) from time to time, which looks, and takes up with the interface
//!   again, a new one of the same name included.
//! - *MTU or address changed*: noticed within [`REFRESH_EVERY`] by
//!   [`frame_len_max`](Link::frame_len_max), at once after a send that the kernel refused because
//!   of its length, or with [`PacketLink::refresh`].
//!
//! # Privileges
//! `CAP_NET_RAW`, in the user namespace that owns the network namespace. `CAP_NET_ADMIN` on top
//! lets buffers be larger than `net.core.rmem_max` and `net.core.wmem_max`.

mod capacity;
mod endpoint;
mod error;
mod interface;
mod socket;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use capacity::receive_buffer_for;
use endpoint::{Endpoint, PacketReceiver};
pub use error::{BufferShortfall, OpenError};
pub use interface::{InterfaceInfo, interfaces};
use socket::Socket;

use crate::{Link, Mac, Receiver, RxBatch, TxBatch};

/// How old what a link says of its interface may be. Asking costs a system call or two.
pub const REFRESH_EVERY: Duration = Duration::from_millis(100);

/// The least MTU that a link is opened on, in bytes: that of the narrowest networks that carry
/// anything today (IPv6 demands it, too).
pub const MTU_MIN: usize = 1280;

/// EtherTypes below this are lengths.
const ETHERTYPE_MIN: u16 = 0x0600;

/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;

/// What [`PacketLink::open`] shall open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// The EtherType of the frames, 0x0600 or above.
    pub ethertype: u16,
    /// The receive buffer, as for `SO_RCVBUF`, in bytes: see [`receive_buffer_for`].
    pub receive_buffer: usize,
    /// The send buffer, as for `SO_SNDBUF`, in bytes.
    pub send_buffer: usize,
    /// Whether frames go straight to the driver. Traffic shaping (`tc qdisc`) has no effect then.
    pub qdisc_bypass: bool,
}

impl PacketOptions {
    /// Options for an interface: the local experimental EtherType, buffers of 16 MiB.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            ethertype: 0x88B5,
            receive_buffer: 16 << 20,
            send_buffer: 16 << 20,
            qdisc_bypass: true,
        }
    }

    /// Makes the receive buffer hold `frames` frames as long as the interface takes, up to
    /// `frame_len_max` bytes. An interface that is not there is found out when it is opened.
    ///
    /// # Errors
    /// What the system says when it cannot list the interfaces.
    pub fn receiving(mut self, frames: usize, frame_len_max: usize) -> io::Result<Self> {
        let info = interfaces()?.into_iter().find(|info| info.name == self.interface);
        let frame_len = info.map_or(frame_len_max, |info| (ETHERNET + info.mtu).min(frame_len_max));
        self.receive_buffer = receive_buffer_for(frames, frame_len);
        Ok(self)
    }
}

/// Received frames that never reached a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Malformed {
    /// Shorter than a head.
    pub short: u64,
    /// Longer than the batch had room for in a frame.
    pub long: u64,
}

/// A link over a network interface.
pub struct PacketLink {
    endpoint: Arc<Endpoint>,
    /// When the kernel was last asked what the interface is like.
    refreshed: Cell<Instant>,
    /// What the kernel granted, in its units: twice what was set.
    receive_limit: usize,
    shortfalls: Vec<BufferShortfall>,
    overruns: u64,
}

impl PacketLink {
    /// Opens a link on an interface that is up. Frames are received from now on.
    ///
    /// # Errors
    /// Each says what to do about it. A buffer smaller than asked for is no error, but see
    /// [`shortfalls`](Self::shortfalls).
    pub fn open(options: &PacketOptions) -> Result<Self, OpenError> {
        let PacketOptions { interface: name, ethertype, .. } = options;
        if *ethertype < ETHERTYPE_MIN {
            return Err(OpenError::EtherType(*ethertype));
        }
        let info = find(name)?;
        let socket = Socket::new().map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted,
            _ => OpenError::System { call: "socket(AF_PACKET)", source: error },
        })?;
        socket
            .set_option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
            .map_err(|source| OpenError::System { call: "PACKET_IGNORE_OUTGOING", source })?;
        let bypass = i32::from(options.qdisc_bypass);
        socket
            .set_option(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, bypass)
            .map_err(|source| OpenError::System { call: "PACKET_QDISC_BYPASS", source })?;
        socket
            .pass_only_own()
            .map_err(|source| OpenError::System { call: "SO_ATTACH_FILTER", source })?;
        let (receive_limit, receive) = grant(&socket, &RECEIVE, options.receive_buffer)?;
        let (_, send) = grant(&socket, &SEND, options.send_buffer)?;
        socket
            .bind(info.index, *ethertype)
            .map_err(|source| OpenError::System { call: "bind(AF_PACKET)", source })?;
        Ok(Self {
            endpoint: Arc::new(Endpoint::new(socket, *ethertype, info)),
            refreshed: Cell::new(Instant::now()),
            receive_limit,
            shortfalls: receive.into_iter().chain(send).collect(),
            overruns: 0,
        })
    }

    /// The buffers that the kernel did not grant in full: warnings for the log, or errors where
    /// a full window must fit.
    pub fn shortfalls(&self) -> &[BufferShortfall] {
        &self.shortfalls
    }

    /// Received frames that were dropped because of their length, since the link opened.
    pub fn malformed(&self) -> Malformed {
        self.endpoint.malformed()
    }

    /// Asks the kernel what the interface is like now. If it is gone, what was last seen stays.
    pub fn refresh(&self) {
        self.endpoint.refresh();
        self.refreshed.set(Instant::now());
    }

    /// What a refused send means: a full queue is `Ok(0)`.
    fn refused(&self, error: io::Error) -> io::Result<usize> {
        let endpoint = &self.endpoint;
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(0),
            // Also the answer of a driver without a carrier, where trying again is no use.
            Some(libc::ENOBUFS) => {
                match interface::flags(endpoint.socket.as_fd(), endpoint.name()) {
                    Ok((true, false)) => Err(io::Error::new(
                        io::ErrorKind::NetworkDown,
                        format!(
                            "interface {} has no carrier; check its cable or peer",
                            endpoint.name()
                        ),
                    )),
                    _ => Ok(0),
                }
            }
            Some(libc::EMSGSIZE) => {
                self.refresh();
                Err(error)
            }
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                endpoint.detach();
                Err(endpoint.explain(error))
            }
            _ => Err(error),
        }
    }
}

impl Link for PacketLink {
    fn name(&self) -> &str {
        self.endpoint.name()
    }

    fn mac(&self) -> Mac {
        self.endpoint.mac()
    }

    fn frame_len_max(&self) -> usize {
        if self.refreshed.get().elapsed() >= REFRESH_EVERY {
            self.refresh();
        }
        ETHERNET + self.endpoint.mtu()
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        capacity::capacity(self.receive_limit, frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.endpoint.receive(batch)
    }

    fn receiver(&self) -> io::Result<Box<dyn Receiver>> {
        Ok(Box::new(PacketReceiver(Arc::clone(&self.endpoint))))
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        if !self.endpoint.is_attached() {
            self.endpoint.attach()?;
        }
        self.endpoint.socket.send(batch).or_else(|error| self.refused(error))
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.socket.as_fd()
    }

    fn overruns(&mut self) -> u64 {
        // The kernel forgets its count when it is read. A socket that can't be asked lost none.
        self.overruns += self.endpoint.socket.drops().map_or(0, u64::from);
        self.overruns
    }

    fn stamp_arrivals(&mut self, on: bool) -> bool {
        self.endpoint.stamp_arrivals(on)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Malformed { short, long } = self.malformed();
        vec![("malformed_short", short), ("malformed_long", long)]
    }
}

impl std::fmt::Debug for PacketLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, .. } = self;
        write!(f, "PacketLink({}, EtherType {:#06x})", endpoint.name(), endpoint.ethertype())
    }
}

/// The interface to open, if it is one that can be opened.
fn find(name: &str) -> Result<InterfaceInfo, OpenError> {
    let socket = interface::any_socket()
        .map_err(|source| OpenError::System { call: "socket(AF_UNIX)", source })?;
    let interface = name.to_owned();
    let (info, hardware) = match interface::inspect(socket.as_fd(), name) {
        Ok(found) => found,
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            let present = interfaces().unwrap_or_default();
            let present = present.into_iter().map(|info| info.name).collect();
            return Err(OpenError::NoSuchInterface { interface, present });
        }
        Err(source) => return Err(OpenError::System { call: "ioctl(SIOCGIF..)", source }),
    };
    if !matches!(hardware, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
        return Err(OpenError::NotEthernet { interface, hardware });
    }
    if !info.up {
        return Err(OpenError::Down { interface });
    }
    if info.mtu < MTU_MIN {
        return Err(OpenError::MtuTooSmall { interface, mtu: info.mtu });
    }
    Ok(info)
}

/// The names of one buffer.
struct Buffer {
    force: i32,
    plain: i32,
    what: &'static str,
    sysctl: &'static str,
}

const RECEIVE: Buffer = Buffer {
    force: libc::SO_RCVBUFFORCE,
    plain: libc::SO_RCVBUF,
    what: "receive",
    sysctl: "net.core.rmem_max",
};

const SEND: Buffer = Buffer {
    force: libc::SO_SNDBUFFORCE,
    plain: libc::SO_SNDBUF,
    what: "send",
    sysctl: "net.core.wmem_max",
};

/// Sets a buffer as large as may be. Returns what the kernel granted in its own units, and what
/// is missing if it was less than wanted.
fn grant(
    socket: &Socket,
    buffer: &Buffer,
    wanted: usize,
) -> Result<(usize, Option<BufferShortfall>), OpenError> {
    // The kernel doubles the value in an `int`.
    let value = i32::try_from(wanted).unwrap_or(i32::MAX).min(i32::MAX / 2);
    let failed = |source| OpenError::System { call: "setsockopt(SO_RCVBUF, SO_SNDBUF)", source };
    if socket.set_option(libc::SOL_SOCKET, buffer.force, value).is_err() {
        // Not privileged: up to the system-wide limit, silently.
        socket.set_option(libc::SOL_SOCKET, buffer.plain, value).map_err(failed)?;
    }
    let limit = socket.buffer(buffer.plain).map_err(failed)?;
    let granted = limit / 2;
    let shortfall = (granted < wanted).then_some(BufferShortfall {
        buffer: buffer.what,
        sysctl: buffer.sysctl,
        wanted,
        granted,
    });
    Ok((limit, shortfall))
}
