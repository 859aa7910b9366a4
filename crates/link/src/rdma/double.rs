//! A stand-in for network cards: the same connections between processes of one machine. It is for
//! tests, and for measurements of what does not depend on a card.
//!
//! The windows are files in memory that both processes map, and so are the regions that data are
//! placed in. A write is a copy into the peer's; an interrupt is an eventfd, which the peer arms as
//! it arms a completion queue. Announcements and notifications may take the time that those of a
//! card would take ([`Model`]). A key is a word behind the window: a write with one that is not
//! there any more fails, and ends the connection, as with a card.
//!
//! ```text
//!  window   [head|ring ............][immediates][keys]
//! ```

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create, stat};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::time::{ClockId, clock_gettime};

use tyche_block::{Arena, PAGE};

use super::connection::RdmaConnection;
use super::exposures::{Exposures, REGIONS_MAX};
use super::immediates::{self, WORDS, Words};
use super::pair::{QueuePair, Write};
use super::placed::DATA_LEN;
use super::region::Region;
use super::window::{INVITATION, PeerRegion, PeerWindow, REGION, WORD, window_len};
use super::{RdmaOptions, TRANSPORT};
use crate::connections::{Carrier, Client, ConnectionOptions, Readiness, Server};
use crate::ip::Transport;
use crate::sys::wait;
use crate::{Mac, Placement};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// A tick has two to the power of so many nanoseconds.
const TICK: u32 = 6;
/// The most connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 64;
/// Words for keys: those of two regions with the same number overlap for a moment.
const KEYS: usize = 2 * REGIONS_MAX;

/// The options of the double, if links over RDMA are between its ends.
static ENABLED: OnceLock<DoubleOptions> = OnceLock::new();

/// Has the links over RDMA that this process opens from now on be between ends of the double. Only
/// the first call counts.
pub fn enable(options: DoubleOptions) {
    let _ = ENABLED.set(options);
}

pub(super) fn enabled() -> Option<&'static DoubleOptions> {
    ENABLED.get()
}

/// Options of the double.
#[derive(Clone, Debug, Default)]
pub struct DoubleOptions {
    /// Those of its connections.
    pub rdma: RdmaOptions,
    /// Which announcements interrupt their receiver.
    pub interrupts: Interrupts,
    /// The times that a card takes; by default those of a copy in memory.
    pub model: Model,
}

/// Which announcements interrupt their receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupts {
    /// The first that comes after it went to sleep: the paper's silencing (section 3.2).
    #[default]
    Silenced,
    /// Each of them, for comparison.
    Each,
}

/// The times that a card and its network take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// For each write, whatever its length. The card does one after another.
    pub write: Duration,
    /// For each MiB.
    pub mib: Duration,
    /// For an interrupt, of its receiver's processor.
    pub interrupt: Duration,
}

impl Model {
    /// The card and the network of the paper (sections 2 and 4.2): 400 ns to begin a write, 500 ns
    /// until its first bytes are read, and 596 MB/s. The paper does not say what an interrupt
    /// costs; 5 µs are a guess for processors of 2004.
    pub const ICS_2006: Self = Self {
        write: Duration::from_nanos(900),
        mib: Duration::from_nanos((1 << 20) * 1000 / 596),
        interrupt: Duration::from_micros(5),
    };

    fn write(&self, len: usize) -> Duration {
        self.write + self.mib * len as u32 / (1 << 20)
    }
}

impl ConnectionOptions for DoubleOptions {
    fn connections_max(&self) -> usize {
        self.rdma.connections_max()
    }

    fn frame_len_max(&self) -> usize {
        self.rdma.frame_len_max()
    }

    fn capacity(&self, frame_len: usize) -> usize {
        self.rdma.capacity(frame_len)
    }
}

/// The time, in nanoseconds of the monotonic clock, which all processes share.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A time as others are told of it: it is never more than two minutes ahead.
fn tick(time: u64) -> u32 {
    (time >> TICK) as u32
}

/// Whether that time has come.
fn is_past(tick_of: u32) -> bool {
    tick(now()).wrapping_sub(tick_of) as i32 >= 0
}

/// The double as a carrier of frames.
#[derive(Debug)]
pub struct Double;

/// A link over many connections of the double, for a target.
pub type DoubleServer = Server<Double>;
/// A link over one connection of the double, for a host.
pub type DoubleClient = Client<Double>;

