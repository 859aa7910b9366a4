//! An AF_PACKET socket on a network interface.
//!
//! A socket is bound to one interface and one EtherType, so the kernel's own demultiplexer keeps
//! everything else away. It receives frames to the interface's address, broadcasts, and frames to
//! the addresses that it has [joined](Link::join), up to 32: no promiscuous mode, nothing for a
//! VLAN or a macvlan on the interface, which are interfaces of their own (`filter`). A protocol
//! with several EtherTypes opens a link for each, on the same interface. The kernel writes received
//! frames to a shared ring, so receiving needs no system call. `sendmmsg` copies frames to send,
//! and bypasses the traffic control layer (qdisc) by default: one lock and one queue less per
//! frame.
//!
//! # Changes of the interface
//! - *Down, no carrier to send on, or part of a bridge or bond*, for which
//!   [`look_after`](Link::look_after) looks: calls fail with `NetworkDown`. *Removed*: `NotFound`.
//!   A down interface wakes a waiter once, not again; [`receive`](Link::receive) notices after
//!   that, or after some time without frames. To see the interface come back, call it from time to
//!   time: it checks, and binds to the interface again, even to a new one of the same name.
//! - *MTU or address changed*: noticed within [`REFRESH_EVERY`] by
//!   [`frame_len_max`](Link::frame_len_max), at once after a send that the kernel refused for its
//!   length, or with [`PacketLink::refresh`]. The slots of the ring are made for the MTU at the
//!   time that the link was opened; [`look_after`](Link::look_after) replaces it with a ring for
//!   longer frames.
//!
//! # Privileges
//! `CAP_NET_RAW`, in the user namespace that owns the network namespace. `CAP_NET_ADMIN` on top
//! lets the send buffer be larger than `net.core.wmem_max`.

mod changes;
mod endpoint;
mod error;
mod filter;
mod interface;
mod messages;
mod receiver;
mod relations;
mod ring;
mod socket;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use changes::Changes;
use endpoint::Endpoint;
pub use error::{BufferShortfall, OpenError};
use filter::Filter;
pub use interface::{InterfaceInfo, interfaces, usable_interfaces};
use messages::Messages;
use receiver::PacketReceiver;
use relations::Route;
pub use relations::{Relations, relations};
use ring::{Ring, Shape};
use socket::{SENDS_ONLY, Socket};
use tyche_counters::{CounterGroup, Reading};
use tyche_numa::Node;

use crate::{ETHERTYPE, HEAD, Interface, Link, Mac, Malformed, Receiver, RxBatch, Share, TxBatch};

/// The greatest age of a link's data about its interface. A query costs a system call or two.
pub const REFRESH_EVERY: Duration = Duration::from_millis(100);

/// The least MTU that a link is opened on, in bytes: that of the narrowest networks in use today
/// (IPv6 requires it, too).
pub const MTU_MIN: usize = 1280;

/// EtherTypes below this are lengths.
const ETHERTYPE_MIN: u16 = 0x0600;

/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;

/// Options for [`PacketLink::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// The EtherType of the frames, 0x0600 or above.
    pub ethertype: u16,
    /// Bytes of a frame's head, up to 256: what follows is received page-aligned.
    pub head_len: usize,
    /// The least number of frames that the receive ring holds. Each takes the MTU in whole pages,
    /// and a page more.
    pub frames_min: usize,
    /// The send buffer, as for `SO_SNDBUF`, in bytes.
    pub send_buffer: usize,
    /// Whether frames bypass the queueing discipline. Traffic shaping (`tc qdisc`) has no effect
    /// then.
    pub qdisc_bypass: bool,
}

impl PacketOptions {
    /// Defaults for an interface: the local experimental EtherType, at least 128 frames received, a
    /// send buffer of 16 MiB.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            ethertype: ETHERTYPE,
            head_len: HEAD,
            frames_min: 128,
            send_buffer: 16 << 20,
            qdisc_bypass: true,
        }
    }
}

/// A link over a network interface.
pub struct PacketLink {
    endpoint: Arc<Endpoint>,
    /// `None` once it was taken.
    receiver: Option<PacketReceiver>,
    messages: Messages,
    shape: Shape,
    /// The time of the last query of the interface.
    refreshed: Cell<Instant>,
    shortfall: Option<BufferShortfall>,
    overruns: u64,
}

