//! Two bound sockets and the known state of their interface: shared by a link and its receiving
//! half.
//!
//! One socket receives and one sends, for their options differ: with the option for linear send
//! buffers (`PACKET_VNET_HDR`), the kernel would also describe received frames, and a frame that it
//! can't describe blocks a slot of the ring for ever (Linux 6.18, `tpacket_rcv`).
//!
//! The kernel reports the fall of an interface once, to either half; then both see it. The state
//! that both write is single independent atomics, and the filter with its members, which has a
//! lock: it changes when a session begins, when a protocol takes an address or gives one up, and
//! when the interface is replaced.
//!
//! The kernel's memberships of an interface end with it. Those of a link are recorded in its
//! filter, and begin again with the interface that the sockets are bound to next.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::filter::{Filter, MEMBERS_MAX};
use super::relations::Route;
use super::socket::{SENDS_ONLY, Socket};
use super::{InterfaceInfo, interface};
use crate::{Mac, Malformed};

pub(super) struct Endpoint {
    pub(super) incoming: Socket,
    pub(super) outgoing: Socket,
    route: Route,
    name: String,
    ethertype: u16,
    /// The filter of the receiving socket.
    filter: Mutex<Filter>,
    /// Whether the interface was up when last checked, with the sockets bound to it.
    attached: AtomicBool,
    /// The interface's address when last checked, in the low bytes.
    mac: AtomicU64,
    /// Its MTU when last checked.
    mtu: AtomicUsize,
    /// Whether arrival times are wanted.
    stamped: AtomicBool,
    short: AtomicU64,
    long: AtomicU64,
}