/// A queue pair between two processes.
pub struct DoublePair {
    /// Carries what the ends tell each other of their windows, and says when the peer is gone.
    socket: OwnedFd,
    window: Arc<Region>,
    /// Keys made so far.
    keys: u32,
    /// Numbers taken out of the own queue of immediates.
    taken: u32,
    interrupt: OwnedFd,
    staging: Region,
    /// The memory that data are written from.
    data: Option<Region>,
    peer: Option<Peer>,
    model: Model,
    /// When the card has done all writes so far.
    idle_at: u64,
    /// Writes to be notified, and when they end.
    under_way: VecDeque<(u64, u64)>,
    /// Number of the last write that is notified.
    notified: u64,
    which: Interrupts,
    /// Whether nothing has come since an interrupt was asked for.
    is_armed: Cell<bool>,
    interrupts: u64,
}

/// The peer's window, and its interrupt.
struct Peer {
    told: PeerWindow,
    window: Region,
    interrupt: OwnedFd,
    /// Its regions, by their keys.
    regions: BTreeMap<u32, Region>,
}

impl Peer {
    /// Whether a key is good.
    fn has(&self, key: u32) -> bool {
        key_of(&self.window, key).load(Ordering::Acquire) == key
    }
}

/// The permission of the peer to write into a region. The key ends with it.
pub struct Permission {
    window: Arc<Region>,
    key: u32,
}

impl Drop for Permission {
    fn drop(&mut self) {
        key_of(&self.window, self.key).store(0, Ordering::Release);
    }
}

/// The word for a key, behind a window.
fn key_of(window: &Region, key: u32) -> &AtomicU32 {
    window.word(window.len() - (1 + key as usize % KEYS) * WORD)
}

/// The queue of immediates behind a window.
struct Queue<'a>(&'a Region);

impl Queue<'_> {
    fn word(&self, index: usize) -> &AtomicU32 {
        self.0.word(self.0.len() - (KEYS + WORDS - index) * WORD)
    }
}

