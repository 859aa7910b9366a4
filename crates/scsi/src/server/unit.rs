//! A logical unit: its properties, its answers about them, and the checks of its ranges.

use tyche_geometry::Geometry;
use uuid::Uuid;

use super::nexus::NexusId;
use super::{TRANSFER_LEN_MAX, UNMAP_DESCRIPTORS_MAX, WRITE_ZEROES_LEN_MAX};
use crate::capacity::Capacity;
use crate::cdb::Range;
use crate::inquiry::Inquiry;
use crate::label::Label;
use crate::mode::Mode;
use crate::refusal::Refusal;
use crate::unmap::UnmapLimits;
use crate::vpd::{
    self, Characteristics, Generation, Identity, Limits, Pages, Provisioning, Serial, T10_VENDOR,
    TargetPort,
};

/// A disk that a target exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its properties.
    pub geometry: Geometry,
    /// Its identity, by which both ends name it.
    pub uuid: Uuid,
    /// Several initiators may write to it.
    pub shared: bool,
    /// The generation that initiators are told, if they are: completed writes survive within one.
    pub generation: Option<Uuid>,
}

/// The product of our disks.
const PRODUCT: &str = "NETWORK DISK";
/// The revision of the product.
const REVISION: &str = "1";

/// The INQUIRY data of our disks.
pub(super) fn inquiry() -> Inquiry {
    Inquiry::disk(T10_VENDOR, PRODUCT, REVISION)
}

impl Unit {
    /// The number of blocks.
    fn blocks(&self) -> u64 {
        self.geometry.size / u64::from(self.geometry.block_size)
    }

    /// The blocks that are that many bytes.
    fn blocks_of(&self, bytes: u32) -> u32 {
        bytes / self.geometry.block_size
    }

    pub(super) fn check_medium(&self) -> Result<(), Refusal> {
        if self.blocks() == 0 { Err(Refusal::NoMedium) } else { Ok(()) }
    }

    /// Checks that a range of any length ends with the disk, or before.
    pub(super) fn check_end(&self, range: Range) -> Result<(), Refusal> {
        let end = range.lba.checked_add(range.blocks.into());
        if end.is_none_or(|end| end > self.blocks()) { Err(Refusal::OutOfRange) } else { Ok(()) }
    }

    /// The bytes of a range of at most `len_max`: offset and length.
    pub(super) fn check(&self, range: Range, len_max: u32) -> Result<(u64, u32), Refusal> {
        self.check_end(range)?;
        let Range { form, lba, blocks } = range;
        if blocks > self.blocks_of(len_max) {
            return Err(Refusal::CdbField(form.blocks_at()));
        }
        Ok((lba * u64::from(self.geometry.block_size), blocks * self.geometry.block_size))
    }

    pub(super) fn capacity(&self) -> Capacity {
        Capacity {
            last: self.blocks().saturating_sub(1),
            block_len: self.geometry.block_size,
            provisioned: self.geometry.discard,
            reads_zeroes: false,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        Mode {
            read_only: self.geometry.read_only,
            fua: true,
            write_cache: Some(self.geometry.write_cache),
        }
    }

    pub(super) fn unmap_limits(&self) -> UnmapLimits {
        UnmapLimits {
            disk_blocks: self.blocks(),
            descriptors_max: UNMAP_DESCRIPTORS_MAX,
            blocks_max: self.blocks_of(WRITE_ZEROES_LEN_MAX).into(),
        }
    }

    /// Writes a page of vital product data, as much of it as fits; returns how much.
    pub(super) fn emit_page(
        &self,
        page: u8,
        port: TargetPort,
        out: &mut [u8],
    ) -> Result<usize, Refusal> {
        let discard = self.geometry.discard;
        Ok(match page {
            vpd::SUPPORTED => {
                let pages = [
                    vpd::SUPPORTED,
                    vpd::SERIAL,
                    vpd::IDENTIFICATION,
                    vpd::LIMITS,
                    vpd::CHARACTERISTICS,
                    vpd::PROVISIONING,
                ];
                let generation = self.generation.map(|_| vpd::GENERATION);
                let pages = pages.into_iter().chain(generation);
                pages.fold(Pages::default(), Pages::with).emit(out)
            }
            vpd::SERIAL => {
                let mut text = [0; 32];
                let text = self.uuid.simple().encode_lower(&mut text);
                Serial(Label::from_field(text.as_bytes())).emit(out)
            }
            vpd::IDENTIFICATION => Identity::emit(self.uuid, port, out),
            vpd::LIMITS => self.limits().emit(out),
            vpd::CHARACTERISTICS => {
                Characteristics { rotational: Some(self.geometry.rotational) }.emit(out)
            }
            vpd::PROVISIONING => {
                let unmap = discard;
                let page =
                    Provisioning { unmap, write_same: unmap, reads_zeroes: false, thin: unmap };
                page.emit(out)
            }
            vpd::GENERATION => Generation(self.generation.ok_or(Refusal::CdbField(2))?).emit(out),
            _ => return Err(Refusal::CdbField(2)),
        })
    }

    fn limits(&self) -> Limits {
        let discard = self.geometry.discard;
        let long = self.blocks_of(WRITE_ZEROES_LEN_MAX);
        Limits {
            no_zero_write_same: true,
            granularity: self.blocks_of(4096) as u16,
            transfer_max: self.blocks_of(TRANSFER_LEN_MAX),
            transfer_optimal: self.blocks_of(TRANSFER_LEN_MAX),
            unmap_blocks_max: if discard { long } else { 0 },
            unmap_descriptors_max: if discard { UNMAP_DESCRIPTORS_MAX as u32 } else { 0 },
            unmap_granularity: if discard { self.blocks_of(4096) } else { 0 },
            unmap_alignment: None,
            write_same_max: long.into(),
        }
    }
}

/// A logical unit, and the initiators that have a right to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) unit: Unit,
    /// The initiator with the right to write, by its last write. A shared disk has no such right.
    pub(super) writer: Option<NexusId>,
    /// The initiator that holds the RESERVE(6).
    pub(super) reserved: Option<NexusId>,
}

impl Slot {
    pub(super) fn new(unit: Unit) -> Self {
        Self { unit, writer: None, reserved: None }
    }

    /// Takes all rights from an initiator.
    pub(super) fn release(&mut self, nexus: NexusId) {
        self.writer = self.writer.filter(|writer| *writer != nexus);
        self.reserved = self.reserved.filter(|holder| *holder != nexus);
    }
}
