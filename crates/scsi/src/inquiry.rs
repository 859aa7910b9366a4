//! Standard INQUIRY data: the kind of device, its vendor and product (SPC-4, 6.4.2).

use crate::bytes::{Writer, array_at};
use crate::label::Label;
use crate::malformed::Malformed;

/// Bytes of our INQUIRY data: to the fourth version descriptor.
pub(crate) const INQUIRY_LEN: usize = 66;

/// The device type of disks: direct access block device.
pub(crate) const DISK: u8 = 0x00;
/// The device type where there is no logical unit.
pub(crate) const NO_DEVICE: u8 = 0x1f;
/// The peripheral qualifier of a logical unit that is there.
const CONNECTED: u8 = 0b000;
/// The peripheral qualifier of a number at which the target can't have a logical unit.
const INCAPABLE: u8 = 0b011;
/// SPC-4.
const VERSION: u8 = 6;
/// LUNs have the forms of SAM (HISUP), the data have the format of SPC.
const FORMAT: u8 = 0x12;
/// Commands are queued (CMDQUE).
const QUEUES: u8 = 0x02;
/// The standards that hold, without their revisions: SAM-5, FCP-4, SPC-4, SBC-3.
const STANDARDS: [u16; 4] = [0x00a0, 0x0a40, 0x0460, 0x04c0];

/// Standard INQUIRY data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// Whether a logical unit is there, three bits: 0 if it is, 3 if it can't be.
    pub qualifier: u8,
    /// The device type, five bits.
    pub device_type: u8,
    /// The version of SPC: 5 is SPC-3, 6 is SPC-4.
    pub version: u8,
    /// The vendor.
    pub vendor: Label<8>,
    /// The product.
    pub product: Label<16>,
    /// The revision of the product.
    pub revision: Label<4>,
}

impl Inquiry {
    /// The data of a disk.
    pub fn disk(vendor: &str, product: &str, revision: &str) -> Self {
        Self {
            qualifier: CONNECTED,
            device_type: DISK,
            version: VERSION,
            vendor: Label::from_field(vendor.as_bytes()),
            product: Label::from_field(product.as_bytes()),
            revision: Label::from_field(revision.as_bytes()),
        }
    }

    /// INQUIRY data of a number without a logical unit, with the same texts.
    #[must_use]
    pub fn absent(self) -> Self {
        Self { qualifier: INCAPABLE, device_type: NO_DEVICE, ..self }
    }

    /// Whether there is a disk.
    pub fn is_disk(&self) -> bool {
        self.qualifier == CONNECTED && self.device_type == DISK
    }

    /// Writes the data, as much of them as fits; returns how much.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut writer = Writer::new(out);
        writer.u8(self.qualifier << 5 | self.device_type & 0x1f).u8(0).u8(self.version);
        writer.u8(FORMAT).u8(INQUIRY_LEN as u8 - 5).zeroes(2).u8(QUEUES);
        writer.bytes(self.vendor.field()).bytes(self.product.field());
        writer.bytes(self.revision.field()).zeroes(22);
        for standard in STANDARDS {
            writer.u16(standard);
        }
        writer.kept()
    }

    /// Reads the data. Texts that the answer does not have are empty.
    ///
    /// # Errors
    /// If they end before the version, or have another format than that of SPC.
    pub fn parse(answer: &[u8]) -> Result<Self, Malformed> {
        let [kind, _, version, format] = array_at(answer, 0).ok_or(Malformed::Short)?;
        // 1 is that of the first SCSI, which has no texts. 2 is all others.
        if format & 0xf != 2 {
            return Err(Malformed::Value);
        }
        let text =
            |begin: usize, end: usize| answer.get(begin..end.min(answer.len())).unwrap_or_default();
        Ok(Self {
            qualifier: kind >> 5,
            device_type: kind & 0x1f,
            version,
            vendor: Label::from_field(text(8, 16)),
            product: Label::from_field(text(16, 32)),
            revision: Label::from_field(text(32, 36)),
        })
    }
}
