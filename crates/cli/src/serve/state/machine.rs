//! The past of this machine: the boot of its kernel, and whether its hypervisor has restored it to
//! an earlier state.
//!
//! Linux does not export the generation ID of a virtual machine. Since Linux 6.10 its driver
//! (vmgenid) sends a uevent with `NEW_VMGENID=1` when the ID changes under a running kernel. QEMU
//! also passes the ID to the guest's firmware, where it can be read at any time (qemu_fw_cfg).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};
use uuid::Uuid;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// QEMU's data for the firmware, and the offset of the ID in it.
const QEMU: &str = "/sys/firmware/qemu_fw_cfg/by_name/etc/vmgenid_guid/raw";
const QEMU_OFFSET: usize = 40;

/// Receive buffer in bytes: room for the events of thousands of devices that appear at once.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Boot ID of the kernel. If the kernel does not provide one, each call returns another.
pub(super) fn boot() -> Uuid {
    let id = fs::read_to_string(BOOT_ID).ok();
    id.and_then(|id| Uuid::parse_str(id.trim()).ok()).unwrap_or_else(Uuid::new_v4)
}

/// The generation ID of the virtual machine, if it can be read.
pub(super) fn vm_generation() -> Option<Uuid> {
    let blob = fs::read(QEMU).ok()?;
    Some(Uuid::from_bytes(blob.get(QEMU_OFFSET..QEMU_OFFSET + 16)?.try_into().ok()?))
}

/// Calls `call` at each change of the machine's generation, for as long as the process lives.
///
/// # Errors
/// The system's error if the socket can't be opened.
pub(crate) fn watch_generation(call: impl FnMut() + Send + 'static) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let socket = socket_with(family, kind, flags, Some(KOBJECT_UEVENT))?;
    // Group 1 is the kernel's own events, before udev handles them.
    bind(&socket, &SocketAddrNetlink::new(0, 1))?;
    // Fails without CAP_NET_ADMIN; then the default limit applies.
    let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
    let listen = move || listen(&socket, call);
    thread::Builder::new().name("tyche-vmgenid".into()).spawn(listen)?;
    Ok(())
}

fn listen(socket: &OwnedFd, mut call: impl FnMut()) {
    let mut buffer = [0; 8192];
    loop {
        match recvfrom(socket, &mut buffer, RecvFlags::empty()) {
            Ok((len, _, from)) => {
                let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                let is_kernel = from.is_some_and(|from| from.pid() == 0);
                if is_kernel && is_new_generation(&buffer[..len]) {
                    call();
                }
            }
            // Too many events at once. To distrust the state because of that would end sessions'
            // devices without need.
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
        assert!(!is_new_generation(b"add@/devices/x\0ACTION=add\0"));
        assert!(!is_new_generation(b""));
    }

    #[test]
    fn a_boot_has_one_name() {
        assert_eq!(boot(), boot());
    }
}
