//! The Fibre Channel header, 24 bytes (FC-FS-3).
//!
//! ```text
//! off len field
//!   0   1 R_CTL      with TYPE: what the frame is
//!   1   3 D_ID       receiver
//!   4   1 CS_CTL     ignored, sent as 0
//!   5   3 S_ID       sender
//!   8   1 TYPE       the protocol above: 0 BLS, 1 ELS, 8 FCP, 0x20 FC-CT
//!   9   3 F_CTL      place of the frame in exchange and sequence; length of the fill
//!  12   1 SEQ_ID     sequence within the exchange
//!  13   1 DF_CTL     0: no optional headers
//!  14   2 SEQ_CNT    number of the frame within its sequence
//!  16   2 OX_ID      the exchange at its originator
//!  18   2 RX_ID      the exchange at its responder; 0xffff not assigned yet
//!  20   4 PARAMETER  relative offset of the data, if F_CTL says so
//! ```

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits::{bits, codes};
use crate::{PortId, Reject, Xid};

/// Bytes of the header.
pub const FC_HEADER_LEN: usize = 24;

codes! {
    /// The kind of a frame: R_CTL in the upper byte, TYPE in the lower.
    Kind(u16) {
        /// Data of a command (solicited data).
        FcpData = 0x0108;
        /// Confirmation of a response.
        FcpConf = 0x0308;
        /// Asks for a burst of a write's data (data descriptor).
        FcpXferRdy = 0x0508;
        /// A command.
        FcpCmnd = 0x0608;
        /// The end of a command.
        FcpRsp = 0x0708;
        /// A request of the extended link services.
        ElsRequest = 0x2201;
        /// The answer to one.
        ElsReply = 0x2301;
        /// A link service of FCP: SRR.
        Fc4Request = 0x3208;
        /// The answer to one.
        Fc4Reply = 0x3308;
        /// A request to the name server.
        CtRequest = 0x0220;
        /// The answer to one.
        CtReply = 0x0320;
        /// Ends an exchange.
        Abts = 0x8100;
        /// The exchange has ended.
        BaAcc = 0x8400;
        /// There is no such exchange.
        BaRjt = 0x8500;
    }
}

bits! {
    /// The place of a frame in its exchange and sequence, 24 bits. The length of the fill, in the
    /// lowest two, is not among them: it follows from the payload.
    FCtl(u32) {
        /// Sent by the responder of the exchange.
        EX_CTX = 0x80_0000;
        /// Sent by the recipient of the sequence.
        SEQ_CTX = 0x40_0000;
        /// The first sequence of the exchange.
        FIRST_SEQ = 0x20_0000;
        /// The last sequence of the exchange.
        LAST_SEQ = 0x10_0000;
        /// The last frame of the sequence.
        END_SEQ = 0x08_0000;
        /// The receiver may send the next sequence.
        SEQ_INIT = 0x01_0000;
        /// PARAMETER is the relative offset of the data.
        REL_OFF = 0x00_0008;
    }
}

impl FCtl {
    /// The first and only frame of a request: ELS, FC-CT, FCP_CMND.
    pub const REQUEST: Self = Self(0x29_0000);
    /// The answer to an ELS or FC-CT; also BA_ACC and BA_RJT.
    pub const REPLY: Self = Self(0x99_0000);
    /// FCP_XFER_RDY.
    pub const XFER_RDY: Self = Self(0x89_0000);
    /// Data of a write, not the last of a burst.
    pub const WRITE_DATA: Self = Self(0x00_0008);
    /// The last frame of a burst.
    pub const WRITE_DATA_END: Self = Self(0x09_0008);
    /// Data of a read, not the last of a sequence.
    pub const READ_DATA: Self = Self(0x80_0008);
    /// The last frame of a sequence.
    pub const READ_DATA_END: Self = Self(0x88_0008);
    /// FCP_RSP.
    pub const RESPONSE: Self = Self(0x98_0000);
    /// FCP_RSP that is to be confirmed: the exchange goes on with FCP_CONF.
    pub const RESPONSE_TO_CONFIRM: Self = Self(0x89_0000);
    /// ABTS of the originator.
    pub const ABTS: Self = Self(0x09_0000);
    /// FCP_CONF.
    pub const CONFIRMATION: Self = Self(0x19_0000);
}

