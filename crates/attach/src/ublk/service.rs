//! The service of a device's queues: by the threads that serve the disk's queues if the disk has
//! enough of them, otherwise by a thread of its own for each queue.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tyche_block::Disk;
use tyche_wake::{MakePoller, Polled, Poller};

use super::abi::DeviceInfo;
use super::queue::Queue;
use crate::Error;

/// The longest wait for the queues' set-up, or for their end after the device was stopped.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between two attempts to open the device.
const OPEN_RETRY: Duration = Duration::from_millis(50);

/// Passes a poller to the thread that serves a queue of the disk, by its number.
pub(crate) type Adopt<'a> = &'a dyn Fn(usize, MakePoller);

/// The served queues of a device.
pub(super) struct Service {
    /// Disconnected when the last queue is no longer served.
    ended: Receiver<()>,
}

impl Service {
    /// Starts to serve all queues, and returns when each is set up. `partitions` has an effect only
    /// if the device is started next, not if it is taken over.
    pub(super) fn start(
        info: &DeviceInfo,
        disk: &Arc<dyn Disk>,
        partitions: bool,
        adopt: Adopt<'_>,
    ) -> Result<Self, Error> {
        let path = PathBuf::from(format!("/dev/ublkc{}", info.device));
        let explain = |error| Error::new(format!("serve {}", path.display()), error);
        let device = Arc::new(open_char_device(&path).map_err(explain)?);
        let (ready, begun) = sync_channel(usize::from(info.queues));
        // Nothing is ever sent: the channel is disconnected when the last sender is dropped.
        let (alive, ended) = sync_channel(0);
        let disks = tyche_block::queues(disk);
        let disk_has_enough = usize::from(info.queues) <= disks.len();
        for index in 0..info.queues {
            let queue = usize::from(index) % disks.len();
            let setup = QueueSetup {
                device: Arc::clone(&device),
                disk: Arc::clone(&disks[queue]),
                index,
                depth: info.depth,
                partitions,
                ready: ready.clone(),
                _alive: alive.clone(),
            };
            if disk_has_enough {
                adopt(queue, Box::new(move || setup.poller()));
            } else {
                thread::Builder::new()
                    .name(format!("ublk-{index}"))
                    .spawn(move || setup.serve())
                    .map_err(explain)?;
            }
        }
        drop((ready, alive));
        for _ in 0..info.queues {
            begun
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
                .map_err(explain)?;
        }
        Ok(Self { ended })
    }

    /// Waits until all threads have released the stopped device.
    pub(super) fn end(&self) {
        if self.ended.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a thread still serves a ublk device that was stopped");
        }
    }
}

/// The parameters of a queue, for the thread that serves it. The kernel identifies a queue by that
/// thread, so the queue is made there.
struct QueueSetup {
    device: Arc<File>,
    disk: Arc<dyn Disk>,
    index: u16,
    depth: u16,
    partitions: bool,
    ready: SyncSender<io::Result<()>>,
    /// Dropped last: signals that the queue is no longer served.
    _alive: SyncSender<()>,
}

impl QueueSetup {
    /// Sets the queue up, and reports the result.
    fn queue(&self) -> Option<Queue> {
        let queue = Queue::new(&self.device, &self.disk, self.index, self.depth);
        let queue = queue.and_then(|mut queue| {
            match self.partitions {
                true => queue.begin(),
                false => unprivileged(|| queue.begin()),
            }?;
            Ok(queue)
        });
        let (queue, result) = match queue {
            Ok(queue) => (Some(queue), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // The receiver may have timed out.
        let _ = self.ready.send(result);
        queue
    }

    /// The body of a thread that only serves the queue.
    fn serve(self) {
        // Without the privilege there is no protection, but the disk works.
        if let Err(error) = tyche_block::avoid_reclaim_io() {
            tracing::debug!(%error, "ublk queue without protection from memory reclaim");
        }
        if let Some(Err(error)) = self.queue().map(Queue::run) {
            give_up(&error);
        }
    }

    /// Returns the queue as a poller of the calling thread.
    fn poller(self) -> Option<Box<dyn Poller>> {
        let queue = self.queue()?;
        Some(Box::new(Polling { queue, _setup: self }))
    }
}

/// A polled queue. Dropping it ends its service.
struct Polling {
    queue: Queue,
    _setup: QueueSetup,
}

impl Poller for Polling {
    fn poll(&mut self) -> io::Result<Polled> {
        self.queue.poll().or_else(|error| give_up(&error))
    }

    fn announce(&self) {
        self.queue.announce();
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.queue.wait_fd()
    }

    fn awake(&self) {
        self.queue.awake();
    }
}

/// Runs `act` without `CAP_SYS_ADMIN`, which the thread gets back afterwards. The driver does not
/// trust a device of a thread without it, and then does not scan for partitions.
fn unprivileged(act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let all = capabilities(None)?;
    let mut fewer = all;
    fewer.effective.remove(CapabilitySet::SYS_ADMIN);
    set_capabilities(None, fewer)?;
    let result = act();
    set_capabilities(None, all)?;
    result
}

/// Aborts the process after a ring broke: the kernel keeps all requests for the next server, and
/// accepts no other server while this process lives.
fn give_up(error: &io::Error) -> ! {
    tracing::error!(%error, "ublk queue broken");
    std::process::abort();
}

/// Opens the device that requests come through. It was made just now, and may wait for `udev`;
/// after the death of a server the kernel may still hold it for a moment.
fn open_char_device(path: &Path) -> io::Result<File> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ResourceBusy)
                    && Instant::now() < deadline =>
            {
                thread::sleep(OPEN_RETRY);
            }
            result => return result,
        }
    }
}
