//! Connections and their events (rdma_cm).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::SocketAddrAny;

use super::library::{
    CmEvent, CmId, ConnParam, EventChannel, Library, PS_TCP, Qp, QpInitAttr, library,
};
use super::{Opaque, check};
use crate::rdma::window::{INVITATION, PeerWindow};

/// The longest wait of the kernel for an address or a route, in milliseconds.
const RESOLVE_MAX: i32 = 2000;
/// How often a write that is not acknowledged is repeated: as often as there is.
const RETRIES: u8 = 7;

/// Tells events of the connections on it.
pub(super) struct Channel {
    library: &'static Library,
    channel: NonNull<EventChannel>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Channel {}

/// A connection, or a listener, with the channel of its events.
pub struct Id {
    library: &'static Library,
    id: NonNull<CmId>,
    pub(super) channel: Channel,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Id {}

/// An event of a connection or a listener.
pub(super) struct Event {
    /// `RDMA_CM_EVENT_..`
    pub(super) kind: i32,
    pub(super) status: i32,
    /// The window of the peer, if the event has one.
    pub(super) window: Option<PeerWindow>,
    /// Of a connection that somebody wants, with the channel of the listener.
    id: *mut CmId,
}

impl Channel {
    /// # Errors
    /// `Unsupported` if there are no libraries, or no device.
    fn new() -> io::Result<Self> {
        let library = library()?;
        // SAFETY: it has no preconditions.
        let channel = unsafe { (library.rdma_create_event_channel)() };
        let channel = NonNull::new(channel).ok_or_else(|| no_device(io::Error::last_os_error()))?;
        let this = Self { library, channel };
        fcntl_setfl(&this, fcntl_getfl(&this)? | OFlags::NONBLOCK)?;
        Ok(this)
    }