/// The parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the frame.
    pub kind: Kind,
    /// The receiver.
    pub d_id: PortId,
    /// The sender.
    pub s_id: PortId,
    /// The frame's place in exchange and sequence.
    pub f_ctl: FCtl,
    /// The sequence.
    pub seq_id: u8,
    /// The number of the frame in its sequence.
    pub seq_cnt: u16,
    /// The exchange at its originator.
    pub ox_id: Xid,
    /// The exchange at its responder.
    pub rx_id: Xid,
    /// The relative offset of the data, or of other meaning in other kinds.
    pub parameter: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    r_ctl: u8,
    d_id: PortId,
    cs_ctl: u8,
    s_id: PortId,
    kind: u8,
    f_ctl: [u8; 3],
    seq_id: u8,
    df_ctl: u8,
    seq_cnt: U16,
    ox_id: U16,
    rx_id: U16,
    parameter: U32,
}

const _: () = assert!(size_of::<Layout>() == FC_HEADER_LEN);

/// Offsets of fields that are patched in a prepared header.
pub(crate) mod at {
    use core::mem::offset_of;

    use super::Layout;

    pub(crate) const F_CTL: usize = offset_of!(Layout, f_ctl);
    pub(crate) const SEQ_ID: usize = offset_of!(Layout, seq_id);
    pub(crate) const SEQ_CNT: usize = offset_of!(Layout, seq_cnt);
    pub(crate) const OX_ID: usize = offset_of!(Layout, ox_id);
    pub(crate) const RX_ID: usize = offset_of!(Layout, rx_id);
    pub(crate) const PARAMETER: usize = offset_of!(Layout, parameter);
}

/// The number of bytes behind a payload of `len` bytes that make it a multiple of four.
pub(crate) fn fill_len(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// F_CTL with the length of the fill behind a payload of `payload_len` bytes.
pub(crate) fn f_ctl_bytes(f_ctl: FCtl, payload_len: usize) -> [u8; 3] {
    let [_, a, b, c] = f_ctl.to_wire().to_be_bytes();
    [a, b, c | fill_len(payload_len) as u8]
}

impl Header {
    /// The header of a frame that is a sequence of its own, in an exchange of the sender that the
    /// receiver has not given a number yet. The frame is a request.
    pub fn request(kind: Kind, s_id: PortId, d_id: PortId, ox_id: Xid) -> Self {
        Self {
            kind,
            d_id,
            s_id,
            f_ctl: FCtl::REQUEST,
            seq_id: 0,
            seq_cnt: 0,
            ox_id,
            rx_id: Xid::NONE,
            parameter: 0,
        }
    }

    /// The header of a frame that answers one with this header and ends the exchange.
    #[must_use]
    pub fn reply(&self, kind: Kind, rx_id: Xid) -> Self {
        let (d_id, s_id) = (self.s_id, self.d_id);
        let f_ctl = FCtl::REPLY;
        Self { kind, d_id, s_id, f_ctl, seq_cnt: 0, rx_id, parameter: 0, ..*self }
    }

    /// Parses a header; returns it, and the length of the fill.
    ///
    /// # Errors
    /// `OptionalHeaders` or `Kind`.
    pub fn parse(bytes: &[u8; FC_HEADER_LEN]) -> Result<(Self, usize), Reject> {
        let layout: &Layout = zerocopy::transmute_ref!(bytes);
        if layout.df_ctl != 0 {
            return Err(Reject::OptionalHeaders);
        }
        let kind = u16::from_be_bytes([layout.r_ctl, layout.kind]);
        let kind = Kind::from_wire(kind).ok_or(Reject::Kind)?;
        let [a, b, c] = layout.f_ctl;
        let header = Self {
            kind,
            d_id: layout.d_id,
            s_id: layout.s_id,
            f_ctl: FCtl::from_wire(u32::from_be_bytes([0, a, b, c])),
            seq_id: layout.seq_id,
            seq_cnt: layout.seq_cnt.get(),
            ox_id: Xid(layout.ox_id.get()),
            rx_id: Xid(layout.rx_id.get()),
            parameter: layout.parameter.get(),
        };
        Ok((header, usize::from(c & 3)))
    }

    /// The header's bytes in front of a payload of `payload_len` bytes, without its fill.
    pub fn to_bytes(&self, payload_len: usize) -> [u8; FC_HEADER_LEN] {
        let [r_ctl, kind] = self.kind.to_wire().to_be_bytes();
        let layout = Layout {
            r_ctl,
            d_id: self.d_id,
            cs_ctl: 0,
            s_id: self.s_id,
            kind,
            f_ctl: f_ctl_bytes(self.f_ctl, payload_len),
            seq_id: self.seq_id,
            df_ctl: 0,
            seq_cnt: self.seq_cnt.into(),
            ox_id: self.ox_id.0.into(),
            rx_id: self.rx_id.0.into(),
            parameter: self.parameter.into(),
        };
        zerocopy::transmute!(layout)
    }
}
