//! A host's end: one socket with one peer, renewed when the peer is not heard.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tyche_counters::Reading;

use super::incoming::Incoming;
use super::outgoing::{Outgoing, Routes};
use super::{FRAME_LEN_MAX, OWN, PEER, TRANSPORT, UdpOptions, all_counters, capacity, socket};
use crate::ip::{ListenAddress, OpenError, Transport};
use crate::{HEAD, Interface, Link, RxBatch, TxBatch};

/// The greatest age of what is known of the route: a query costs a system call.
const REFRESH_EVERY: Duration = Duration::from_millis(100);
/// Reports that the peer can't be reached count if nothing was heard of it for so long.
const REPORTS_AFTER: Duration = Duration::from_secs(1);
/// A report that datagrams are too long counts once in so long.
const TOO_LONG_AFTER: Duration = Duration::from_secs(10);
/// Broadcasts without an answer, and the time without one, after which the socket is renewed.
const ASKED_MAX: u32 = 3;
const UNHEARD_MAX: Duration = Duration::from_secs(1);

/// A link over UDP to one peer, for a host.
///
/// A host that has lost its target broadcasts questions. If they get no answer, the name of the
/// place is looked up again, by a thread of its own, and the next of the addresses is tried from a
/// new socket.
pub struct UdpClient {
    name: String,
    place: ListenAddress,
    addresses: Vec<SocketAddr>,
    /// Index of the address in use.
    turn: usize,
    socket: OwnedFd,
    options: UdpOptions,
    receive_buffer: usize,
    incoming: Incoming,
    outgoing: Outgoing,
    /// The longest frame, and when that was found out.
    frame_len_max: Cell<(usize, Instant)>,
    /// When the peer was last heard.
    heard: Option<Instant>,
    /// Broadcasts since then.
    asked: u32,
    /// When the socket was opened.
    opened: Instant,
    /// The addresses of the place, being looked up.
    lookup: Option<Receiver<Vec<SocketAddr>>>,
    /// Why the peer can't be reached, until it is heard again.
    trouble: Option<i32>,
    /// When a report about too long datagrams last counted.
    too_long: Option<Instant>,
}

impl UdpClient {
    /// A link to the first of `addresses` that there is a route to; they are those of `place`.
    ///
    /// # Errors
    /// The reason why the last of them fails, with a remedy.
    pub fn connect(
        place: &ListenAddress,
        addresses: &[SocketAddr],
        options: &UdpOptions,
    ) -> Result<Self, OpenError> {
        let failed = |transport, address, source| OpenError::Connect { transport, address, source };
        let (turn, (socket, frame_len_max)) = TRANSPORT.first(addresses, options, open, failed)?;
        let receive_buffer =
            socket::receive_buffer(&socket).map_err(OpenError::system("getsockopt(SO_RCVBUF)"))?;
        let now = Instant::now();
        Ok(Self {
            name: format!("udp:{}", addresses[turn]),
            place: place.clone(),
            addresses: addresses.to_vec(),
            turn,
            socket,
            options: options.clone(),
            receive_buffer,
            incoming: Incoming::new().map_err(OpenError::system("eventfd"))?,
            outgoing: Outgoing::new(),
            frame_len_max: Cell::new((frame_len_max, now)),
            heard: None,
            asked: 0,
            opened: now,
            lookup: None,
            trouble: None,
            too_long: None,
        })
    }

    fn address(&self) -> SocketAddr {
        self.addresses[self.turn]
    }

    fn was_heard_within(&self, time: Duration) -> bool {
        self.heard.is_some_and(|heard| heard.elapsed() < time)
    }

    /// Notes that frames have come.
    fn hear(&mut self) {
        self.heard = Some(Instant::now());
        (self.asked, self.trouble) = (0, None);
    }

    /// Notes the broadcasts of a batch. Renews the socket if such remain without an answer.
    fn ask(&mut self, batch: &TxBatch<'_>) {
        let is_group = |frame: &crate::TxFrame<'_>| frame.front()[0] & 1 != 0;
        self.asked += batch.frames().filter(is_group).count() as u32;
        if let Some(lookup) = &self.lookup {
            match lookup.try_recv() {
                Ok(addresses) => {
                    self.lookup = None;
                    if !addresses.is_empty() && addresses != self.addresses {
                        (self.addresses, self.turn) = (addresses, 0);
                        self.renew();
                    }
                }
                Err(TryRecvError::Disconnected) => self.lookup = None,
                Err(TryRecvError::Empty) => {}
            }
        }
        let unheard = !self.was_heard_within(UNHEARD_MAX) && self.opened.elapsed() >= UNHEARD_MAX;
        if self.asked >= ASKED_MAX && unheard {
            self.turn = (self.turn + 1) % self.addresses.len();
            self.renew();
            self.look_up();
        }
    }

