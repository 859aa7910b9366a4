//! Entries: the contents of frames in the two rings. Each is 24 bytes.
//!
//! ```text
//!             0      1       2..4      4..8  8..16           16..20  20..24
//! command     1      opcode  flags     tag   disk offset     length  damq page
//! completion  2      status  0         tag   wake, receive   store   transmit
//! data        3      0       0         tag   offset, length  total   damq page
//! event       4      code    0         0     value           0       0
//! credit      6      0       0         0     0               0       pages
//! ```
//!
//! The times of a completion are zero unless the host asked for them.

use core::fmt;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_ref, try_transmute,
};

use crate::codes::codes;
use crate::flags::flags;
use crate::{
    CREDIT_MIN, DAMQ_PAGES_MAX, ENTRY_LEN, PART_UNIT, REQUEST_LEN_MAX, Reject, SECTOR_LEN,
    STATUS_LEN_MAX, Tag,
};

codes! {
    /// The operation of a command. PROTOCOL.md, "Operations".
    Opcode(u8) {
        /// Disk to host.
        Read = 1,
        /// Host to disk.
        Write = 2,
        /// Completed writes become durable.
        Flush = 3,
        /// The range's content is no longer needed.
        Discard = 4,
        /// The range reads as zeroes from now on.
        WriteZeroes = 5,
        /// Which ranges from the offset on are holes, and which read as zeroes; the length is that
        /// of the answer. docs/protocol-annexes.md, "Block status".
        BlockStatus = 6,
    }
}

impl Opcode {
    /// Whether the request moves data over the wire.
    pub fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::BlockStatus)
    }

    /// Whether data move to the host.
    pub fn returns_data(self) -> bool {
        matches!(self, Self::Read | Self::BlockStatus)
    }

    /// Whether the request changes the disk's content.
    pub fn modifies(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }

    fn flags(self) -> CommandFlags {
        match self {
            Self::Write => CommandFlags::FUA,
            Self::WriteZeroes => CommandFlags::FUA | CommandFlags::MAY_UNMAP,
            _ => CommandFlags::NONE,
        }
    }

    /// The longest length of a request.
    fn len_max(self) -> u32 {
        match self {
            Self::Read | Self::Write => REQUEST_LEN_MAX,
            Self::BlockStatus => STATUS_LEN_MAX,
            Self::Flush => 0,
            Self::Discard | Self::WriteZeroes => u32::MAX,
        }
    }
}

flags! {
    /// Flags of a command.
    CommandFlags(u16):
    /// Write, write-zeroes: complete only when on stable storage.
    FUA = 1,
    /// Write-zeroes: blocks may be deallocated.
    MAY_UNMAP = 2,
}

codes! {
    /// The result of a request.
    Status(u8) {
        /// Success.
        Success = 0,
        /// The device failed.
        Io = 1,
        /// The request is invalid: out of the disk's bounds or misaligned.
        Invalid = 2,
        /// The export is read-only.
        ReadOnly = 3,
        /// No space left in the export's store.
        NoSpace = 4,
        /// The operation is not supported by the export.
        Unsupported = 5,
        /// The target is out of memory.
        NoMemory = 6,
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The operation.
    pub opcode: Opcode,
    /// Its flags.
    pub flags: CommandFlags,
    /// The tag of the request.
    pub tag: Tag,
    /// First byte on the disk, a multiple of 512.
    pub offset: u64,
    /// Bytes, a multiple of 512; at most 1 MiB where data moves, and 4096 of a block status.
    pub len: u32,
    /// First page of the `damq` for the request's data; zero where no data moves.
    pub damq_page: u32,
}

/// The completion of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The tag of the request.
    pub tag: Tag,
    /// Its result.
    pub status: Status,
    /// Its times in the target's stages; zero on channels without
    /// [`AcceptFlags::STAGES`](crate::AcceptFlags::STAGES).
    pub times: Times,
}