impl Endpoint {
    /// An endpoint of sockets that are bound to the interface already, with the filter set.
    pub(super) fn new(
        incoming: Socket,
        outgoing: Socket,
        route: Route,
        ethertype: u16,
        info: InterfaceInfo,
    ) -> Self {
        Self {
            incoming,
            outgoing,
            route,
            name: info.name,
            ethertype,
            filter: Mutex::new(Filter::new(info.index)),
            attached: AtomicBool::new(true),
            mac: AtomicU64::new(pack(info.mac)),
            mtu: AtomicUsize::new(info.mtu),
            stamped: AtomicBool::new(false),
            short: AtomicU64::new(0),
            long: AtomicU64::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn ethertype(&self) -> u16 {
        self.ethertype
    }

    pub(super) fn mac(&self) -> Mac {
        let [_, _, mac @ ..] = self.mac.load(Relaxed).to_be_bytes();
        mac
    }

    pub(super) fn mtu(&self) -> usize {
        self.mtu.load(Relaxed)
    }

    pub(super) fn malformed(&self) -> Malformed {
        Malformed { short: self.short.load(Relaxed), long: self.long.load(Relaxed) }
    }

    /// Queries the interface's present state. If it is gone, the last known state stays.
    pub(super) fn refresh(&self) {
        if let Ok((info, _)) = interface::inspect(self.incoming.as_fd(), &self.name) {
            self.mac.store(pack(info.mac), Relaxed);
            self.mtu.store(info.mtu, Relaxed);
        }
    }

    /// Whether the interface is up, as far as is known.
    pub(super) fn is_attached(&self) -> bool {
        self.attached.load(Relaxed)
    }

    /// Looks whether the interface has become a member of another one, which the kernel reports to
    /// no packet socket. Its frames are the other's then; the next call says so.
    pub(super) fn check_master(&self) {
        let interface = self.lock().interface;
        if self.is_attached() && self.route.master_of(interface).is_some() {
            self.detach();
        }
    }

    /// Records that the interface fell or vanished.
    pub(super) fn detach(&self) {
        self.attached.store(false, Relaxed);
    }

    /// Binds again to an interface that was down or gone, if it is back.
    pub(super) fn attach(&self) -> io::Result<()> {
        self.detach();
        // The error of the interface's fall may still be pending, and would fail the next call
        // although all is well again. Cleared before the check: later errors are new.
        self.incoming.take_error()?;
        self.outgoing.take_error()?;
        let index = interface::index(self.incoming.as_fd(), &self.name)
            .map_err(|error| self.explain(error))?;
        let (up, _) = interface::flags(self.incoming.as_fd(), &self.name)
            .map_err(|error| self.explain(error))?;
        if !up {
            return Err(self.explain(io::Error::from_raw_os_error(libc::ENETDOWN)));
        }
        interface::check_single(self.incoming.as_fd(), &self.route, &self.name, index)
            .map_err(|error| io::Error::new(io::ErrorKind::NetworkDown, error))?;
        self.move_to(index)?;
        // No change if the sockets are bound to this very interface. To the kernel, a new interface
        // of the same name, or even of the same number, is another one.
        self.incoming.bind(index, self.ethertype).map_err(|error| self.explain(error))?;
        self.outgoing.bind(index, SENDS_ONLY).map_err(|error| self.explain(error))?;
        self.attached.store(true, Relaxed);
        self.refresh();
        Ok(())
    }

    /// Changes the filter.
    pub(super) fn filter(&self, change: impl FnOnce(&mut Filter)) -> io::Result<()> {
        let mut filter = self.lock();
        change(&mut filter);
        self.incoming.filter(&filter)
    }

    fn lock(&self) -> MutexGuard<'_, Filter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the filter and the members for an interface, which may be the same as before.
    fn move_to(&self, interface: i32) -> io::Result<()> {
        let mut filter = self.lock();
        for &address in &filter.members {
            // The kernel counts memberships: without this, the same interface would have two. Of an
            // interface that is gone there are none left, and this does nothing.
            let _ = self.incoming.leave(filter.interface, address);
        }
        filter.interface = interface;
        self.incoming.filter(&filter)?;
        let mut members = filter.members.iter();
        members
            .try_for_each(|&address| self.incoming.join(interface, address))
            .map_err(|error| self.explain(error))
    }

    /// See [`Link::join`](crate::Link::join).
    pub(super) fn join(&self, address: Mac) -> io::Result<()> {
        let mut filter = self.lock();
        if filter.members.contains(&address) {
            return Ok(());
        }
        if filter.members.len() == MEMBERS_MAX {
            let message = format!("link {} has {MEMBERS_MAX} addresses already", self.name);
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        filter.members.push(address);
        let set = self.incoming.filter(&filter);
        let joined = set.and_then(|()| self.incoming.join(filter.interface, address));
        match joined {
            Err(error) if !is_gone(&error) => {
                filter.members.pop();
                // If this fails, too, frames to the address pass until the next change.
                let _ = self.incoming.filter(&filter);
                Err(error)
            }
            // An interface that is gone is joined when it is back.
            _ => Ok(()),
        }
    }

    /// See [`Link::leave`](crate::Link::leave).
    pub(super) fn leave(&self, address: Mac) -> io::Result<()> {
        let mut filter = self.lock();
        let Some(index) = filter.members.iter().position(|member| *member == address) else {
            return Ok(());
        };
        filter.members.remove(index);
        let left = self.incoming.leave(filter.interface, address);
        self.incoming.filter(&filter)?;
        left
    }

    /// Converts the kernel's errors about the interface to the kinds of the contract, with a
    /// remedy.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
        let name = &self.name;
        match error.raw_os_error() {
            Some(libc::ENETDOWN) => io::Error::new(
                io::ErrorKind::NetworkDown,
                format!("interface {name} is down; `ip link set {name} up` starts it"),
            ),
            _ if is_gone(&error) => {
                io::Error::new(io::ErrorKind::NotFound, format!("interface {name} is gone"))
            }
            _ => error,
        }
    }

    /// Checks for a fall of the interface. The kernel reports it once and is silent afterwards, so
    /// an interface that fell is queried until it is back.
    pub(super) fn look(&self) -> io::Result<()> {
        if self.incoming.take_error()? {
            self.detach();
        }
        if self.is_attached() { Ok(()) } else { self.attach() }
    }

    /// See [`Link::stamp_arrivals`](crate::Link::stamp_arrivals).
    pub(super) fn stamp_arrivals(&self, on: bool) {
        self.stamped.store(on, Relaxed);
    }

    /// Whether arrival times are wanted.
    pub(super) fn is_stamped(&self) -> bool {
        self.stamped.load(Relaxed)
    }

    /// Counts malformed frames.
    pub(super) fn count_malformed(&self, malformed: Malformed) {
        self.short.fetch_add(malformed.short, Relaxed);
        self.long.fetch_add(malformed.long, Relaxed);
    }
}

/// Whether the error means that there is no such interface now.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

fn pack([a, b, c, d, e, f]: Mac) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
