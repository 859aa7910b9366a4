//! FCP_RSP: the end of a command.
//!
//! ```text
//! off len field
//!   0   8 0
//!   8   2 status qualifier, or retry delay
//!  10   1 flags: 0x01 response valid, 0x02 sense valid, 0x04 over, 0x08 under, 0x10 confirm
//!  11   1 SCSI status
//!  12   4 residual
//!  16   4 bytes of sense data
//!  20   4 bytes of response information: 4 or 8
//!  24   n response information; its code at byte 3
//! 24+n  m sense data
//! ```
//!
//! The last twelve bytes of the first 24 may be left out by peers if no flag refers to them.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Reject;
use crate::bits::{bits, codes};
use crate::bytes::{Append, front};

codes! {
    /// The outcome of a task management function, or the reason why a command was not executed.
    ResponseCode(u8) {
        /// The function is done.
        Complete = 0;
        /// The length of the data is not FCP_DL.
        DataLengthInvalid = 1;
        /// Fields of FCP_CMND are invalid.
        FieldsInvalid = 2;
        /// Offset or length of the data is not that of FCP_XFER_RDY.
        DataMismatch = 3;
        /// The function is not supported.
        ManagementRejected = 4;
        /// The function has failed.
        ManagementFailed = 5;
        /// No such logical unit.
        LunInvalid = 9;
    }
}

bits! {
    /// Flags of FCP_RSP.
    ResponseFlags(u8) {
        /// There is response information.
        RSP_LEN_VALID = 0x01;
        /// There are sense data.
        SNS_LEN_VALID = 0x02;
        /// There were more data than FCP_DL.
        OVER = 0x04;
        /// There were fewer data than FCP_DL.
        UNDER = 0x08;
        /// The initiator is to confirm with FCP_CONF.
        CONF_REQ = 0x10;
    }
}

/// The difference between FCP_DL and the data that there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// There is none.
    None,
    /// There were more, by this number of bytes.
    Over(u32),
    /// There were fewer, by this number of bytes.
    Under(u32),
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The SCSI status (SAM-5): 0 good.
    pub status: u8,
    /// The status qualifier, such as the delay before a retry.
    pub qualifier: u16,
    /// The initiator is to confirm.
    pub confirm: bool,
    /// The difference between FCP_DL and the data that there were.
    pub residual: Residual,
    /// The code of the response information, known or not, if there is any.
    pub code: Option<u8>,
    /// Sense data; empty for none.
    pub sense: &'a [u8],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    _zero: U64,
    qualifier: U16,
    flags: u8,
    status: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Extension {
    residual: U32,
    sense_len: U32,
    information_len: U32,
}

/// Response information as it is sent.
const INFORMATION_LEN: usize = 8;
/// The offset of the code in response information.
const CODE_AT: usize = 3;

impl<'a> Response<'a> {
    /// Bytes of the unit without response information and sense data.
    pub const LEN_MIN: usize = size_of::<Layout>() + size_of::<Extension>();

    /// The response to a command that went well.
    pub const GOOD: Self = Self {
        status: 0,
        qualifier: 0,
        confirm: false,
        residual: Residual::None,
        code: None,
        sense: &[],
    };

    /// Parses a payload.
    ///
    /// # Errors
    /// `Length`; `Range` if there were both more and fewer data, or response information is of
    /// another length than 0, 4 or 8.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Reject> {
        let (layout, rest) = front::<Layout>(payload)?;
        let flags = ResponseFlags::from_wire(layout.flags);
        let is = |flag| flags.has(flag);
        let mut response = Self {
            status: layout.status,
            qualifier: layout.qualifier.get(),
            confirm: is(ResponseFlags::CONF_REQ),
            ..Self::GOOD
        };
        if flags == ResponseFlags::EMPTY || flags == ResponseFlags::CONF_REQ {
            return Ok(response);
        }
        let (extension, mut rest) = front::<Extension>(rest)?;
        let mut take = |is_valid: bool, len: U32| {
            let len = if is_valid { len.get() as usize } else { 0 };
            let (part, behind) = rest.split_at_checked(len).ok_or(Reject::Length)?;
            rest = behind;
            Ok(part)
        };
        let information = take(is(ResponseFlags::RSP_LEN_VALID), extension.information_len)?;
        response.sense = take(is(ResponseFlags::SNS_LEN_VALID), extension.sense_len)?;
        response.code = match information.len() {
            0 => None,
            4 | INFORMATION_LEN => Some(information[CODE_AT]),
            _ => return Err(Reject::Range),
        };
        response.residual = match (is(ResponseFlags::OVER), is(ResponseFlags::UNDER)) {
            (true, true) => return Err(Reject::Range),
            (true, false) => Residual::Over(extension.residual.get()),
            (false, true) => Residual::Under(extension.residual.get()),
            (false, false) => Residual::None,
        };
        Ok(response)
    }

    /// Writes the payload; returns its length.
    ///
    /// # Panics
    /// If the buffer is shorter than [`Response::LEN_MIN`], 8 bytes of response information, and
    /// the sense data.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut flags = ResponseFlags::EMPTY;
        let mut set = |flag, wanted| flags = if wanted { flags.with(flag) } else { flags };
        set(ResponseFlags::RSP_LEN_VALID, self.code.is_some());
        set(ResponseFlags::SNS_LEN_VALID, !self.sense.is_empty());
        set(ResponseFlags::CONF_REQ, self.confirm);
        let residual = match self.residual {
            Residual::None => 0,
            Residual::Over(bytes) => {
                set(ResponseFlags::OVER, true);
                bytes
            }
            Residual::Under(bytes) => {
                set(ResponseFlags::UNDER, true);
                bytes
            }
        };
        let sense_len = u32::try_from(self.sense.len()).expect("a frame's worth of sense data");
        let information_len = if self.code.is_some() { INFORMATION_LEN as u32 } else { 0 };
        let mut payload = Append::new(buffer);
        payload.put(&Layout {
            _zero: U64::ZERO,
            qualifier: self.qualifier.into(),
            flags: flags.to_wire(),
            status: self.status,
        });
        payload.put(&Extension {
            residual: residual.into(),
            sense_len: sense_len.into(),
            information_len: information_len.into(),
        });
        if let Some(code) = self.code {
            let mut information = [0; INFORMATION_LEN];
            information[CODE_AT] = code;
            payload.put(&information);
        }
        payload.put(self.sense).len()
    }
}