impl Words for Queue<'_> {
    fn load(&self, index: usize, order: Ordering) -> u32 {
        self.word(index).load(order)
    }

    fn store(&self, index: usize, word: u32, order: Ordering) {
        self.word(index).store(word, order);
    }

    fn swap(&self, index: usize, word: u32) -> u32 {
        self.word(index).swap(word, Ordering::AcqRel)
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Bytes of the file that has a window, its queue and its keys.
fn file_len(units: u32) -> usize {
    window_len(units) + (WORDS + KEYS) * WORD
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl DoublePair {
    /// An end of a connected socket, which tells the peer of its window.
    fn new(socket: OwnedFd, options: &DoubleOptions) -> io::Result<Self> {
        let units = options.rdma.units;
        let len = file_len(units);
        let file = memfd_create("tyche-window", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        let window = Arc::new(Region::shared(&file, len)?);
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let told = PeerWindow { key: 0, address: 0, units, takes_notes: options.rdma.places };
        tell(&socket, &told.encode(), &[file.as_fd(), interrupt.as_fd()])?;
        // As long as the longest ring of a peer.
        let staging = Region::anonymous(window_len(PeerWindow::UNITS_MAX))?;
        Ok(Self {
            socket,
            window,
            keys: 0,
            taken: 0,
            interrupt,
            staging,
            data: None,
            peer: None,
            model: options.model,
            idle_at: 0,
            under_way: VecDeque::new(),
            notified: 0,
            which: options.interrupts,
            is_armed: Cell::new(false),
            interrupts: 0,
        })
    }

    /// Reads from the socket what the peer tells of its window, and of its regions, or whether it
    /// is gone.
    fn hear(&mut self) -> io::Result<()> {
        while let Some((told, descriptors)) = heard(&self.socket)? {
            match &mut self.peer {
                None => {
                    let told = PeerWindow::decode(&told).ok_or_else(invalid)?;
                    let [file, interrupt] = descriptors.try_into().map_err(|_| invalid())?;
                    let window = map(&file, file_len(told.units))?;
                    let regions = BTreeMap::new();
                    self.peer = Some(Peer { told, window, interrupt, regions });
                }
                Some(peer) => {
                    let mut regions = std::mem::take(&mut peer.regions);
                    regions.retain(|&key, _| peer.has(key));
                    let told = PeerRegion::decode(&told);
                    let [file] = descriptors.try_into().map_err(|_| invalid())?;
                    let len = usize::try_from(told.len).map_err(|_| invalid())?;
                    if regions.len() < KEYS {
                        regions.insert(told.key, map(&file, len)?);
                    }
                    peer.regions = regions;
                }
            }
        }
        Ok(())
    }

    /// Copies what is placed into a region of the peer, as its card would.
    fn place(&mut self, region: &PeerRegion, write: &Write) -> io::Result<()> {
        let knows =
            |this: &Self| this.peer.as_ref().is_some_and(|it| it.regions.contains_key(&region.key));
        if !knows(self) {
            self.hear()?;
        }
        let peer = self.peer.as_ref().expect("a window is known before its regions");
        let refused = || io::Error::from(io::ErrorKind::ConnectionReset);
        let into = peer.regions.get(&region.key).filter(|_| peer.has(region.key));
        let into = into.ok_or_else(refused)?;
        into.copy(write.at, (self.data(), write.from), write.len);
        Ok(())
    }
}

/// Sends bytes and descriptors along a socket.
fn tell(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What a peer tells of a window or a region, which takes as many bytes, with its descriptors;
/// `None` if it tells nothing now.
fn heard(socket: &OwnedFd) -> io::Result<Option<([u8; INVITATION], Vec<OwnedFd>)>> {
    let mut told = [0; INVITATION];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut told)];
    let len = match net::recvmsg(socket, &mut room, &mut control, RecvFlags::CMSG_CLOEXEC) {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match len {
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        INVITATION => {}
        _ => return Err(invalid()),
    }
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    Ok(Some((told, descriptors.collect())))
}

const _: () = assert!(REGION == INVITATION);

/// Maps a peer's file, if it is as long as it has to be.
fn map(file: &OwnedFd, len: usize) -> io::Result<Region> {
    if len == 0 || (fstat(file)?.st_size as u64) < len as u64 {
        return Err(invalid());
    }
    Region::shared(file, len)
}

impl QueuePair for DoublePair {
    type Registration = Permission;

    fn window(&self) -> &Region {
        &self.window
    }

    fn staging(&self) -> &Region {
        &self.staging
    }

    fn stage_data(&mut self) -> io::Result<()> {
        if self.data.is_none() {
            self.data = Some(Region::anonymous(DATA_LEN)?);
        }
        Ok(())
    }

    fn data(&self) -> &Region {
        self.data.as_ref().expect("made before data are placed")
    }

    fn register(
        &mut self,
        memory: &Arena,
        file: Option<&OwnedFd>,
    ) -> io::Result<(Permission, u32, u64)> {
        let file = file.ok_or_else(invalid)?;
        let free = (0..KEYS as u32).map(|next| self.keys.wrapping_add(1 + next));
        let mut free = free.filter(|&key| key != 0);
        let key = free.find(|&key| key_of(&self.window, key).load(Ordering::Relaxed) == 0);
        let key = key.ok_or(io::ErrorKind::QuotaExceeded)?;
        self.keys = key;
        let told = PeerRegion { number: 0, key, address: 0, len: (memory.pages() * PAGE) as u64 };
        tell(&self.socket, &told.encode(), &[file.as_fd()])?;
        key_of(&self.window, key).store(key, Ordering::Release);
        Ok((Permission { window: Arc::clone(&self.window), key }, key, 0))
    }

    fn peer(&self) -> Option<PeerWindow> {
        self.peer.as_ref().map(|it| it.told)
    }

    fn post(&mut self, write: &Write) -> io::Result<()> {
        match &write.region {
            Some(region) => self.place(region, write)?,
            None => {
                let peer = self.peer.as_ref().expect("known before it is written to");
                peer.window.copy(write.at, (&self.staging, write.from), write.len);
            }
        }
        let peer = self.peer.as_ref().expect("known before it is written to");
        self.idle_at = self.idle_at.max(now()) + self.model.write(write.len).as_nanos() as u64;
        if write.notifies {
            self.under_way.push_back((write.number, self.idle_at));
        }
        if let Some(number) = write.immediate {
            let wakes = immediates::push(&Queue(&peer.window), number, tick(self.idle_at));
            if wakes || self.which == Interrupts::Each {
                rustix::io::write(&peer.interrupt, &1u64.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    fn notified(&mut self) -> io::Result<u64> {
        let now = now();
        let ended = self.under_way.iter().take_while(|it| it.1 <= now).count();
        self.notified = self.under_way.drain(..ended).next_back().map_or(self.notified, |it| it.0);
        Ok(self.notified)
    }

    fn arrived(&mut self) -> io::Result<Option<u32>> {
        let next = immediates::next(&Queue(&self.window), self.taken);
        let Some((number, _)) = next.filter(|(_, tick)| is_past(*tick)) else { return Ok(None) };
        self.taken = self.taken.wrapping_add(1);
        if self.is_armed.take() || self.which == Interrupts::Each {
            self.interrupts += 1;
            let end = now() + self.model.interrupt.as_nanos() as u64;
            while now() < end {
                std::hint::spin_loop();
            }
        }
        Ok(Some(number))
    }

    /// Announcements whose time has not come are waited for without sleep.
    fn arm(&self) -> bool {
        let queue = Queue(&self.window);
        let has_more = immediates::arm(&queue, self.taken);
        let has_come = immediates::next(&queue, self.taken).is_some_and(|it| is_past(it.1));
        self.is_armed.set(self.is_armed.get() || !has_come);
        has_more
    }

    fn interrupts(&self) -> u64 {
        self.interrupts
    }

    fn serve(&mut self) -> io::Result<()> {
        match rustix::io::read(&self.interrupt, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN) => self.hear(),
            Err(error) => Err(error.into()),
        }
    }
}

/// A listening socket, whose file goes with it.
pub struct Listener {
    socket: OwnedFd,
    place: PathBuf,
    /// The number of its file: another listener may have the place by now.
    file: u64,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if file_at(&self.place).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.place);
        }
    }
}

/// The number of the file at a place.
fn file_at(place: &Path) -> io::Result<u64> {
    Ok(stat(place)?.st_ino)
}

impl Carrier for Double {
    type Options = DoubleOptions;
    type Listener = Listener;
    type Attempt = OwnedFd;
    type Opened = OwnedFd;
    type Connection = RdmaConnection<DoublePair>;
    type Shared = Arc<Exposures<Permission>>;

    const TRANSPORT: &'static Transport = &TRANSPORT;

    fn listen(address: &SocketAddr, _: &DoubleOptions) -> io::Result<(Listener, SocketAddr)> {
        let socket = socket()?;
        let place = place(address);
        // What is left of a listener that was killed.
        let _ = std::fs::remove_file(&place);
        net::bind(&socket, &SocketAddrUnix::new(&place)?)?;
        let listener = Listener { file: file_at(&place)?, place, socket };
        net::listen(&listener, LISTEN_BACKLOG)?;
        Ok((listener, *address))
    }

    fn accept(listener: &Listener) -> io::Result<Option<(OwnedFd, Option<IpAddr>)>> {
        match net::accept_with(listener, FLAGS) {
            Ok(socket) => Ok(Some((socket, None))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn connect(address: &SocketAddr, _: &DoubleOptions) -> io::Result<OwnedFd> {
        let socket = socket()?;
        match net::connect(&socket, &SocketAddrUnix::new(place(address))?) {
            Ok(()) => Ok(socket),
            Err(Errno::NOENT) => Err(io::ErrorKind::ConnectionRefused.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn advance(attempt: OwnedFd, timeout: Duration) -> io::Result<ControlFlow<OwnedFd, OwnedFd>> {
        // The listener tells of its window when it has accepted.
        Ok(match wait(&attempt, PollFlags::IN, timeout)? {
            true => ControlFlow::Break(attempt),
            false => ControlFlow::Continue(attempt),
        })
    }

    fn share() -> Self::Shared {
        Arc::new(Exposures::new(true))
    }

    fn placement(shared: &Self::Shared) -> Option<Arc<dyn Placement>> {
        Some(Arc::clone(shared) as _)
    }

    fn open(
        socket: OwnedFd,
        (options, shared): (&DoubleOptions, &Self::Shared),
        mac: Mac,
        (readiness, key): (&Readiness, u64),
    ) -> io::Result<Self::Connection> {
        let mut pair = DoublePair::new(socket, options)?;
        readiness.add(&pair.socket, key)?;
        readiness.add(&pair.interrupt, key)?;
        pair.hear()?;
        let RdmaOptions { units, kind, .. } = options.rdma;
        Ok(RdmaConnection::new(pair, (units, kind), mac, Arc::clone(shared)))
    }
}

fn socket() -> io::Result<OwnedFd> {
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?)
}

/// The place of the socket that stands for an address.
fn place(address: &SocketAddr) -> PathBuf {
    std::env::temp_dir().join(format!("tyche-rdma-{}-{}", address.ip(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_leaves_no_file_and_takes_none_of_another() {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = SocketAddr::from(([127, 99, high, low], 1));
        let listen = || Double::listen(&address, &DoubleOptions::default()).unwrap().0;
        let first = listen();
        let second = listen();
        drop(first);
        assert!(place(&address).exists(), "it is the second's by now");
        drop(second);
        assert!(!place(&address).exists());
    }
}
