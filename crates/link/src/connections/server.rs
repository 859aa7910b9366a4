//! A target's end: a place where it listens, and the connections that it has accepted.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use tyche_counters::{CounterGroup, Reading};

use super::division::{Accepted, Full, Portion};
use super::readiness::{BACKLOG, Readiness};
use super::{Broken, Carrier, Connection, ConnectionOptions, ConnectionStats, Counts, sendable};
use super::{CONNECTION, SERVER, UNSERVED_PER_ADDRESS_MAX};
use crate::ip::{OpenError, Origins, Transport, UNSERVED_AFTER};
use crate::{FRAMES_MAX, Interface, Link, Mac, Placement, RxBatch, Share, TxBatch, is_of_channel};

/// The most connections accepted in one call: the others get their turn, too.
const ACCEPTS_MAX: usize = 16;
/// The key of the listener; the keys of connections are their slots.
const LISTENER: u64 = BACKLOG - 1;
/// The key of the connections that another thread has accepted.
const INBOX: u64 = BACKLOG - 2;

const BROADCAST: Mac = [0xff; 6];

/// The bits of a peer's number that an address has room for.
const ORIGIN: u16 = 0x1fff;

/// The number of the peer whose connection has that address.
fn origin_of(mac: Mac) -> u16 {
    u16::from_be_bytes([mac[0] >> 3, mac[2]])
}

/// Whether an error says that the process, or the machine, has no more of something.
fn is_scarce(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    matches!(number, Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS))
        || error.kind() == io::ErrorKind::OutOfMemory
}

/// The destination of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Slot(u8),
    All,
    Nobody,
}

/// A link over many connections, for a target.
pub struct Server<C: Carrier> {
    name: String,
    address: SocketAddr,
    /// Of the thread that accepts.
    listener: Option<C::Listener>,
    /// The connections that are this thread's.
    portion: Portion<C::Opened>,
    options: C::Options,
    shared: C::Shared,
    /// Whether the listener is not watched, because a connection could not be accepted.
    pauses: bool,
    /// Connections; the first gap is used first.
    slots: Box<[Slot<C::Connection>]>,
    /// One more than the last slot with a connection: each round looks at no others.
    used: usize,
    /// The slot that receives first, round robin.
    turn: usize,
    origins: Origins,
    /// The routes of the frames in the current batch.
    routes: Vec<Route>,
    readiness: Readiness,
    stats: ConnectionStats,
    /// The counters of connections that have ended.
    ended: Counts<C>,
}

/// Where a connection can be.
type Slot<T> = Option<Box<Place<T>>>;

/// A connection in its slot.
struct Place<T> {
    connection: T,
    /// When it was accepted.
    opened: Instant,
    /// When the last frame of a channel was sent on it.
    served: Option<Instant>,
}

impl<T> Place<T> {
    /// Whether it carries a channel, by what was sent on it.
    fn is_served(&self, now: Instant) -> bool {
        self.served.is_some_and(|at| now.saturating_duration_since(at) < UNSERVED_AFTER)
    }
}

impl<C: Carrier> Server<C> {
    /// Listens at the first possible of `addresses`; port 0 means any free one.
    ///
    /// # Errors
    /// The reason why the last of them fails, with a remedy.
    ///
    /// # Panics
    /// If the most connections are not 1 to 255.
    pub fn listen(addresses: &[SocketAddr], options: &C::Options) -> Result<Self, OpenError> {
        let mut servers = Self::listen_for(addresses, options, 1)?;
        Ok(servers.pop().expect("a thread"))
    }

    /// The links of several threads, which divide the connections.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    ///
    /// # Panics
    /// As [`listen`](Self::listen).
    pub fn listen_for(
        addresses: &[SocketAddr],
        options: &C::Options,
        threads: u8,
    ) -> Result<Vec<Self>, OpenError> {
        let failed = |transport, address, source| OpenError::Listen { transport, address, source };
        let (_, (listener, address)) = C::TRANSPORT.first(addresses, options, C::listen, failed)?;
        let mut listener = Some(listener);
        let portions = Portion::all(threads, options.connections_max())
            .map_err(OpenError::system("eventfd"))?;
        portions.map(|it| Self::with(listener.take(), address, options, it)).collect()
    }