    /// Opens the socket anew, to the address whose turn it is: from another port, and from the
    /// address that this machine has now. If that is not possible the former one stays.
    fn renew(&mut self) {
        (self.asked, self.opened) = (0, Instant::now());
        if let Ok((socket, frame_len_max)) = open(&self.address(), &self.options) {
            self.socket = socket;
            self.name = format!("udp:{}", self.address());
            self.frame_len_max.set((frame_len_max, self.opened));
        }
    }

    /// Has the name of the place looked up. An address needs no look.
    fn look_up(&mut self) {
        let is_address = self.place.host().parse::<std::net::IpAddr>().is_ok();
        if is_address || self.lookup.is_some() {
            return;
        }
        let ((sender, receiver), place) = (sync_channel(1), self.place.clone());
        let name = "tyche-lookup".to_owned();
        let looked = thread::Builder::new().name(name).spawn(move || {
            // Nobody waits any more if the link is gone.
            let _ = sender.send(place.resolve().unwrap_or_default());
        });
        self.lookup = looked.ok().map(|_| receiver);
    }

    /// The result of a call that failed.
    fn failed(&mut self, error: &io::Error) -> io::Result<usize> {
        let code = error.raw_os_error().unwrap_or_default();
        if code == libc::ENOBUFS {
            return Ok(0);
        }
        if code == libc::EMSGSIZE {
            if self.too_long.is_some_and(|last| last.elapsed() < TOO_LONG_AFTER) {
                return Ok(0);
            }
            self.too_long = Some(Instant::now());
            self.refresh();
            let message = format!("the way to {} takes only shorter frames now", self.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if self.was_heard_within(REPORTS_AFTER) {
            return Ok(0);
        }
        self.trouble = Some(code);
        Err(self.down(code))
    }

    /// The error of a peer that can't be reached.
    fn down(&self, code: i32) -> io::Error {
        let (name, port) = (&self.name, self.address().port());
        let message = match code {
            libc::ECONNREFUSED => format!(
                "nobody listens at {name}; `tyche serve --link udp:ADDRESS:{port}` on that \
                 machine does"
            ),
            libc::EPERM => format!(
                "the firewall of this machine refuses datagrams to {name}: allow UDP port {port}"
            ),
            libc::EHOSTUNREACH | libc::ENETUNREACH => {
                format!("no way to {name}; check the address, routes and firewalls")
            }
            _ => format!("{name}: {}", io::Error::from_raw_os_error(code)),
        };
        io::Error::new(io::ErrorKind::NetworkDown, message)
    }

    /// Queries the route for the longest frame. If there is none now, the last one stays.
    fn refresh(&self) {
        let (mut frame_len, _) = self.frame_len_max.get();
        if let Ok(found) = frame_len_max(&self.socket, &self.address()) {
            frame_len = found;
        }
        self.frame_len_max.set((frame_len, Instant::now()));
    }
}

impl Link for UdpClient {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: OWN }
    }

    fn transport(&self) -> Option<&'static Transport> {
        Some(&TRANSPORT)
    }

    fn frame_len_max(&self) -> usize {
        if self.frame_len_max.get().1.elapsed() >= REFRESH_EVERY {
            self.refresh();
        }
        self.frame_len_max.get().0
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        capacity(self.receive_buffer, frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        let received = self.incoming.receive(self.socket.as_fd(), batch, OWN, |_| Some(PEER));
        if !batch.is_empty() {
            self.hear();
            return Ok(batch.len());
        }
        match (received, self.trouble) {
            (Err(error), _) => self.failed(&error),
            (Ok(()), Some(code)) => Err(self.down(code)),
            (Ok(()), None) => Ok(0),
        }
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        self.ask(batch);
        let sent = self.outgoing.send(self.socket.as_fd(), batch, Routes::Connected);
        sent.or_else(|error| self.failed(&error))
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.incoming.wait_fd(&self.socket)
    }

    fn overruns(&mut self) -> u64 {
        socket::drops(&self.socket).map_or(0, u64::from)
    }

    fn counters(&self) -> Vec<Reading> {
        all_counters(&self.outgoing, &self.incoming)
    }
}

impl std::fmt::Debug for UdpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpClient({})", self.name)
    }
}

/// A socket that has the peer at `address`, and the longest frame on the way there.
fn open(address: &SocketAddr, options: &UdpOptions) -> io::Result<(OwnedFd, usize)> {
    let socket = socket::new(address, options.socket_buffer)?;
    socket::connect(&socket, address)?;
    let frame_len_max = frame_len_max(&socket, address)?;
    Ok((socket, frame_len_max))
}

fn frame_len_max(socket: &OwnedFd, address: &SocketAddr) -> io::Result<usize> {
    let longest = socket::datagram_max(socket, address.is_ipv4())?;
    Ok(longest.clamp(HEAD, FRAME_LEN_MAX))
}
