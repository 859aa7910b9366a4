//! The kernel's message that this virtual machine was put back to an earlier state of its memory,
//! made up for the programs of a network namespace. Linux, since 6.10, sends it if the hypervisor
//! changes the machine's generation ID (vmgenid).

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};

use crate::Result;

/// Bytes before the event: the header of a netlink message.
const HEADER: usize = 16;
/// Its type and flags: a request that is no message of the protocol itself.
const KIND: u32 = 0x10 | 1 << 16;
const EVENT: &[u8] =
    b"change@/devices/x\0ACTION=change\0DEVPATH=/devices/x\0SUBSYSTEM=x\0NEW_VMGENID=1\0";

/// Tells the programs that listen in this network namespace. Its administrator may.
///
/// # Errors
/// If the kernel does not take the message.
pub fn tell() -> Result<()> {
    let len = (HEADER + EVENT.len()) as u32;
    let mut message: Vec<u8> =
        [len, KIND, 1, 0].iter().flat_map(|field| field.to_ne_bytes()).collect();
    message.extend_from_slice(EVENT);
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(KOBJECT_UEVENT));
    let socket = socket.map_err(|error| format!("a socket for events: {error}"))?;
    let sent = sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0));
    sent.map(drop).map_err(|error| format!("send the event: {error}"))
}