    /// The next event; `None` if there is none now.
    pub(super) fn poll(&self) -> io::Result<Option<Event>> {
        let mut event: *mut CmEvent = ptr::null_mut();
        // SAFETY: the channel lives, and `event` is written if there is one.
        let got =
            unsafe { (self.library.rdma_get_cm_event)(self.channel.as_ptr(), &raw mut event) };
        if got != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the event is valid until it is acknowledged.
        let CmEvent { id, event: kind, status, conn, .. } = unsafe { &*event };
        let has_data =
            !conn.private_data.is_null() && usize::from(conn.private_data_len) >= INVITATION;
        let window = has_data.then(|| {
            // SAFETY: the private data are this long, and valid as the event is.
            let bytes = unsafe { conn.private_data.cast::<[u8; INVITATION]>().read_unaligned() };
            PeerWindow::decode(&bytes)
        });
        let told = Event { kind: *kind, status: *status, window: window.flatten(), id: *id };
        // SAFETY: nothing of the event is used any more.
        unsafe { (self.library.rdma_ack_cm_event)(event) };
        Ok(Some(told))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: whatever used the channel is gone: it is the last field of its owner.
        unsafe { (self.library.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

impl Id {
    fn new() -> io::Result<Self> {
        let channel = Channel::new()?;
        let (library, mut id) = (channel.library, ptr::null_mut());
        // SAFETY: the channel lives as long as the ID, and `id` is written on success.
        check(unsafe {
            let channel = channel.channel.as_ptr();
            (library.rdma_create_id)(channel, &raw mut id, ptr::null_mut(), PS_TCP)
        })
        .map_err(no_device)?;
        Ok(Self { library, id: NonNull::new(id).expect("an ID"), channel })
    }

    /// Listens at an address, for so many connections that wait.
    pub(super) fn listen(address: &SocketAddr, backlog: i32) -> io::Result<Self> {
        let (this, address) = (Self::new()?, SocketAddrAny::from(*address));
        // SAFETY: the ID and the address live.
        unsafe {
            let bound = (this.library.rdma_bind_addr)(this.id.as_ptr(), address.as_ptr().cast());
            check(bound).map_err(no_device)?;
            check((this.library.rdma_listen)(this.id.as_ptr(), backlog))?;
        }
        Ok(this)
    }

    /// Begins to connect, with the search for the device that leads to an address.
    pub(super) fn resolve(address: &SocketAddr) -> io::Result<Self> {
        let (this, address) = (Self::new()?, SocketAddrAny::from(*address));
        // SAFETY: the ID and the address live.
        check(unsafe {
            let (id, to) = (this.id.as_ptr(), address.as_ptr().cast());
            (this.library.rdma_resolve_addr)(id, ptr::null(), to, RESOLVE_MAX)
        })?;
        Ok(this)
    }

    /// Begins the search for a route, once the device is known.
    pub(super) fn resolve_route(&self) -> io::Result<()> {
        // SAFETY: the ID lives.
        check(unsafe { (self.library.rdma_resolve_route)(self.id.as_ptr(), RESOLVE_MAX) })
    }

    /// The connection that somebody wants, with a channel of its own. To drop it refuses it.
    pub(super) fn requested(library: &'static Library, event: &Event) -> io::Result<Self> {
        let id = NonNull::new(event.id).expect("a request has an ID");
        let this = Channel::new().map(|channel| Self { library, id, channel });
        let this = this.inspect_err(|_| {
            // SAFETY: the ID is ours, and used no more.
            unsafe { (library.rdma_destroy_id)(id.as_ptr()) };
        })?;
        // SAFETY: both live, and no event of the ID is left unacknowledged.
        check(unsafe { (library.rdma_migrate_id)(id.as_ptr(), this.channel.channel.as_ptr()) })?;
        Ok(this)
    }

    /// Makes the queue pair, which is that of the ID from now on.
    pub(super) fn make_queue_pair(&self, pd: Opaque, init: &mut QpInitAttr) -> io::Result<()> {
        // SAFETY: protection domain and completion queues are of the device of the ID.
        check(unsafe { (self.library.rdma_create_qp)(self.id.as_ptr(), pd, init) })
    }

    /// Connects, once the queue pair is made; the peer is told of the window.
    pub(super) fn connect(&self, window: &PeerWindow) -> io::Result<()> {
        let told = window.encode();
        // SAFETY: the parameters live during the call.
        check(unsafe { (self.library.rdma_connect)(self.id.as_ptr(), &mut parameters(&told)) })
    }

    /// Accepts the connection, once the queue pair is made; the peer is told of the window.
    pub(super) fn accept(&self, window: &PeerWindow) -> io::Result<()> {
        let told = window.encode();
        // SAFETY: the parameters live during the call.
        check(unsafe { (self.library.rdma_accept)(self.id.as_ptr(), &mut parameters(&told)) })
    }

    /// The ID as the library has it.
    pub(super) fn get(&self) -> &CmId {
        // SAFETY: it lives as long as this; what the library changes later is not looked at.
        unsafe { self.id.as_ref() }
    }

    /// Its queue pair.
    pub(super) fn queue_pair(&self) -> *mut Qp {
        self.get().qp
    }

    /// The address of this end.
    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        address(&self.get().source)
    }

    /// The address of the peer.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        address(&self.get().destination).ok().map(|it| it.ip())
    }
}

impl Id {
    /// Ends the queue pair, if there is one, before what it uses is gone.
    pub(super) fn end_queue_pair(&mut self) {
        if self.queue_pair().is_null() {
            return;
        }
        let id = self.id.as_ptr();
        // SAFETY: nothing uses the queue pair any more; the ID has none after that.
        unsafe {
            // Tells the peer, if there is a connection.
            let _ = (self.library.rdma_disconnect)(id);
            (self.library.rdma_destroy_qp)(id);
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.end_queue_pair();
        // SAFETY: nothing uses the ID any more, and all events are acknowledged.
        unsafe { (self.library.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

fn parameters(told: &[u8; INVITATION]) -> ConnParam {
    ConnParam {
        private_data: told.as_ptr().cast(),
        private_data_len: INVITATION as u8,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: 0,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        srq: 0,
        qp_num: 0,
    }
}

fn address(storage: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    let len = size_of_val(storage) as libc::socklen_t;
    // SAFETY: the storage is as long as any address.
    let address = unsafe { SocketAddrAny::read(ptr::from_ref(storage).cast(), len) };
    Ok(SocketAddr::try_from(address)?)
}

/// The error with a remedy, where it says that there is no device.
fn no_device(error: io::Error) -> io::Error {
    if !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::ENOSYS)) {
        return error;
    }
    let message = "this machine has no RDMA device for that; `rdma link` lists them, and the \
                   kernel module rdma_ucm must be loaded";
    io::Error::new(io::ErrorKind::Unsupported, message)
}
