//! The listening socket, and a thread for each guest. All that a guest may take is bounded.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_ip_freebind, set_socket_reuseaddr};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, bind, listen, socket_with};
use tyche_crypto::{PublicKey, SecretKey};

use crate::conversation::{Attending, End, Owner, attend, greet};
use crate::guests::{Bounds, GuestId, Guests, Place};
use crate::handshake::{Identity, RANDOM_LEN, Verdict};

/// Connections that wait for the listening thread.
const BACKLOG: i32 = 1024;
/// Pause after a connection that could not be accepted, e.g. for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time limit until the thread of a guest that has lost its place has ended, if there are too many.
const THREAD_WAIT: Duration = Duration::from_millis(200);

/// An admin, as the target knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The name at this target.
    pub name: String,
    /// Look, and change nothing.
    pub read_only: bool,
}

/// The admin that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// As the target knows it.
    pub admin: Admin,
    /// The key that it has proved.
    pub key: PublicKey,
    /// The address that it asks from.
    pub address: SocketAddr,
}

/// The meaning of keys and requests. All methods are called by threads of the port.
pub trait Service: Send + Sync + 'static {
    /// The admin with that key.
    fn admin(&self, key: &PublicKey) -> Option<Admin>;

    /// Answers a request.
    fn answer(&self, caller: &Caller, request: &[u8]) -> Vec<u8>;

    /// Is told of somebody who knows the target's key, and whose own belongs to no admin.
    fn refused(&self, key: &PublicKey, address: SocketAddr);

    /// Is told that a guest can't be received.
    fn failed(&self, error: &io::Error);
}

/// Bounds on guests and their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Guests at a time.
    pub bounds: Bounds,
    /// Time for a handshake, from the connection on.
    pub handshake: Duration,
    /// Times of admins.
    pub admins: Attending,
}

impl Default for Limits {
    fn default() -> Self {
        let (request, idle) = (Duration::from_secs(2), Duration::from_secs(10));
        let answer = Duration::from_secs(30);
        Self {
            bounds: Bounds::default(),
            handshake: Duration::from_secs(2),
            admins: Attending { request, idle, answer },
        }
    }
}

/// Numbers of guests since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections.
    pub guests: u64,
    /// Those that had to go for others before they had proved anything.
    pub displaced: u64,
    /// Those without knowledge of the target's key: nothing was computed on the curve for them.
    pub no_proof: u64,
    /// Those that were too slow, or silent.
    pub late: u64,
    /// Those with forged hellos or records.
    pub forged: u64,
    /// Those with requests that are too long.
    pub too_long: u64,
    /// Those that are no admins, or no more, or for whom there was no room.
    pub refused: u64,
    /// Requests that were answered.
    pub requests: u64,
}

/// The control port of a target. It is closed when this is dropped; requests in progress are
/// executed to their end.
pub struct Port {
    shared: Arc<Shared>,
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    owner: Owner,
    limits: Limits,
    service: Arc<dyn Service>,
    table: Mutex<Table>,
    /// Signalled when a thread ends.
    ended: Condvar,
}

struct Table {
    guests: Guests<Arc<TcpStream>>,
    threads: usize,
    counts: Counts,
    is_closed: bool,
}

impl Port {
    /// Listens at an address, which need not be one of this machine yet.
    ///
    /// # Errors
    /// If the address is taken, or can't be listened at.
    pub fn open(
        address: SocketAddr,
        (keys, identity): (Vec<SecretKey>, Identity),
        limits: Limits,
        service: Arc<dyn Service>,
    ) -> io::Result<Self> {
        let listener = Arc::new(listening(address)?);
        let guests = Guests::new(limits.bounds);
        let table = Table { guests, threads: 0, counts: Counts::default(), is_closed: false };
        let owner = Owner::new(keys, identity);
        let shared = Arc::new(Shared {
            owner,
            limits,
            service,
            table: Mutex::new(table),
            ended: Condvar::new(),
        });
        let (theirs, guests) = (Arc::clone(&shared), Arc::clone(&listener));
        let thread = thread::Builder::new().name("control-port".into());
        let thread = Some(thread.spawn(move || theirs.receive(&guests))?);
        Ok(Self { shared, listener, thread })
    }

    /// The address that it listens at.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Changes the target's keys, for guests that come from now on.
    pub fn set_keys(&self, keys: Vec<SecretKey>) {
        self.shared.owner.set_keys(keys);
    }

    /// Closes the connections of those who are no admins any more.
    pub fn close_former(&self) {
        let service = &self.shared.service;
        let is_former = |key: Option<&PublicKey>| key.is_some_and(|it| service.admin(it).is_none());
        let gone = self.shared.table().guests.take(is_former);
        gone.iter().for_each(|stream| close(stream));
    }