    fn with(
        listener: Option<C::Listener>,
        address: SocketAddr,
        options: &C::Options,
        portion: Portion<C::Opened>,
    ) -> Result<Self, OpenError> {
        let places = options.connections_max();
        assert!((1..=255).contains(&places), "a server of {places} connections");
        let readiness = Readiness::new().map_err(OpenError::system("epoll"))?;
        let watched = match &listener {
            Some(listener) => readiness.add(listener, LISTENER),
            None => readiness.add(portion.bell(), INBOX),
        };
        watched.map_err(OpenError::system("epoll_ctl"))?;
        Ok(Self {
            name: format!("{}:{address}", C::TRANSPORT.name),
            address,
            listener,
            portion,
            options: options.clone(),
            shared: C::share(),
            pauses: false,
            slots: (0..places).map(|_| None).collect(),
            used: 0,
            turn: 0,
            origins: Origins::default(),
            routes: Vec::with_capacity(FRAMES_MAX),
            readiness,
            stats: ConnectionStats::default(),
            ended: Counts::<C>::default(),
        })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connections in their slots.
    fn in_use(&self) -> impl Iterator<Item = &Place<C::Connection>> {
        self.slots[..self.used].iter().flatten().map(|it| &**it)
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.in_use().count()
    }

    /// Returns the error counters since the link opened.
    pub fn stats(&self) -> ConnectionStats {
        self.stats
    }

    /// Serves the connections that are ready; true if there are new connections to accept.
    fn look(&mut self) -> io::Result<bool> {
        let mut accepts = false;
        for index in 0..self.readiness.poll()? {
            match self.readiness.key(index) {
                BACKLOG => {}
                LISTENER => accepts = true,
                INBOX => {
                    for accepted in self.portion.take() {
                        self.stats.unaccepted += u64::from(self.open(accepted).is_err());
                    }
                }
                slot => {
                    let slot = slot as usize;
                    if let Some(place) = &mut self.slots[slot] {
                        let served = place.connection.ready();
                        self.settle(slot, served.map_err(Broken::from));
                    }
                }
            }
        }
        Ok(accepts)
    }

    /// Accepts new connections. One that fails is gone; but if the process has no descriptor or no
    /// memory left, those that there are go on, and the others wait until the next
    /// [`look_after`](Link::look_after).
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            match self.accept_one() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.stats.unaccepted += 1;
                    if !is_scarce(&error) {
                        continue;
                    }
                    self.pauses = self.set_accepting(false).is_ok();
                    break;
                }
            }
        }
    }

    /// Sets whether the listener is watched.
    fn set_accepting(&self, on: bool) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        self.readiness.set_input(listener, LISTENER, on)
    }

    /// Accepts a new connection; false if there is none.
    fn accept_one(&mut self) -> io::Result<bool> {
        let Some(listener) = &self.listener else { return Ok(false) };
        let Some((opened, peer)) = C::accept(listener)? else { return Ok(false) };
        let origin = peer.map_or(0, |peer| self.origins.of(peer)) & ORIGIN;
        match self.portion.assign(opened, origin) {
            Ok(Some(own)) => self.open(own)?,
            Ok(None) => {}
            // The refusal: dropping it.
            Err(Full) => self.stats.refused += 1,
        }
        Ok(true)
    }

    /// Opens a connection that is this thread's.
    fn open(&mut self, accepted: Accepted<C::Opened>) -> io::Result<()> {
        let origin = accepted.origin;
        let opened = self.open_in_place(accepted);
        if !matches!(opened, Ok(true)) {
            self.portion.note_end(origin);
        }
        opened.map(drop)
    }

    /// As [`open`](Self::open); false if there is no place for it.
    fn open_in_place(&mut self, accepted: Accepted<C::Opened>) -> io::Result<bool> {
        let Accepted { opened, origin, serial } = accepted;
        let Some(slot) = self.place(origin) else {
            self.stats.refused += 1;
            return Ok(false);
        };
        let [_, a, b, c] = serial.to_be_bytes();
        let [high, low] = origin.to_be_bytes();
        let mac = [CONNECTION | high << 3, slot as u8, low, a, b, c];
        let link = (&self.options, &self.shared);
        let connection = C::open(opened, link, mac, (&self.readiness, slot as u64))?;
        let place = Place { connection, opened: Instant::now(), served: None };
        self.put(slot, Some(Box::new(place)));
        Ok(true)
    }

    /// A slot for another connection of a peer. Those that carry a channel keep theirs. Of the
    /// others, an address has a limited number; when there is no room, the oldest goes of the
    /// address that has most.
    fn place(&mut self, origin: u16) -> Option<usize> {
        let now = Instant::now();
        let places = self.slots.iter().enumerate();
        let unserved = places.filter_map(|(slot, it)| {
            let place = it.as_ref().filter(|it| !it.is_served(now))?;
            Some((origin_of(place.connection.mac()), place.opened, slot))
        });
        let unserved: Vec<_> = unserved.collect();
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
        let Some(place) = &mut self.slots[slot] else { return };
        let watch = |()| Ok(place.connection.watch(&self.readiness, slot as u64)?);
        if let Err(broken) = result.and_then(watch) {
            self.stats.malformed += u64::from(matches!(broken, Broken::Malformed));
            self.put(slot, None);
        }
    }

    /// Puts a connection, or none, into a slot; the one that is there ends.
    fn put(&mut self, slot: usize, place: Slot<C::Connection>) {
        if let Some(ended) = std::mem::replace(&mut self.slots[slot], place) {
            self.ended += ended.connection.counts();
            self.portion.note_end(origin_of(ended.connection.mac()));
        }
        self.used = self.slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
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
            } else if known.is_some_and(|place| place.connection.mac() == *destination) {
                Route::Slot(destination[1])
            } else {
                Route::Nobody
            });
        }
    }
}

