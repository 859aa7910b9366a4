//! Commands and queries to the kernel's nbd driver: the generic netlink family `nbd`, as in
//! `linux/nbd-netlink.h`.
//!
//! Each command has one answer. The kernel executes a command before `send` returns, so the timeout
//! of the answer is never reached; it exists because every wait has one.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlasIterator, ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::{Error, module};

/// The longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Commands to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Command {
    Connect = 1,
    Disconnect = 2,
    Reconfigure = 3,
}

/// Attributes of a device.
mod attribute {
    pub(super) const INDEX: u16 = 1;
    pub(super) const SIZE_BYTES: u16 = 2;
    pub(super) const BLOCK_SIZE_BYTES: u16 = 3;
    pub(super) const TIMEOUT: u16 = 4;
    pub(super) const SERVER_FLAGS: u16 = 5;
    pub(super) const SOCKETS: u16 = 7;
    pub(super) const DEAD_CONN_TIMEOUT: u16 = 8;
    pub(super) const BACKEND_IDENTIFIER: u16 = 10;

    /// Attributes within `SOCKETS` and within each of its items.
    pub(super) const SOCK_ITEM: u16 = 1;
    pub(super) const SOCK_FD: u16 = 1;
}

/// The configuration of a device. Times are in seconds.
#[derive(Debug)]
pub(super) struct Configuration<'a> {
    pub(super) identity: &'a str,
    pub(super) size: u64,
    pub(super) block_size: u32,
    pub(super) flags: u16,
    pub(super) timeout_s: u64,
    pub(super) dead_timeout_s: u64,
    /// The kernel's ends of the connections; it keeps them beyond this call.
    pub(super) sockets: &'a [BorrowedFd<'a>],
}

impl Configuration<'_> {
    fn attributes(&self) -> Vec<DefaultNla> {
        vec![
            identity(self.identity),
            u64_attribute(attribute::SIZE_BYTES, self.size),
            u64_attribute(attribute::BLOCK_SIZE_BYTES, u64::from(self.block_size)),
            u64_attribute(attribute::TIMEOUT, self.timeout_s),
            u64_attribute(attribute::DEAD_CONN_TIMEOUT, self.dead_timeout_s),
            u64_attribute(attribute::SERVER_FLAGS, u64::from(self.flags)),
            sockets(self.sockets),
        ]
    }
}

/// The open driver.
#[derive(Debug)]
pub(super) struct Driver {
    socket: Socket,
    family: u16,
}

impl Driver {
    /// Opens a socket to the driver; loads its module first if need be.
    pub(super) fn open() -> Result<Self, Error> {
        let explain = |error| Error::new("open a netlink socket", error);
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(explain)?;
        socket.bind_auto().map_err(explain)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(explain)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))
            .map_err(|error| explain(error.into()))?;
        let family = find_family(&socket).or_else(|error| match error.kind() {
            ErrorKind::NotFound => {
                module::load("nbd");
                find_family(&socket)
            }
            _ => Err(error),
        });
        let family = family.map_err(|error| {
            Error::new("find the kernel's nbd driver", error)
                .remedy("load the kernel module (modprobe nbd), or attach in another way")
        })?;
        Ok(Self { socket, family })
    }

    /// Configures a free device. Returns its number.
    pub(super) fn connect(&self, configuration: &Configuration<'_>) -> io::Result<u32> {
        let answer = self.ask(Command::Connect, configuration.attributes())?;
        let number = answer.and_then(|answer| answer.u32(attribute::INDEX));
        number.ok_or_else(|| io::Error::other("the kernel does not say which device it took"))
    }

    /// Replaces a device's dead sockets by new ones. If none is dead, the kernel does nothing and
    /// closes the new ones.
    pub(super) fn reconnect(
        &self,
        number: u32,
        configuration: &Configuration<'_>,
    ) -> io::Result<()> {
        let mut attributes = configuration.attributes();
        attributes.push(u32_attribute(attribute::INDEX, number));
        self.ask(Command::Reconfigure, attributes).map(|_| ())
    }

    /// Changes the size of a device.
    pub(super) fn resize(
        &self,
        number: u32,
        backend: &str,
        size: u64,
        block_size: u32,
    ) -> io::Result<()> {
        let attributes = vec![
            u32_attribute(attribute::INDEX, number),
            identity(backend),
            u64_attribute(attribute::SIZE_BYTES, size),
            // If omitted, the kernel would set the driver's default of 1024.
            u64_attribute(attribute::BLOCK_SIZE_BYTES, u64::from(block_size)),
        ];
        self.ask(Command::Reconfigure, attributes).map(|_| ())
    }

    /// Disconnects a device: all its I/O fails. A device without a disk is left as it is.
    pub(super) fn disconnect(&self, number: u32) -> io::Result<()> {
        let attributes = vec![u32_attribute(attribute::INDEX, number)];
        self.ask(Command::Disconnect, attributes).map(|_| ())
    }

    fn ask(&self, command: Command, attributes: Vec<DefaultNla>) -> io::Result<Option<Message>> {
        let mut message = GenlMessage::from_payload(Message { command: command as u8, attributes });
        message.set_resolved_family_id(self.family);
        exchange(&self.socket, message)
    }
}

