//! A target's end: a listening socket, and the connections that it has accepted.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use tyche_counters::{CounterGroup, Reading};

use super::connection::{Broken, Connection};
use super::readiness::{BACKLOG, Readiness};
use super::{CONNECTION, FRAME_LEN_MAX, SERVER, TRANSPORT, UNSERVED_PER_ADDRESS_MAX};
use super::{TcpOptions, TcpStats, capacity, sendable, socket};
use crate::ip::{OpenError, Origins, Transport};
use crate::{FRAMES_MAX, Interface, Link, Mac, RxBatch, TxBatch, is_of_channel};

/// The most connections accepted in one call: the others get their turn, too.
const ACCEPTS_MAX: usize = 16;
/// The key of the listening socket; the keys of connections are their slots.
const LISTENER: u64 = BACKLOG - 1;

const BROADCAST: Mac = [0xff; 6];

/// The bits of a peer's number that an address has room for.
const ORIGIN: u16 = 0x1fff;

/// The number of the peer whose connection has that address.
fn origin_of(mac: Mac) -> u16 {
    u16::from_be_bytes([mac[0] >> 3, mac[2]])
}

/// The destination of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Slot(u8),
    All,
    Nobody,
}

/// A link over many TCP connections, for a target.
pub struct TcpServer {
    name: String,
    address: SocketAddr,
    listener: OwnedFd,
    /// Whether the listening socket is not watched, because a connection could not be accepted.
    pauses: bool,
    /// Connections; a gap is reused.
    slots: Box<[Option<Box<Connection>>]>,
    /// The slot that receives first, round robin.
    turn: usize,
    /// Connections accepted so far.
    serial: u32,
    origins: Origins,
    /// The routes of the frames in the current batch.
    routes: Vec<Route>,
    readiness: Readiness,
    stats: TcpStats,
}

impl TcpServer {
    /// Listens at the first possible of `addresses`; port 0 means any free one.
    ///
    /// # Errors
    /// The reason why the last of them fails, with a remedy.
    ///
    /// # Panics
    /// If `connections_max` is not 1 to 255.
    pub fn listen(addresses: &[SocketAddr], options: &TcpOptions) -> Result<Self, OpenError> {
        let places = options.connections_max;
        assert!((1..=255).contains(&places), "a server of {places} connections");
        let readiness = Readiness::new().map_err(OpenError::system("epoll"))?;
        let failed = |transport, address, source| OpenError::Listen { transport, address, source };
        let (_, (listener, address)) =
            TRANSPORT.first(addresses, options, socket::listen, failed)?;
        readiness.add(&listener, LISTENER).map_err(OpenError::system("epoll_ctl"))?;
        Ok(Self {
            name: format!("tcp:{address}"),
            address,
            listener,
            pauses: false,
            slots: (0..places).map(|_| None).collect(),
            turn: 0,
            serial: 0,
            origins: Origins::default(),
            routes: Vec::with_capacity(FRAMES_MAX),
            readiness,
            stats: TcpStats::default(),
        })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Returns the error counters since the link opened.
    pub fn stats(&self) -> TcpStats {
        self.stats
    }

    /// Serves the sockets that are ready; true if there are new connections to accept.
    fn look(&mut self) -> io::Result<bool> {
        let mut accepts = false;
        for index in 0..self.readiness.poll()? {
            match self.readiness.key(index) {
                BACKLOG => {}
                LISTENER => accepts = true,
                slot => {
                    let slot = slot as usize;
                    if let Some(connection) = &mut self.slots[slot] {
                        let flushed = connection.ready();
                        self.settle(slot, flushed.map_err(Broken::from));
                    }
                }
            }
        }
        Ok(accepts)
    }

    /// Accepts new connections. If the process has no descriptor or no memory left for one, those
    /// that there are go on, and the others wait until the next
    /// [`look_after`](Link::look_after).
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            match self.accept_one() {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.stats.unaccepted += 1;
                    let ignored = self.readiness.set_input(&self.listener, LISTENER, false);
                    self.pauses = ignored.is_ok();
                    break;
                }
            }
        }
    }

    /// Accepts a new connection; false if there is none.
    fn accept_one(&mut self) -> io::Result<bool> {
        let Some((socket, peer)) = socket::accept(&self.listener)? else { return Ok(false) };
        let origin = peer.map_or(0, |peer| self.origins.of(peer)) & ORIGIN;
        let Some(slot) = self.place(origin) else {
            // The refusal: closing it.
            self.stats.refused += 1;
            return Ok(true);
        };
        self.serial = self.serial.wrapping_add(1);
        let [_, a, b, c] = self.serial.to_be_bytes();
        let [high, low] = origin.to_be_bytes();
        let mac = [CONNECTION | high << 3, slot as u8, low, a, b, c];
        let connection = Box::new(Connection::new(socket, mac)?);
        self.readiness.add(&*connection, slot as u64)?;
        self.slots[slot] = Some(connection);
        Ok(true)
    }

    /// A slot for another connection of a peer. Those that carry a channel keep theirs. Of the
    /// others, an address has a limited number; when there is no room, the oldest goes of the
    /// address that has most.
    fn place(&mut self, origin: u16) -> Option<usize> {
        let now = Instant::now();
        let unserved = |(slot, it): (usize, &Option<Box<Connection>>)| {
            let connection = it.as_ref().filter(|it| !it.is_served(now))?;
            Some((origin_of(connection.mac()), connection.opened(), slot))
        };
        let unserved: Vec<_> = self.slots.iter().enumerate().filter_map(unserved).collect();
        let count = |origin| unserved.iter().filter(|it| it.0 == origin).count();
        let gap = self.slots.iter().position(Option::is_none);
        let oldest = |of: u16| unserved.iter().filter(|it| it.0 == of).min_by_key(|it| it.1);
        let displaced = if count(origin) >= UNSERVED_PER_ADDRESS_MAX {
            oldest(origin)
        } else if gap.is_some() {
            return gap;
        } else {
            unserved.iter().map(|it| it.0).max_by_key(|&it| count(it)).and_then(oldest)
        };
        let slot = displaced?.2;
        self.stats.displaced += 1;
        Some(slot)
    }

    /// Drops a broken connection; otherwise updates the events that the descriptor signals.
    fn settle(&mut self, slot: usize, result: Result<(), Broken>) {
        let Some(connection) = &mut self.slots[slot] else { return };
        let watch = |()| Ok(connection.watch_output(&self.readiness, slot as u64)?);
        if let Err(broken) = result.and_then(watch) {
            self.stats.malformed += u64::from(matches!(broken, Broken::Malformed));
            self.slots[slot] = None;
        }
    }

    /// Determines the destination of each of the first `count` frames.
    fn route(&mut self, batch: &TxBatch<'_>, count: usize) {
        self.routes.clear();
        for frame in batch.frames().take(count) {
            let destination: &Mac = frame.front().first_chunk().expect("a head");
            let slot = usize::from(destination[1]);
            let known = self.slots.get(slot).and_then(Option::as_ref);
            self.routes.push(if *destination == BROADCAST {
                Route::All
            } else if known.is_some_and(|connection| connection.mac() == *destination) {
                Route::Slot(destination[1])
            } else {
                Route::Nobody
            });
        }
    }
}