/// The time of a request in each stage of its target, in nanoseconds of the target's clock.
/// `u32::MAX` (4.3 s) also stands for everything longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From the arrival of the frame that completed the request until the target read it; zero if
    /// the target can't tell.
    pub wake_ns: u32,
    /// Until the request was submitted to the store.
    pub receive_ns: u32,
    /// Until the store completed it.
    pub store_ns: u32,
    /// Until the frame with the completion was composed.
    pub transmit_ns: u32,
}

impl Times {
    /// No times: the value unless the host asked for them.
    pub const ZERO: Self = Self { wake_ns: 0, receive_ns: 0, store_ns: 0, transmit_ns: 0 };
}

/// One part of the frame's data section; the parts follow each other in the entries' order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The tag of the request.
    pub tag: Tag,
    /// First byte within the request's data, a multiple of [`PART_UNIT`].
    pub offset: u32,
    /// Bytes, a multiple of [`PART_UNIT`].
    pub len: u32,
    /// Total bytes of the request's data.
    pub total: u32,
    /// First page of the `damq` of the *request's* data; zero towards the host.
    pub damq_page: u32,
}

/// An event of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The export has a new size in bytes.
    Resized(u64),
    /// The export is no longer offered: the session ends.
    Removed,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Host to target.
    Command(Command),
    /// Target to host.
    Completion(Completion),
    /// Either way.
    Data(Data),
    /// Target to host.
    Event(Event),
    /// Pages of the `damq`, from the first one on. To the host: that many it may use from now on.
    /// To the target, in answer: it uses no others.
    Credit(u32),
}

/// An entry towards a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToTarget {
    /// A request.
    Command(Command),
    /// Data of a write.
    Data(Data),
    /// The host uses only so many pages of the `damq`.
    Credit(u32),
}

/// An entry towards a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToHost {
    /// The end of a request.
    Completion(Completion),
    /// Data of a read.
    Data(Data),
    /// An event of the export.
    Event(Event),
    /// Pages of the `damq` that the host may use from now on.
    Credit(u32),
}

impl TryFrom<Entry> for ToTarget {
    type Error = Reject;

    #[inline]
    fn try_from(entry: Entry) -> Result<Self, Reject> {
        match entry {
            Entry::Command(command) => Ok(Self::Command(command)),
            Entry::Data(data) => Ok(Self::Data(data)),
            Entry::Credit(pages) => Ok(Self::Credit(pages)),
            Entry::Completion(_) | Entry::Event(_) => Err(Reject::Unexpected),
        }
    }
}

impl TryFrom<Entry> for ToHost {
    type Error = Reject;

