//! Every way in which a frame can be wrong.

use core::fmt;

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a frame was dropped. The network is hostile: a wrong frame is a counter, never an
        /// error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reject { $($(#[$doc])* $name,)* }

        impl Reject {
            /// All reasons, in the order of their discriminants.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The reason's name in statistics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

rejects! {
    /// Not our version.
    Version = "version",
    /// The header's checksum does not match.
    HeaderChecksum = "header_checksum",
    /// No such kind.
    Kind = "kind",
    /// A flag that is unknown, or has no meaning for the kind.
    Flags = "flags",
    /// The payload's length is not what the header says.
    Length = "length",
    /// The payload's checksum does not match.
    PayloadChecksum = "payload_checksum",
    /// More entries than a frame may have, none where some must be, or some where none may be.
    EntryCount = "entry_count",
    /// No such kind of entry.
    EntryKind = "entry_kind",
    /// A field that must be zero is not.
    Reserved = "reserved",
    /// No such operation.
    Opcode = "opcode",
    /// No such status, reason or event.
    Code = "code",
    /// An offset or a length out of range or not a multiple of its unit.
    Range = "range",
    /// The parts of the data section do not add up to its length.
    DataLength = "data_length",
    /// A name that is not terminated, not UTF-8 or has control characters.
    Text = "text",
    /// A frame that is meant for one address came to several.
    Destination = "destination",
    /// The frame is for another target.
    Target = "target",
    /// A ticket that this target has not handed out to this address lately, or that is used up.
    Ticket = "ticket",
    /// No channel of that index is open.
    Channel = "channel",
    /// The cookie is not the channel's; or that of a connect is another living channel's.
    Cookie = "cookie",
    /// A frame of a channel from another address than the peer's.
    Source = "source",
    /// A packet number that is too old for the frame to be told from one that wrapped.
    Stale = "stale",
    /// A frame of a kind that the receiver does not take in its role or state.
    Unexpected = "unexpected",
    /// A position beyond the receive window.
    Window = "window",
    /// A tag that names no slot, or not the slot's current use.
    Tag = "tag",
    /// An acknowledgement of what was never sent.
    AckOfUnsent = "ack_of_unsent",
    /// Data or a command that does not fit what its request said before.
    Mismatch = "mismatch",
    /// Pages of the `damq` that do not exist or belong to another request.
    Placement = "placement",
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
