//! The NBD protocol's numbers, and the parsing of a client's messages, without I/O.
//!
//! All integers are big-endian. The names are those of the NBD specification without the prefix.

/// First eight bytes that a server sends.
pub(super) const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Follows the magic, and starts every option of a client.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Starts every answer to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;

/// Handshake flags, of the server and of the client alike.
pub(super) mod handshake_flag {
    /// Options are answered and may be refused one by one.
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The 124 zero bytes after an export name's answer are left out.
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Options of a client before transmission.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of answers to options.
pub(super) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = 0x8000_0001;
    pub(crate) const ERR_POLICY: u32 = 0x8000_0002;
    pub(crate) const ERR_INVALID: u32 = 0x8000_0003;
    pub(crate) const ERR_UNKNOWN: u32 = 0x8000_0006;
    pub(crate) const ERR_TOO_BIG: u32 = 0x8000_0009;
}

/// Kinds of information about an export.
pub(super) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Abilities of the export.
pub(super) mod transmission_flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const ROTATIONAL: u16 = 1 << 4;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Flags of one request.
pub(super) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
    /// Any other command, answered with `EINVAL`; none carries a payload.
    Unknown,
}

impl Command {
    fn from_wire(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            _ => Self::Unknown,
        }
    }

    /// The flags allowed with this command.
    pub(super) fn allowed_flags(self) -> u16 {
        match self {
            // A client that was offered FUA may set it on any command; elsewhere it has no effect.
            Self::Read => command_flag::FUA | command_flag::DF,
            Self::BlockStatus => command_flag::FUA | command_flag::REQ_ONE,
            Self::WriteZeroes => {
                command_flag::FUA | command_flag::NO_HOLE | command_flag::FAST_ZERO
            }
            _ => command_flag::FUA,
        }
    }
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub(super) flags: u16,
    pub(super) command: Command,
    /// Chosen by the client, returned with the reply.
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl RequestHeader {
    /// Bytes on the wire.
    pub(super) const LEN: usize = 28;

    /// Parses a header; `None` if the magic is wrong: the stream is out of step and unusable.
    pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32() != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: fields.u16(),
            command: Command::from_wire(fields.u16()),
            cookie: fields.u64(),
            offset: fields.u64(),
            len: fields.u32(),
        })
    }
}

/// An option's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionHeader {
    pub(super) option: u32,
    pub(super) len: u32,
}

impl OptionHeader {
    /// Bytes on the wire.
    pub(super) const LEN: usize = 16;

    /// Parses a header; `None` if the magic is wrong.
    pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u64() == OPTION_MAGIC).then(|| Self { option: fields.u32(), len: fields.u32() })
    }
}

/// The data of the options `INFO` and `GO`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InfoRequest<'a> {
    /// The export's name; the empty name asks for the default.
    pub(super) name: &'a [u8],
    /// Big-endian numbers of two bytes each.
    wanted: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// Parses the data; `None` unless the lengths within add up to exactly the length of `data`.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let (len, rest) = data.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        let (count, wanted) = rest.split_first_chunk()?;
        (wanted.len() == usize::from(u16::from_be_bytes(*count)) * 2)
            .then_some(Self { name, wanted })
    }

    /// Whether the client asks for this kind of information.
    pub(super) fn wants(&self, kind: u16) -> bool {
        self.wanted.chunks_exact(2).any(|number| number == kind.to_be_bytes())
    }
}

/// Takes fields off the front of a message: integers of a header of known length, and what the
/// client says is there.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// An integer, if there is one.
    pub(super) fn try_u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*field))
    }

    /// A text behind its length.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.try_u32()? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the header's length is a constant");
        self.0 = rest;
        *field
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_the_specification_says() {
        let bytes: [u8; 28] = [
            0x25, 0x60, 0x95, 0x13, 0x00, 0x01, 0x00, 0x01, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0,
            0, 0x10, 0, 0, 0, 0x02, 0,
        ];
        let header = RequestHeader::parse(&bytes).unwrap();
        assert_eq!(header.command, Command::Write);
        assert_eq!(header.flags, command_flag::FUA);
        assert_eq!(header.cookie, 0x0102_0304_0506_0708);
        assert_eq!((header.offset, header.len), (0x1_0000_1000, 512));
        for bit in 0..32 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RequestHeader::parse(&wrong), None);
        }
    }

    #[test]
    fn an_info_request_must_add_up() {
        let data = [0, 0, 0, 2, b'h', b'i', 0, 2, 0, 3, 0, 1];
        let request = InfoRequest::parse(&data).unwrap();
        assert_eq!(request.name, b"hi");
        assert!(request.wants(info::BLOCK_SIZE) && request.wants(info::NAME));
        assert!(!request.wants(info::EXPORT));
        for len in 0..data.len() {
            assert_eq!(InfoRequest::parse(&data[..len]), None, "cut to {len}");
        }
        assert_eq!(InfoRequest::parse(&[&data[..], &[0]].concat()), None, "one byte too many");
        let huge = [0xff, 0xff, 0xff, 0xff, b'h', 0, 0];
        assert_eq!(InfoRequest::parse(&huge), None);
    }
}
