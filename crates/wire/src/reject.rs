//! The reasons to reject a frame.

use tyche_counters::labels;

labels! {
    /// The reason why a frame was dropped. The network is hostile: a bad frame increments a
    /// counter and is never an error.
    #[non_exhaustive]
    pub enum Reject {
        /// Another version than ours.
        Version = "version",
        /// The header's checksum does not match.
        HeaderChecksum = "header_checksum",
        /// An unknown kind.
        Kind = "kind",
        /// A flag that is unknown, or has no meaning for the kind.
        Flags = "flags",
        /// The payload's length does not match the header.
        Length = "length",
        /// The payload's checksum does not match.
        PayloadChecksum = "payload_checksum",
        /// It was not sealed with the channel's key, or changed since; or it is a connect that no
        /// host has made for this target.
        Forged = "forged",
        /// More entries than a frame may have, none where some are required, or some where none may
        /// be.
        EntryCount = "entry_count",
        /// An unknown kind of entry.
        EntryKind = "entry_kind",
        /// A reserved field is not zero.
        Reserved = "reserved",
        /// An unknown operation.
        Opcode = "opcode",
        /// An unknown status, reason or event.
        Code = "code",
        /// An offset or a length out of range or not a multiple of its unit.
        Range = "range",
        /// The parts of the data section do not add up to its length.
        DataLength = "data_length",
        /// A name that is not terminated, not UTF-8, or has characters that it may not have.
        Text = "text",
        /// A frame for a single address was sent to a group address.
        Destination = "destination",
        /// The frame is for another target.
        Target = "target",
        /// A ticket that this target has not issued to this address recently, or that was used.
        Ticket = "ticket",
        /// More Discovers, Hellos or Connects than the target takes at the time.
        Busy = "busy",
        /// No channel with that index is open.
        Channel = "channel",
        /// The cookie is not the channel's; or a connect's cookie is that of another living
        /// channel.
        Cookie = "cookie",
        /// A frame of a channel from another address than the peer's.
        Source = "source",
        /// A packet number too old to be distinguished from one that wrapped.
        Stale = "stale",
        /// A packet number of a sealed channel that has come before.
        Replayed = "replayed",
        /// A kind that the receiver does not accept in its role or state.
        Unexpected = "unexpected",
        /// A position beyond the receive window.
        Window = "window",
        /// A tag without a slot, or not of the slot's current use.
        Tag = "tag",
        /// An acknowledgement of a frame that was never sent.
        AckOfUnsent = "ack_of_unsent",
        /// Data or a command that contradicts earlier frames of its request.
        Mismatch = "mismatch",
        /// Pages of the `damq` that do not exist or belong to another request.
        Placement = "placement",
    }
}