/// Sends a message and waits for the kernel's acknowledgement. Returns the kernel's last message
/// before it, if any.
fn exchange<F>(socket: &Socket, message: GenlMessage<F>) -> io::Result<Option<F>>
where
    F: GenlFamily + Emitable + ParseableParametrized<[u8], GenlHeader> + std::fmt::Debug + Clone,
    GenlMessage<F>: NetlinkSerializable + NetlinkDeserializable,
{
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut answer = None;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let part = NetlinkMessage::<GenlMessage<F>>::deserialize(rest)
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
            match part.payload {
                NetlinkPayload::Error(end) if end.code.is_none() => return Ok(answer),
                NetlinkPayload::Error(end) => return Err(end.to_io()),
                NetlinkPayload::InnerMessage(message) => answer = Some(message.into_parts().1),
                _ => {}
            }
            // A message is padded to a multiple of four bytes, except the last one.
            let len = (part.header.length as usize).next_multiple_of(4).max(4);
            rest = rest.get(len..).unwrap_or_default();
        }
    }
}

/// The number that the kernel gave the family: `NotFound` without the driver.
fn find_family(socket: &Socket) -> io::Result<u16> {
    let name = GenlCtrlAttrs::FamilyName(Message::family_name().into());
    let question = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![name] };
    let answer = exchange(socket, GenlMessage::from_payload(question))?;
    let mut nlas = answer.into_iter().flat_map(|answer| answer.nlas);
    nlas.find_map(|nla| match nla {
        GenlCtrlAttrs::FamilyId(family) => Some(family),
        _ => None,
    })
    .ok_or_else(|| ErrorKind::NotFound.into())
}

/// A message to the family or from it, in the host's byte order.
#[derive(Clone, Debug)]
struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl Message {
    fn u32(&self, kind: u16) -> Option<u32> {
        use netlink_packet_core::Nla;
        let found = self.attributes.iter().find(|it| it.kind() == kind && it.value_len() == 4)?;
        let mut bytes = [0; 4];
        found.emit_value(&mut bytes);
        Some(u32::from_ne_bytes(bytes))
    }
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        "nbd"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let attributes = NlasIterator::new(bytes)
            .map(|nla| nla.map(|nla| DefaultNla::new(nla.kind(), nla.value().to_vec())))
            .collect::<Result<_, _>>()?;
        Ok(Self { command: header.cmd, attributes })
    }
}

fn u32_attribute(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

fn u64_attribute(kind: u16, value: u64) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

fn identity(identity: &str) -> DefaultNla {
    let terminated = [identity.as_bytes(), &[0]].concat();
    DefaultNla::new(attribute::BACKEND_IDENTIFIER, terminated)
}

fn sockets(sockets: &[BorrowedFd<'_>]) -> DefaultNla {
    let items: Vec<_> = sockets
        .iter()
        .map(|socket| {
            let fd = socket.as_fd().as_raw_fd().unsigned_abs();
            nested(attribute::SOCK_ITEM, &[u32_attribute(attribute::SOCK_FD, fd)])
        })
        .collect();
    nested(attribute::SOCKETS, &items)
}

fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut value = vec![0; attributes.buffer_len()];
    attributes.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;

    #[test]
    fn a_configuration_is_what_the_kernel_header_says() {
        // SAFETY: the number is only encoded, and standard output is always open.
        let fd = unsafe { BorrowedFd::borrow_raw(1) };
        let message = sockets(&[fd, fd]);
        let mut bytes = vec![0xa5; message.buffer_len()];
        message.emit(&mut bytes);
        // Little-endian, as every machine that this runs on is.
        let item = [12, 0, 1, 0x80, 8, 0, 1, 0, 1, 0, 0, 0];
        assert_eq!(bytes, [&[28, 0, 7, 0x80][..], &item, &item].concat());
        let mut bytes = vec![0xa5; 8];
        identity("abc").emit(&mut bytes);
        assert_eq!(bytes, [8, 0, 10, 0, b'a', b'b', b'c', 0]);
    }

    #[test]
    fn a_kernel_without_a_family_says_so() {
        let socket = Socket::new(NETLINK_GENERIC).unwrap();
        socket.connect(&SocketAddr::new(0, 0)).unwrap();
        let question = GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName("no-such-family".into())],
        };
        let error = exchange(&socket, GenlMessage::from_payload(question)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
