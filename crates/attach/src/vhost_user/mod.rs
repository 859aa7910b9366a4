//! The disk of a virtual machine, without a block device on its host: a vhost-user-blk back end
//! on a Unix socket, for QEMU, Cloud Hypervisor, libblkio and others.
//!
//! The front end shares the guest's memory and the eventfds of its virtqueues; requests don't pass
//! through it. The threads of a queue (`queue`) move a request from the guest's chain of buffers
//! (`chain`) to the disk's arena, and back when it has been answered.
//!
//! - One front end is served at a time; the next one waits. A front end may disconnect and connect
//!   again, and this process may be restarted: requests in flight are recorded in memory that the
//!   front end keeps (`inflight`), and the next process serves them (again). A front end without
//!   that memory guesses from the used ring, and may lose requests that were overtaken by others.
//! - A guest that does not use flushes gets durable writes.
//! - The guest is not trusted: an invalid request ends with an error status, and an invalid ring
//!   ends its queue. The front end is trusted with its memory: truncating it kills this process.
//! - The size is read when the guest's driver starts. Notifying a guest of a disk that has grown
//!   takes a message that the vhost crate can't send yet; the guest sees the new size when it
//!   restarts.
//!
//! The socket is accessible by its owner only.

mod chain;
mod config;
mod device;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod inflight;
mod queue;
mod request;
mod ring;

use std::io;
use std::net::Shutdown;
use std::num::NonZeroU16;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tracing::{info, warn};
use tyche_block::Disk;
use vhost::vhost_user::{BackendReqHandler, Error as ProtocolError};

use self::device::{Device, Template};
use self::queue::Counters;
use self::request::IDENTITY_LEN;
use crate::listener::{Listener, ListeningSocket};
use crate::slots::Closed;
use crate::{Attachment, Error, Stopped, slots};

/// The longest read or write, in bytes, however large the arena is.
const PAYLOAD_MAX: u32 = 8 << 20;

/// A disk for a virtual machine. Dropping it stops it.
#[derive(Debug)]
pub struct VhostUserBlk {
    socket: ListeningSocket,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// State shared by the acceptor and the handle.
#[derive(Debug, Default)]
struct Shared {
    counters: Arc<Counters>,
    connected: AtomicU64,
    /// The front end being served.
    front_end: Mutex<Option<UnixStream>>,
    /// Raised when the attachment ends.
    given_up: Arc<Closed>,
}

impl Shared {
    fn front_end(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.front_end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUserCounts {
    /// Front ends that have connected.
    pub connected: u64,
    /// Requests of guests.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Invalid chains and rings.
    pub malformed: u64,
}

impl VhostUserBlk {
    /// Offers `disk` on a socket at `socket_path`, with at most `queues` queues. Guests see the
    /// first 20 bytes of `name` as the disk's name. The socket of a dead process is replaced.
    ///
    /// # Errors
    /// If the arena is too small for a request, or the socket can't be made, most often because
    /// another process listens there.
    pub fn start(
        socket_path: &Path,
        name: &str,
        disk: Arc<dyn Disk>,
        queues: NonZeroU16,
    ) -> Result<Self, Error> {
        let payload_max = slots::io_max_of(disk.arena(), PAYLOAD_MAX, "serve a virtual machine")?;
        let mut identity = [0; IDENTITY_LEN];
        for (to, from) in identity.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        let (socket, listener) = ListeningSocket::bind(socket_path, "vhost-user")?;
        let shared = Arc::new(Shared::default());
        let template = Template {
            disk_queues: tyche_block::queues(&disk),
            // A guest that runs since before a restart knows of the limit at that time.
            accepted_max: slots::accepted_max(disk.arena(), PAYLOAD_MAX),
            disk,
            payload_max,
            queues: queues.get(),
            identity,
            counters: Arc::clone(&shared.counters),
            given_up: Arc::clone(&shared.given_up),
        };
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("vhost-accept".into())
                .spawn(move || accept_all(&listener, &template, &shared))
                .map_err(|error| Error::new("start a thread for virtual machines", error))?
        };
        Ok(Self { socket, shared, acceptor: Some(acceptor) })
    }

    /// Returns the counters.
    pub fn counts(&self) -> VhostUserCounts {
        let counters = &self.shared.counters;
        VhostUserCounts {
            connected: self.shared.connected.load(Ordering::Relaxed),
            requests: counters.requests.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
            malformed: counters.malformed.load(Ordering::Relaxed),
        }
    }

    fn shut_down(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.given_up.raise();
        self.socket.shut_down();
        if let Some(stream) = self.shared.front_end().as_ref() {
            // Fails if the front end has disconnected already, which is fine.
            let _ = stream.shutdown(Shutdown::Both);
        }
        if acceptor.join().is_err() {
            warn!("the thread that serves virtual machines had panicked");
        }
    }
}

impl Attachment for VhostUserBlk {
    fn device_path(&self) -> &Path {
        self.socket.path()
    }

    /// Nothing to do: guests see the new size when they restart.
    fn resized(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// It is in use while a front end is connected.
    fn stop(&mut self, force: bool) -> Result<Stopped, Error> {
        if !force && self.shared.front_end().is_some() {
            return Ok(Stopped::InUse);
        }
        self.shut_down();
        Ok(Stopped::Gone)
    }
}

impl Drop for VhostUserBlk {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Serves one front end after the other, until the attachment ends.
fn accept_all(listener: &Listener, template: &Template, shared: &Shared) {
    for stream in listener.accept_until(|| shared.given_up.is_raised()) {
        shared.connected.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = serve(stream, template, shared) {
            warn!(%error, "a front end could not be served");
        }
    }
}

/// Serves one front end until it disconnects.
fn serve(stream: UnixStream, template: &Template, shared: &Shared) -> io::Result<()> {
    let handle = stream.try_clone()?;
    let device = Arc::new(Mutex::new(Device::new(template.clone())));
    let mut requests = BackendReqHandler::from_stream(stream, Arc::clone(&device));
    *shared.front_end() = Some(handle);
    info!("a virtual machine has connected");
    while !shared.given_up.is_raised() {
        match requests.handle_request() {
            Ok(()) => {}
            Err(ProtocolError::Disconnected | ProtocolError::SocketBroken(_)) => break,
            Err(error) => {
                warn!(%error, "a virtual machine's monitor sent an invalid message");
                break;
            }
        }
    }
    // The front end must see the disconnect now, not only when the disk has answered.
    drop(requests);
    if let Some(stream) = shared.front_end().take() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    device.lock().unwrap_or_else(PoisonError::into_inner).end();
    info!("a virtual machine has disconnected");
    Ok(())
}