    #[inline]
    fn try_from(entry: Entry) -> Result<Self, Reject> {
        match entry {
            Entry::Completion(completion) => Ok(Self::Completion(completion)),
            Entry::Data(data) => Ok(Self::Data(data)),
            Entry::Event(event) => Ok(Self::Event(event)),
            Entry::Credit(pages) => Ok(Self::Credit(pages)),
            Entry::Command(_) => Err(Reject::Unexpected),
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    kind: u8,
    code: u8,
    flags: U16,
    tag: U32,
    offset: U64,
    len: U32,
    page: U32,
}

const _: () = assert!(size_of::<Layout>() == ENTRY_LEN);

const COMMAND: u8 = 1;
const COMPLETION: u8 = 2;
const DATA: u8 = 3;
const EVENT: u8 = 4;
/// 5 is the entry of an Echo frame.
const CREDIT: u8 = 6;

impl Entry {
    /// Reads one entry.
    ///
    /// # Errors
    /// `EntryKind`, `Opcode`, `Code`, `Flags`, `Reserved` or `Range`.
    pub fn parse(bytes: &[u8; ENTRY_LEN]) -> Result<Self, Reject> {
        let (layout, this): (&Layout, _) = (transmute_ref!(bytes), Self::decode(bytes)?);
        match &this {
            Self::Command(command) => command.check()?,
            Self::Completion(_) => Completion::check(layout)?,
            Self::Data(data) => data.check(layout)?,
            Self::Event(event) => event.check(layout)?,
            Self::Credit(pages) => check_credit(*pages, layout)?,
        }
        Ok(this)
    }

    /// Decodes an entry, and checks only its codes.
    #[inline]
    pub(crate) fn decode(bytes: &[u8; ENTRY_LEN]) -> Result<Self, Reject> {
        let layout: &Layout = transmute_ref!(bytes);
        Ok(match layout.kind {
            COMMAND => Self::Command(Command::decode(layout)?),
            COMPLETION => Self::Completion(Completion::decode(layout)?),
            DATA => Self::Data(Data::decode(layout)),
            EVENT => Self::Event(Event::decode(layout)?),
            CREDIT => Self::Credit(layout.page.get()),
            _ => return Err(Reject::EntryKind),
        })
    }

    /// Writes the entry.
    pub fn emit(&self, bytes: &mut [u8; ENTRY_LEN]) {
        let layout = match *self {
            Self::Command(command) => Layout {
                kind: COMMAND,
                code: command.opcode as u8,
                flags: command.flags.0.into(),
                tag: command.tag.to_bits().into(),
                offset: command.offset.into(),
                len: command.len.into(),
                page: command.damq_page.into(),
            },
            Self::Completion(Completion { tag, status, times }) => Layout {
                tag: tag.to_bits().into(),
                offset: (u64::from(times.receive_ns) << 32 | u64::from(times.wake_ns)).into(),
                len: times.store_ns.into(),
                page: times.transmit_ns.into(),
                ..Layout::empty(COMPLETION, status as u8)
            },
            Self::Data(data) => Layout {
                tag: data.tag.to_bits().into(),
                offset: (u64::from(data.len) << 32 | u64::from(data.offset)).into(),
                len: data.total.into(),
                page: data.damq_page.into(),
                ..Layout::empty(DATA, 0)
            },
            Self::Event(Event::Resized(size)) => {
                Layout { offset: size.into(), ..Layout::empty(EVENT, 1) }
            }
            Self::Event(Event::Removed) => Layout::empty(EVENT, 2),
            Self::Credit(pages) => Layout { page: pages.into(), ..Layout::empty(CREDIT, 0) },
        };
        bytes.copy_from_slice(layout.as_bytes());
    }
}

impl Layout {
    fn empty(kind: u8, code: u8) -> Self {
        Self {
            kind,
            code,
            flags: 0.into(),
            tag: 0.into(),
            offset: 0.into(),
            len: 0.into(),
            page: 0.into(),
        }
    }
}

impl Command {
    fn decode(layout: &Layout) -> Result<Self, Reject> {
        Ok(Self {
            opcode: try_transmute!(layout.code).map_err(|_| Reject::Opcode)?,
            flags: CommandFlags(layout.flags.get()),
            tag: Tag::from_bits(layout.tag.get()),
            offset: layout.offset.get(),
            len: layout.len.get(),
            damq_page: layout.page.get(),
        })
    }

    fn check(&self) -> Result<(), Reject> {
        let Self { opcode, flags, offset, len, damq_page, .. } = *self;
        if !opcode.flags().contains(flags) {
            return Err(Reject::Flags);
        }
        if opcode == Opcode::Flush {
            if offset != 0 || len != 0 {
                return Err(Reject::Range);
            }
        } else if len == 0
            || !(offset | u64::from(len)).is_multiple_of(SECTOR_LEN)
            || offset.checked_add(u64::from(len)).is_none()
            || len > opcode.len_max()
        {
            return Err(Reject::Range);
        }
        if damq_page != 0 && !opcode.has_data() {
            return Err(Reject::Reserved);
        }
        Ok(())
    }
}

impl Completion {
    fn decode(layout: &Layout) -> Result<Self, Reject> {
        let status = try_transmute!(layout.code).map_err(|_| Reject::Code)?;
        let packed = layout.offset.get();
        let times = Times {
            wake_ns: packed as u32,
            receive_ns: (packed >> 32) as u32,
            store_ns: layout.len.get(),
            transmit_ns: layout.page.get(),
        };
        Ok(Self { tag: Tag::from_bits(layout.tag.get()), status, times })
    }

    fn check(layout: &Layout) -> Result<(), Reject> {
        if layout.flags.get() == 0 { Ok(()) } else { Err(Reject::Reserved) }
    }
}

impl Data {
    fn decode(layout: &Layout) -> Self {
        let packed = layout.offset.get();
        Self {
            tag: Tag::from_bits(layout.tag.get()),
            offset: packed as u32,
            len: (packed >> 32) as u32,
            total: layout.len.get(),
            damq_page: layout.page.get(),
        }
    }

    fn check(&self, layout: &Layout) -> Result<(), Reject> {
        if layout.code != 0 || layout.flags.get() != 0 {
            return Err(Reject::Reserved);
        }
        let Self { offset, len, total, .. } = *self;
        let whole = u64::from(total).is_multiple_of(SECTOR_LEN) && total <= REQUEST_LEN_MAX;
        let in_units = offset.is_multiple_of(PART_UNIT) && len.is_multiple_of(PART_UNIT);
        let within = offset.checked_add(len).is_some_and(|end| end <= total);
        if len == 0 || !whole || !in_units || !within {
            return Err(Reject::Range);
        }
        Ok(())
    }
}

impl Event {
    fn decode(layout: &Layout) -> Result<Self, Reject> {
        match layout.code {
            1 => Ok(Self::Resized(layout.offset.get())),
            2 => Ok(Self::Removed),
            _ => Err(Reject::Code),
        }
    }

    fn check(&self, layout: &Layout) -> Result<(), Reject> {
        let rest = (layout.flags.get(), layout.tag.get(), layout.len.get(), layout.page.get());
        let value_fits = *self != Self::Removed || layout.offset.get() == 0;
        if rest == (0, 0, 0, 0) && value_fits { Ok(()) } else { Err(Reject::Reserved) }
    }
}

/// Checks the number of pages of a credit, and that the rest of it is zero.
fn check_credit(pages: u32, layout: &Layout) -> Result<(), Reject> {
    let rest = (layout.flags.get(), layout.tag.get(), layout.offset.get(), layout.len.get());
    if layout.code != 0 || rest != (0, 0, 0, 0) {
        return Err(Reject::Reserved);
    }
    if (CREDIT_MIN..=DAMQ_PAGES_MAX).contains(&pages) { Ok(()) } else { Err(Reject::Range) }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(Command { opcode, flags, tag, offset, len, damq_page }) => {
                write!(f, "{opcode:?} {tag:?} {offset}+{len} damq={damq_page}")?;
                if flags.contains(CommandFlags::FUA) {
                    f.write_str(" fua")?;
                }
                if flags.contains(CommandFlags::MAY_UNMAP) {
                    f.write_str(" may-unmap")?;
                }
                Ok(())
            }
            Self::Completion(Completion { tag, status, times }) => {
                write!(f, "Done {tag:?} {status:?}")?;
                if *times == Times::ZERO {
                    return Ok(());
                }
                let Times { wake_ns, receive_ns, store_ns, transmit_ns } = times;
                write!(f, " after {wake_ns}+{receive_ns}+{store_ns}+{transmit_ns} ns")
            }
            Self::Data(Data { tag, offset, len, total, damq_page }) => {
                write!(f, "Data {tag:?} {offset}+{len}/{total} damq={damq_page}")
            }
            Self::Event(event) => write!(f, "{event:?}"),
            Self::Credit(pages) => write!(f, "Credit {pages}"),
        }
    }
}