impl<C: Carrier> Link for Server<C> {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: SERVER }
    }

    fn transport(&self) -> Option<&'static Transport> {
        Some(C::TRANSPORT)
    }

    fn origin(&self) -> fn(Mac) -> Mac {
        super::origin
    }

    fn frame_len_max(&self) -> usize {
        self.options.frame_len_max()
    }

    /// Its frames do not grow. Tries again to accept connections.
    fn look_after(&mut self) -> Option<usize> {
        if self.pauses {
            self.pauses = self.set_accepting(true).is_err();
        }
        None
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        self.options.capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        batch.clear();
        if self.look()? {
            self.accept();
        }
        // A connection that breaks makes fewer of them, which changes nothing for this round.
        let (first, places) = (self.turn, self.used);
        for offset in 0..places {
            if batch.len() == batch.capacity() {
                break;
            }
            let slot = (first + offset) % places;
            if let Some(place) = &mut self.slots[slot] {
                let received = place.connection.receive(batch);
                self.settle(slot, received);
            }
            self.turn = (slot + 1) % places;
        }
        let waiting = self.in_use().any(|it| it.connection.has_backlog());
        self.readiness.set_backlog(waiting)?;
        Ok(batch.len())
    }

    /// Sends the frames. One without room in its connection is lost there, as on a switch's port.
    /// Frames at the end of the batch that no connection took count as not taken; with one peer
    /// these are exactly the ones without room.
    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let count = sendable(batch, self.frame_len_max())?;
        self.route(batch, count);
        let is_lost = |route: &Route| *route == Route::Nobody;
        self.stats.lost += self.routes.iter().filter(|route| is_lost(route)).count() as u64;
        // One more than the last frame that was taken.
        let mut taken = self.routes.iter().rposition(is_lost).map_or(0, |index| index + 1);
        for slot in 0..self.used {
            let Some(place) = &mut self.slots[slot] else { continue };
            let goes = |index: &usize| match self.routes[*index] {
                Route::Slot(other) => usize::from(other) == slot,
                route => route == Route::All,
            };
            let wanted = (0..count).filter(goes).count();
            if wanted == 0 {
                continue;
            }
            if (0..count).filter(goes).any(|index| is_of_channel(&batch.frame(index))) {
                place.served = Some(Instant::now());
            }
            let connection = &mut place.connection;
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
        // All of them are told.
        if !self.in_use().fold(true, |may_sleep, it| may_sleep & it.connection.may_sleep()) {
            self.readiness.raise();
        }
        self.readiness.as_fd()
    }

    /// The connections are divided already.
    fn select(&mut self, _: Share) -> bool {
        true
    }

    fn placement(&self) -> Option<Arc<dyn Placement>> {
        C::placement(&self.shared)
    }

    fn counters(&self) -> Vec<Reading> {
        let mut counts = self.ended;
        self.slots.iter().flatten().for_each(|it| counts += it.connection.counts());
        self.stats.iter().chain(counts.iter()).collect()
    }
}

impl<C: Carrier> std::fmt::Debug for Server<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({}, {} connections)", self.name, self.connections())
    }
}
