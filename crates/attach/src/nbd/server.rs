//! An NBD server on a Unix socket: the disk for every NBD client (`qemu`, `nbdcopy`, `nbd-client`,
//! `fio`), without privileges and without a block device.
//!
//! - The handshake is fixed newstyle (`NBD_OPT_GO` and the older `EXPORT_NAME`), with one export.
//!   TLS and extended headers are declined. Structured replies have one chunk.
//! - A client may ask which ranges are holes (`base:allocation`). The disk is asked each time:
//!   nothing is remembered that a write could make wrong.
//! - Requests must be aligned to the announced block size. Others get `EINVAL`, as does a read or
//!   write longer than what the disk's arena keeps. The announced maximum is a quarter of that,
//!   rounded down to a power of two, and 32 MiB at most.
//! - Replies come in the order in which requests finish. `CAN_MULTI_CONN` is announced: a flush on
//!   one connection covers completed writes of all, for they share one session.
//! - A client sees the disk's size at the time of its connect. The next client sees a grown disk.
//! - A client's error ends its connection with an [`Ending`] that is logged and counted.
//!
//! The socket is accessible by its owner only.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tracing::{debug, warn};
use tyche_block::Disk;

use super::PAYLOAD_MAX;
use super::connection::{self, Peer};
use super::ending::{Counters, Ending};
use super::handshake::Offer;
use crate::claim::{BUSY_GRACE, BUSY_RETRY};
use crate::listener::{Listener, ListeningSocket};
use crate::{Attachment, Error, Stopped, slots};

/// The most clients at once. Each costs two threads.
const CONNECTIONS_MAX: usize = 64;

/// The most clients beyond these that are told so at once, in a thread for each. Others are hung up
/// on without a word.
const REFUSED_MAX: usize = 8;

/// The longest name that the specification allows, in bytes.
const NAME_LEN_MAX: usize = 4096;

/// A running NBD server. Dropping it stops it.
#[derive(Debug)]
pub struct NbdServer {
    socket: ListeningSocket,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// State shared by the acceptor, the connections and the handle.
#[derive(Debug)]
struct Shared {
    counters: Arc<Counters>,
    stopping: AtomicBool,
    /// The live connections, among them clients that are being refused.
    peers: Mutex<Vec<Arc<Peer>>>,
}

impl Shared {
    fn peers(&self) -> MutexGuard<'_, Vec<Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections that are served.
    fn connected(&self) -> usize {
        self.peers().iter().filter(|peer| !peer.is_refused()).count()
    }
}

/// Counters of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections alive now.
    pub connected: usize,
    /// Requests of all connections.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

impl NbdServer {
    /// Serves `disk` as `export_name`, which is also the default export, on a Unix socket at
    /// `socket_path`. The socket of a dead server is replaced.
    ///
    /// # Errors
    /// If the name is longer than NBD allows, the arena too small for a request, or the socket
    /// can't be made, most often because another server listens there.
    pub fn start(
        socket_path: &Path,
        export_name: &str,
        disk: &Arc<dyn Disk>,
    ) -> Result<Self, Error> {
        if export_name.len() > NAME_LEN_MAX {
            let error = Error::new("NBD export name", ErrorKind::InvalidInput);
            return Err(error.remedy("use at most 4096 bytes"));
        }
        let payload_max = slots::io_max_of(disk.arena(), PAYLOAD_MAX, "NBD server")?;
        let (socket, listener) = ListeningSocket::bind(socket_path, "NBD")?;
        let shared = Arc::new(Shared {
            counters: Arc::new(Counters::default()),
            stopping: AtomicBool::new(false),
            peers: Mutex::new(Vec::with_capacity(CONNECTIONS_MAX + REFUSED_MAX)),
        });
        let acceptor = Acceptor {
            listener,
            disks: tyche_block::queues(disk),
            name: export_name.to_owned(),
            payload_max,
            shared: Arc::clone(&shared),
        };
        let acceptor = thread::Builder::new()
            .name("nbd-accept".into())
            .spawn(move || acceptor.run())
            .map_err(|error| Error::new("start a thread for the NBD server", error))?;
        Ok(Self { socket, shared, acceptor: Some(acceptor) })
    }

    /// Returns the counters.
    pub fn counts(&self) -> NbdCounts {
        let counters = &self.shared.counters;
        NbdCounts {
            accepted: counters.accepted.load(Ordering::Relaxed),
            connected: self.shared.connected(),
            requests: counters.requests.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
        }
    }

