//! The reasons to reject a frame.

use tyche_counters::labels;

labels! {
    /// The reason why a frame was dropped, in the order of the table in FC.md. A bad frame
    /// increments a counter of this name, and has no other effect.
    #[non_exhaustive]
    pub enum Reject {
        /// Too short for its headers or its PDU, too long, or not a multiple of four bytes.
        Length = "length",
        /// Another EtherType than the one expected.
        EtherType = "ether_type",
        /// Another version than ours, of FCoE, FIP or FC-CT.
        Version = "version",
        /// An unknown start of frame.
        Sof = "sof",
        /// An unknown end of frame.
        Eof = "eof",
        /// A frame of another class than 3.
        Class = "class",
        /// A frame that its sender or a switch has marked as damaged or aborted.
        Aborted = "aborted",
        /// The CRC does not match.
        Crc = "crc",
        /// An operation of FIP that is unknown.
        Operation = "operation",
        /// A descriptor that is critical, but unknown or not one of the operation's.
        Descriptor = "descriptor",
        /// A descriptor of a length that its type does not have, or that ends behind the list.
        DescriptorLength = "descriptor_length",
        /// The same descriptor twice, or more than the receiver takes of those that may be
        /// repeated.
        DescriptorCount = "descriptor_count",
        /// A descriptor that the operation requires is missing.
        DescriptorMissing = "descriptor_missing",
        /// R_CTL and TYPE that are unknown together, or not those of the place.
        Kind = "kind",
        /// Optional headers of Fibre Channel (DF_CTL).
        OptionalHeaders = "optional_headers",
        /// More fill than payload.
        Fill = "fill",
        /// An unknown code of an extended link service, or command of FC-CT.
        Code = "code",
        /// A field out of range, or at odds with another.
        Range = "range",
        /// Data without a relative offset.
        Offset = "offset",
        /// D_ID is not the lower half of the destination address.
        Destination = "destination",
        /// No exchange with that number, or not that of this peer.
        Exchange = "exchange",
        /// A sequence or a frame of it that is not the next one.
        Sequence = "sequence",
    }
}