    /// Numbers of guests.
    pub fn counts(&self) -> Counts {
        self.shared.table().counts
    }

    /// The guests that have a thread at the moment.
    pub fn guests(&self) -> usize {
        self.shared.table().threads
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Port").field(&self.listener).finish()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.shared.table().is_closed = true;
        // Wakes the thread that waits there.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let gone = self.shared.table().guests.take(|_| true);
        gone.iter().for_each(|stream| close(stream));
    }
}

fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    // Its interface may come up later. For IPv6 as well, by the option of IPv4.
    let _ = set_ip_freebind(&socket, true);
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Ends what a guest's thread waits for.
fn close(stream: &TcpStream) {
    // It may be closed already.
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives guests until the port is closed.
    fn receive(self: Arc<Self>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            if self.table().is_closed {
                return;
            }
            let received = accepted.and_then(|(stream, from)| self.seat(stream, from));
            if let Err(error) = received
                && error.kind() != io::ErrorKind::ConnectionAborted
            {
                self.service.failed(&error);
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }

    /// Gives a guest a place and a thread.
    fn seat(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) -> io::Result<()> {
        let until = Instant::now() + self.limits.handshake;
        let stream = Arc::new(stream);
        let threads_max = self.limits.bounds.threads();
        let is_full = |table: &mut Table| table.threads >= threads_max;
        let waited = self.ended.wait_timeout_while(self.table(), THREAD_WAIT, is_full);
        let (mut table, _) = waited.unwrap_or_else(PoisonError::into_inner);
        table.counts.guests += 1;
        if table.threads >= threads_max {
            table.counts.displaced += 1;
            return Ok(());
        }
        let (id, displaced) = table.guests.enter(address.ip(), Arc::clone(&stream));
        table.threads += 1;
        if let Some(displaced) = displaced {
            table.counts.displaced += 1;
            close(&displaced);
        }
        drop(table);
        let seat = Seat { shared: Arc::clone(self), id };
        let thread = thread::Builder::new().name("control-guest".into());
        thread.spawn(move || {
            let end = seat.shared.host(seat.id, &stream, address, until);
            seat.shared.table().counts.add(end);
            close(&stream);
        })?;
        Ok(())
    }

    /// Leads the conversation with a guest.
    fn host(&self, id: GuestId, stream: &TcpStream, address: SocketAddr, until: Instant) -> End {
        // Each message is written as a whole.
        let _ = stream.set_nodelay(true);
        let mut random = ([0; RANDOM_LEN], [0; 32]);
        let drawn = getrandom::fill(&mut random.0).and_then(|()| getrandom::fill(&mut random.1));
        if let Err(error) = drawn {
            self.service.failed(&io::Error::other(error));
            return End::Closed;
        }
        let mut wire = stream;
        let mut known = None;
        let greeted = greet(&mut wire, &self.owner, random, until, |key| {
            known = Some(*key);
            self.admit(id, key, address)
        });
        let (mut records, key) = match (greeted, known) {
            (Ok(records), Some(key)) => (records, key),
            (Err(end), _) => return end,
            (Ok(_), None) => return End::Closed,
        };
        attend(&mut wire, &mut records, self.limits.admins, |request| {
            // It may be another by now.
            let admin = self.service.admin(&key)?;
            self.table().guests.note_silence(id, None);
            let answer = self.service.answer(&Caller { admin, key, address }, request);
            let mut table = self.table();
            table.guests.note_silence(id, Some(Instant::now()));
            table.counts.requests += 1;
            Some(answer)
        })
    }

    fn admit(&self, id: GuestId, key: &PublicKey, address: SocketAddr) -> Verdict {
        let Some(admin) = self.service.admin(key) else {
            self.service.refused(key, address);
            return Verdict::Unknown;
        };
        let (place, displaced) = self.table().guests.prove(id, *key, Instant::now());
        displaced.iter().for_each(|stream| close(stream));
        match place {
            Place::Taken if admin.read_only => Verdict::Reads,
            Place::Taken => Verdict::Changes,
            Place::Full | Place::Lost => Verdict::Busy,
        }
    }
}

/// A guest's place and thread, which are given back when this is dropped.
struct Seat {
    shared: Arc<Shared>,
    id: GuestId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.guests.leave(self.id);
        table.threads -= 1;
        self.shared.ended.notify_one();
    }
}

impl Counts {
    fn add(&mut self, end: End) {
        match end {
            End::Closed => {}
            End::Late => self.late += 1,
            End::NoProof => self.no_proof += 1,
            End::Forged => self.forged += 1,
            End::TooLong => self.too_long += 1,
            End::Refused => self.refused += 1,
        }
    }
}