impl PacketLink {
    /// Opens a link on an interface that is up. Frames are received from now on.
    ///
    /// # Errors
    /// Each names a remedy. A send buffer smaller than asked for is no error, but see
    /// [`shortfall`](Self::shortfall).
    pub fn open(options: &PacketOptions) -> Result<Self, OpenError> {
        let PacketOptions { interface: name, ethertype, .. } = options;
        if *ethertype < ETHERTYPE_MIN {
            return Err(OpenError::EtherType(*ethertype));
        }
        let route = Route::open()
            .map_err(|source| OpenError::System { call: "socket(AF_NETLINK)", source })?;
        let info = find(name, &route)?;
        let shape = Shape::new(options.head_len, ETHERNET + info.mtu, options.frames_min);
        let (incoming, ring) = open_incoming(shape, info.index)?;
        let (outgoing, shortfall) = open_outgoing(options)?;
        for (socket, protocol) in [(&outgoing, SENDS_ONLY), (&incoming, *ethertype)] {
            socket
                .bind(info.index, protocol)
                .map_err(|source| OpenError::System { call: "bind(AF_PACKET)", source })?;
        }
        let endpoint = Arc::new(Endpoint::new(incoming, outgoing, route, *ethertype, info));
        Ok(Self {
            receiver: Some(PacketReceiver::new(Arc::clone(&endpoint), ring)),
            endpoint,
            messages: Messages::default(),
            shape,
            refreshed: Cell::new(Instant::now()),
            shortfall,
            overruns: 0,
        })
    }

    /// The shortfall of the send buffer, if the kernel did not grant all of it: a warning for the
    /// log.
    pub fn shortfall(&self) -> Option<&BufferShortfall> {
        self.shortfall.as_ref()
    }

    /// Received frames that were dropped because of their length, since the link opened.
    pub fn malformed(&self) -> Malformed {
        self.endpoint.malformed()
    }

    /// Queries the interface's present state. If it is gone, the last known state stays.
    pub fn refresh(&self) {
        self.endpoint.refresh();
        self.refreshed.set(Instant::now());
    }

    /// The interface's MTU, not older than [`REFRESH_EVERY`].
    fn mtu(&self) -> usize {
        if self.refreshed.get().elapsed() >= REFRESH_EVERY {
            self.refresh();
        }
        self.endpoint.mtu()
    }

    /// The result of a refused send: `Ok(0)` for a full queue.
    fn refused(&self, error: io::Error) -> io::Result<usize> {
        let endpoint = &self.endpoint;
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(0),
            // Also the error of a driver without a carrier, where a retry is useless.
            Some(libc::ENOBUFS) => {
                match interface::flags(endpoint.incoming.as_fd(), endpoint.name()) {
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
                let (name, mtu) = (endpoint.name(), endpoint.mtu());
                let message = format!("interface {name} takes only packets of {mtu} bytes now");
                Err(io::Error::new(io::ErrorKind::InvalidInput, message))
            }
            code if code == Some(libc::ENETDOWN) || endpoint::is_gone(&error) => {
                endpoint.detach();
                Err(endpoint.explain(error))
            }
            _ => Err(error),
        }
    }
}

