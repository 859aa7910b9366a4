//! Restores of this virtual machine to an earlier state of its memory.
//!
//! A machine whose memory is put back has the keys and the packet numbers of its sealed channels
//! from then: it would seal other frames with numbers that it has used, which tells whoever has
//! heard both what is in them. So a loop seals nothing more with such keys once a restore is noted:
//! it gives up those channels and opens others.
//!
//! Hypervisors say that they have restored a machine by changing its generation ID. Since Linux
//! 6.10 the driver of that (vmgenid) then sends a uevent with `NEW_VMGENID=1`. A thread of the
//! process listens to it. What was sealed between the restore and the event is not covered.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};

/// Receive buffer in bytes: room for the events of thousands of devices that appear at once.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Restores that were noted in this process.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Calls of those that have to act, and whether the thread runs.
static WATCH: Mutex<Watchers> = Mutex::new(Watchers { calls: Vec::new(), is_running: false });

struct Watchers {
    calls: Vec<Box<dyn FnMut() + Send>>,
    is_running: bool,
}

/// The restores that a loop has acted upon.
#[derive(Debug)]
pub struct Restores(u64);

impl Restores {
    /// Those until now.
    pub fn until_now() -> Self {
        Self(COUNT.load(Ordering::Relaxed))
    }

    /// Whether another was noted since the last call. Loops ask in each round.
    #[inline]
    pub fn is_another(&mut self) -> bool {
        // It protects no other data, and the event comes at any time.
        let count = COUNT.load(Ordering::Relaxed);
        std::mem::replace(&mut self.0, count) != count
    }
}

/// Notes that this machine was restored: all loops of the process give up the keys of their
/// channels before they seal another frame.
pub fn note() {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    watch.calls.iter_mut().for_each(|call| call());
}

/// Watches for restores, for as long as the process lives.
///
/// # Errors
/// The system's error if the socket or the thread can't be had.
pub fn watch() -> io::Result<()> {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    if watch.is_running {
        return Ok(());
    }
    let flags = SocketFlags::CLOEXEC;
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let socket = socket_with(family, kind, flags, Some(KOBJECT_UEVENT))?;
    // Group 1 is the kernel's own events, before udev handles them.
    bind(&socket, &SocketAddrNetlink::new(0, 1))?;
    // Fails without CAP_NET_ADMIN; then the default limit applies.
    let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
    thread::Builder::new().name("tyche-vmgenid".into()).spawn(move || listen(&socket))?;
    watch.is_running = true;
    Ok(())
}

/// As [`watch`], and calls `call` at each restore.
///
/// # Errors
/// The same.
pub fn watch_with(call: impl FnMut() + Send + 'static) -> io::Result<()> {
    watch()?;
    WATCH.lock().unwrap_or_else(PoisonError::into_inner).calls.push(Box::new(call));
    Ok(())
}

/// Watches for restores for channels with keys, which work without as well.
pub fn watch_for_keys() {
    if let Err(error) = watch() {
        tracing::warn!(%error, "restored snapshots can't be detected: keys are not renewed");
    }
}

fn listen(socket: &OwnedFd) {
    let mut buffer = [0; 8192];
    loop {
        match recvfrom(socket, &mut buffer, RecvFlags::empty()) {
            Ok((len, _, from)) => {
                let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                let is_kernel = from.is_some_and(|from| from.pid() == 0);
                if is_kernel && is_new_generation(&buffer[..len]) {
                    tracing::warn!("this machine was restored to an earlier state");
                    note();
                }
            }
            // Too many events at once. To act because of that would end sessions' devices without
            // need.
            Err(rustix::io::Errno::NOBUFS) => {
                tracing::warn!("events were lost: a snapshot restored just now was not detected");
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "restored snapshots can't be detected any more");
                return;
            }
        }
    }
}

/// Whether a uevent (`ACTION@PATH`, then `KEY=VALUE` fields, each ended by a zero) reports a new
/// generation.
fn is_new_generation(event: &[u8]) -> bool {
    event.split(|&byte| byte == 0).any(|field| field == b"NEW_VMGENID=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_s_event_is_known_from_others() {
        let event =
            b"change@/devices/platform/VMGENCTR:00\0ACTION=change\0NEW_VMGENID=1\0SEQNUM=9\0";
        assert!(is_new_generation(event));
        // A synthetic event, made through sysfs.
        let event = b"change@/devices/x\0ACTION=change\0SYNTH_ARG_NEW_VMGENID=1\0SEQNUM=9\0";
        assert!(!is_new_generation(event));
        for other in [&b"add@/devices/x\0ACTION=add\0"[..], b"NEW_VMGENID=10\0", b"\0\0", b""] {
            assert!(!is_new_generation(other));
        }
    }
}