impl Link for TcpServer {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: SERVER }
    }

    fn transport(&self) -> Option<&'static Transport> {
        Some(&TRANSPORT)
    }

    fn origin(&self) -> fn(Mac) -> Mac {
        super::origin
    }

    fn frame_len_max(&self) -> usize {
        FRAME_LEN_MAX
    }

    /// Its frames do not grow. Tries again to accept connections.
    fn look_after(&mut self) -> Option<usize> {
        if self.pauses {
            self.pauses = self.readiness.set_input(&self.listener, LISTENER, true).is_err();
        }
        None
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        batch.clear();
        if self.look()? {
            self.accept();
        }
        let (first, places) = (self.turn, self.slots.len());
        for offset in 0..places {
            if batch.len() == batch.capacity() {
                break;
            }
            let slot = (first + offset) % places;
            if let Some(connection) = &mut self.slots[slot] {
                let received = connection.receive(batch);
                self.settle(slot, received);
            }
            self.turn = (slot + 1) % places;
        }
        let waiting = self.slots.iter().flatten().any(|it| it.has_backlog());
        self.readiness.set_backlog(waiting)?;
        Ok(batch.len())
    }

    /// Sends the frames. One without room in its connection is lost there, as on a switch's port.
    /// Frames at the end of the batch that no connection took count as not taken; with one peer
    /// these are exactly the ones without room.
    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let count = sendable(batch)?;
        self.route(batch, count);
        let is_lost = |route: &Route| *route == Route::Nobody;
        self.stats.lost += self.routes.iter().filter(|route| is_lost(route)).count() as u64;
        // One more than the last frame that was taken.
        let mut taken = self.routes.iter().rposition(is_lost).map_or(0, |index| index + 1);
        for slot in 0..self.slots.len() {
            let Some(connection) = &mut self.slots[slot] else { continue };
            let goes = |index: &usize| match self.routes[*index] {
                Route::Slot(other) => usize::from(other) == slot,
                route => route == Route::All,
            };
            let wanted = (0..count).filter(goes).count();
            if wanted == 0 {
                continue;
            }
            if (0..count).filter(goes).any(|index| is_of_channel(&batch.frame(index))) {
                connection.note_served();
            }
            let sent = connection.send((0..count).filter(goes).map(|index| batch.frame(index)));
            // A connection that breaks takes all frames with it.
            let found_room = *sent.as_ref().unwrap_or(&wanted);
            if let Some(last) = (0..count).filter(goes).take(found_room).last() {
                taken = taken.max(last + 1);
            }
            self.stats.lost += (wanted - sent.as_ref().unwrap_or(&0)) as u64;
            self.settle(slot, sent.map(drop).map_err(Broken::from));
        }
        Ok(taken)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    fn counters(&self) -> Vec<Reading> {
        self.stats.iter().collect()
    }
}

impl std::fmt::Debug for TcpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpServer({}, {} connections)", self.name, self.connections())
    }
}