impl Link for PacketLink {
    fn interface(&self) -> Interface<'_> {
        Interface { name: self.endpoint.name(), mac: self.endpoint.mac() }
    }

    fn frame_len_max(&self) -> usize {
        (ETHERNET + self.mtu()).min(self.shape.frame_len_max())
    }

    fn look_after(&mut self) -> Option<usize> {
        self.endpoint.check_master();
        let len = ETHERNET + self.mtu();
        // A receiver in another thread has the ring.
        if let Some(receiver) = &mut self.receiver
            && len > self.shape.frame_len_max()
            && self.endpoint.is_attached()
        {
            let shape = self.shape.grown(len);
            // Without memory for it, the ring stays as it was, and the next call tries again.
            if receiver.reshape(self.shape, shape).is_ok() {
                self.shape = shape;
            }
        }
        Some(self.frame_len_max())
    }

    fn receive_capacity(&self, _frame_len: usize) -> usize {
        self.shape.slots()
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.receiver.as_mut().expect("the receiver has not been taken").receive(batch)
    }

    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        Ok(Box::new(self.receiver.take().expect("there is one receiver")))
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        if !self.endpoint.is_attached() {
            self.endpoint.attach()?;
        }
        let sent = self.endpoint.outgoing.send(&mut self.messages, batch);
        sent.or_else(|error| self.refused(error))
    }

    fn retries(&self) -> bool {
        true
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_ref().expect("the receiver has not been taken").wait_fd()
    }

    fn overruns(&mut self) -> u64 {
        // The kernel resets its count when it is read. On an error the count is taken as zero.
        self.overruns += self.endpoint.incoming.drops().map_or(0, u64::from);
        self.overruns
    }

    fn join(&mut self, address: Mac) -> io::Result<()> {
        self.endpoint.join(address)
    }

    fn leave(&mut self, address: Mac) -> io::Result<()> {
        self.endpoint.leave(address)
    }

    fn narrow(&mut self, at: usize, bytes: [u8; 4]) {
        // Without the filter there is only more work.
        let _ = self.endpoint.filter(|filter| filter.mark = Some((at, bytes)));
    }

    fn select(&mut self, share: Share) -> bool {
        self.endpoint.filter(|filter| filter.share = Some(share)).is_ok()
    }

    fn stamp_arrivals(&mut self, on: bool) -> bool {
        self.endpoint.stamp_arrivals(on);
        true
    }

    fn counters(&self) -> Vec<Reading> {
        self.malformed().iter().collect()
    }

    fn memory_nodes(&self) -> Vec<Node> {
        self.receiver.as_ref().map_or(Vec::new(), PacketReceiver::memory_nodes)
    }
}

impl std::fmt::Debug for PacketLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, .. } = self;
        write!(f, "PacketLink({}, EtherType {:#06x})", endpoint.name(), endpoint.ethertype())
    }
}

/// Finds the interface, and checks that it can be opened.
fn find(name: &str, route: &Route) -> Result<InterfaceInfo, OpenError> {
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
    interface::check_single(socket.as_fd(), route, name, info.index)?;
    if info.mtu < MTU_MIN {
        return Err(OpenError::MtuTooSmall { interface, mtu: info.mtu });
    }
    Ok(info)
}

fn open_socket() -> Result<Socket, OpenError> {
    Socket::new().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted,
        _ => OpenError::System { call: "socket(AF_PACKET)", source: error },
    })
}

fn set(socket: &Socket, option: i32, value: i32) -> Result<(), OpenError> {
    let failed = |source| OpenError::System { call: "setsockopt(SOL_PACKET)", source };
    socket.set_option(libc::SOL_PACKET, option, value).map_err(failed)
}

/// A receiving socket for that interface, and its ring.
fn open_incoming(shape: Shape, interface: i32) -> Result<(Socket, Ring), OpenError> {
    let socket = open_socket()?;
    set(&socket, libc::PACKET_IGNORE_OUTGOING, 1)?;
    socket
        .filter(&Filter::new(interface))
        .map_err(|source| OpenError::System { call: "SO_ATTACH_FILTER", source })?;
    let ring = socket
        .receive_into_ring(shape)
        .map_err(|source| OpenError::System { call: "PACKET_RX_RING", source })?;
    Ok((socket, ring))
}

/// A sending socket, and the shortfall of its buffer.
fn open_outgoing(options: &PacketOptions) -> Result<(Socket, Option<BufferShortfall>), OpenError> {
    let socket = open_socket()?;
    set(&socket, libc::PACKET_QDISC_BYPASS, options.qdisc_bypass.into())?;
    set(&socket, libc::PACKET_VNET_HDR, 1)?;
    let shortfall = grant(&socket, options.send_buffer)?;
    Ok((socket, shortfall))
}

/// Enlarges the send buffer as far as permitted. Returns the shortfall, if any.
fn grant(socket: &Socket, wanted: usize) -> Result<Option<BufferShortfall>, OpenError> {
    // The kernel doubles the value in an `int`.
    let value = i32::try_from(wanted).unwrap_or(i32::MAX).min(i32::MAX / 2);
    let failed = |source| OpenError::System { call: "setsockopt(SO_SNDBUF)", source };
    if socket.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, value).is_err() {
        // Without the privilege: silently up to the system-wide limit.
        socket.set_option(libc::SOL_SOCKET, libc::SO_SNDBUF, value).map_err(failed)?;
    }
    let granted = socket.send_buffer().map_err(failed)?;
    Ok((granted < wanted).then_some(BufferShortfall { wanted, granted }))
}