    /// The number of connections that ended for this reason.
    pub fn ended(&self, ending: Ending) -> u64 {
        self.shared.counters.ended(ending)
    }

    fn shut_down(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.stopping.store(true, Ordering::Release);
        self.socket.shut_down();
        if acceptor.join().is_err() {
            warn!("the NBD server's thread had panicked");
        }
    }
}

impl Attachment for NbdServer {
    fn device_path(&self) -> &Path {
        self.socket.path()
    }

    /// Nothing to do: NBD can't notify a connected client.
    fn resized(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// It is in use while a client is connected.
    fn stop(&mut self, force: bool) -> Result<Stopped, Error> {
        // A client that has ended may still be noted.
        let deadline = Instant::now() + BUSY_GRACE;
        while !force && self.acceptor.is_some() && self.shared.connected() > 0 {
            if Instant::now() >= deadline {
                return Ok(Stopped::InUse);
            }
            thread::sleep(BUSY_RETRY);
        }
        self.shut_down();
        Ok(Stopped::Gone)
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// The thread that accepts connections, and starts a thread for each.
struct Acceptor {
    listener: Listener,
    /// The queues of the disk, which the connections use round robin.
    disks: Vec<Arc<dyn Disk>>,
    name: String,
    payload_max: u32,
    shared: Arc<Shared>,
}

impl Acceptor {
    fn run(self) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for stream in self.listener.accept_until(|| self.shared.stopping.load(Ordering::Acquire)) {
            threads.retain(|thread| !thread.is_finished());
            self.shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
            threads.extend(self.start(stream));
        }
        for peer in self.shared.peers().iter() {
            peer.hang_up();
        }
        for thread in threads {
            if thread.join().is_err() {
                warn!("an NBD connection's thread had panicked");
            }
        }
    }

    /// Starts a connection. If the limit is reached, its client is told so.
    fn start(&self, stream: UnixStream) -> Option<JoinHandle<()>> {
        let is_refused = self.shared.connected() == CONNECTIONS_MAX;
        let peer = Arc::new(Peer::new(stream, is_refused));
        {
            let mut peers = self.shared.peers();
            let refused = peers.iter().filter(|peer| peer.is_refused()).count();
            if is_refused && refused == REFUSED_MAX {
                drop(peers);
                end(&self.shared, &peer, Ending::TooMany);
                return None;
            }
            peers.push(Arc::clone(&peer));
        }
        if is_refused {
            return self.refuse(&peer);
        }
        let offer = Offer {
            name: self.name.clone(),
            geometry: self.disks[0].geometry(),
            payload_max: self.payload_max,
        };
        let turn = self.shared.counters.accepted.load(Ordering::Relaxed) as usize;
        let disk = Arc::clone(&self.disks[turn % self.disks.len()]);
        let shared = Arc::clone(&self.shared);
        let thread = {
            let peer = Arc::clone(&peer);
            thread::Builder::new().name("nbd-reader".into()).spawn(move || {
                let ending = connection::serve(&peer, &disk, &offer, &shared.counters);
                end(&shared, &peer, ending);
            })
        };
        if thread.is_err() {
            end(&self.shared, &peer, Ending::TooMany);
        }
        thread.ok()
    }

    /// Starts a thread that tells a client that there are too many.
    fn refuse(&self, peer: &Arc<Peer>) -> Option<JoinHandle<()>> {
        let (shared, refused) = (Arc::clone(&self.shared), Arc::clone(peer));
        let thread = thread::Builder::new().name("nbd-refuse".into()).spawn(move || {
            let why = format!("{CONNECTIONS_MAX} clients are connected, and no more may be");
            let ending = connection::turn_away(&refused, &why);
            end(&shared, &refused, ending);
        });
        if thread.is_err() {
            end(&self.shared, peer, Ending::TooMany);
        }
        thread.ok()
    }
}

/// Hangs up a connection, logs its end and counts it.
fn end(shared: &Shared, peer: &Arc<Peer>, ending: Ending) {
    peer.hang_up();
    let stopping = shared.stopping.load(Ordering::Acquire);
    let ending = if stopping { Ending::Stopped } else { ending };
    if ending.is_orderly() {
        debug!(%ending, "NBD connection ended");
    } else {
        warn!(%ending, "NBD connection ended");
    }
    shared.counters.count_ending(ending);
    shared.peers().retain(|other| !Arc::ptr_eq(other, peer));
}
