//! The kernel as a client: connections over pairs of sockets, and the threads that serve them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use tracing::{debug, warn};
use tyche_block::Disk;

use crate::nbd::connection::{self, Peer};
use crate::nbd::ending::Counters;
use crate::nbd::handshake::Agreed;

/// A pair of sockets, before one goes to the kernel.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) ours: UnixStream,
    /// The kernel's end. A configured device holds it open as well.
    pub(super) kernel: OwnedFd,
}

impl Ends {
    pub(super) fn pair() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, kernel) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok(Self { ours: ours.into(), kernel })
    }

    /// Returns our end, if the kernel has kept its own.
    pub(super) fn if_taken(self) -> Option<UnixStream> {
        drop(self.kernel);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.ours, &mut [0; 1], flags) {
            // A request has arrived, or none yet.
            Ok((1.., _)) | Err(Errno::AGAIN) => Some(self.ours),
            _ => None,
        }
    }
}

/// Serves the kernel on any number of connections. Dropping it hangs up.
pub(super) struct Server {
    /// The queues of the disk, which the connections use round robin.
    disks: Vec<Arc<dyn Disk>>,
    counters: Arc<Counters>,
    stopping: Arc<AtomicBool>,
    connections: Vec<(Arc<Peer>, JoinHandle<()>)>,
}

impl Server {
    pub(super) fn new(disk: &Arc<dyn Disk>) -> Self {
        Self {
            disks: tyche_block::queues(disk),
            counters: Arc::default(),
            stopping: Arc::default(),
            connections: Vec::new(),
        }
    }

    /// Serves one more connection.
    ///
    /// The socket has no time limits: the kernel sends requests and takes replies at its own pace,
    /// and a machine may be suspended in the middle of either. [`hang_up`](Self::hang_up) ends
    /// every wait.
    pub(super) fn serve(&mut self, stream: UnixStream) -> io::Result<()> {
        let peer = Arc::new(Peer::new(stream, false));
        let disk = Arc::clone(&self.disks[self.connections.len() % self.disks.len()]);
        let counters = Arc::clone(&self.counters);
        // The kernel knows no structured replies.
        let (agreed, stopping) = (Agreed::default(), Arc::clone(&self.stopping));
        let thread = {
            let peer = Arc::clone(&peer);
            thread::Builder::new().name("nbd-reader".into()).spawn(move || {
                let ending = connection::transmit(&peer, &disk, agreed, &counters);
                if stopping.load(Ordering::Acquire) {
                    debug!(%ending, "connection with the kernel ended");
                } else {
                    warn!(%ending, "the kernel has closed a connection");
                }
            })?
        };
        self.connections.push((peer, thread));
        Ok(())
    }

    /// The number of connections.
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Closes all connections, so that the kernel can't wait for them any more.
    pub(super) fn hang_up(&self) {
        self.stopping.store(true, Ordering::Release);
        for (peer, _) in &self.connections {
            peer.hang_up();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.hang_up();
        for (_, thread) in self.connections.drain(..) {
            if thread.join().is_err() {
                warn!("a thread that served the kernel had panicked");
            }
        }
    }
}
