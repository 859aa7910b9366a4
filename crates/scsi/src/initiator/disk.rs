//! A logical unit that has been found, and the commands that its operations are.

use tyche_geometry::{Geometry, Operation};
use uuid::Uuid;

use super::{Data, Request};
use crate::cdb::{Command, Form, Range};
use crate::label::Label;
use crate::operation::Failure;
use crate::unmap::{UNMAP_ONE_LEN, emit_unmap};
use crate::vpd::Identity;

/// The most blocks of a command in the form of 10 bytes.
const TEN_MAX: u32 = u16::MAX as u32;
/// The most blocks of a WRITE SAME of a target that states none.
const WRITE_SAME_MAX: u32 = 0x7f_ffff;

/// A disk at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its properties.
    pub geometry: Geometry,
    /// Its name, if it has one.
    pub identity: Option<Identity>,
    /// Its generation, if it is a disk of ours: completed writes survive within one.
    pub generation: Option<Uuid>,
    /// Its vendor.
    pub vendor: Label<8>,
    /// Its product.
    pub product: Label<16>,
    /// The revision of the product.
    pub revision: Label<4>,
    /// Its serial number, or nothing.
    pub serial: Label<64>,
    /// The form of reads, writes and flushes: of 16 bytes, or 10 for targets that don't know those.
    pub form: Form,
    /// Writes can ask for stable storage.
    pub fua: bool,
    /// The most blocks of a read or write; 0 if the target states none.
    pub transfer_max: u32,
    /// The most blocks of an UNMAP; 0 if there is none.
    pub unmap_max: u32,
    /// The most blocks of a WRITE SAME; 0 if the target states none.
    pub write_same_max: u64,
    /// WRITE SAME is supported; `None` until the first attempt shows it.
    pub write_same: Option<bool>,
    /// WRITE SAME needs no block.
    pub no_data: bool,
    /// WRITE SAME deallocates if it is asked to, and deallocated blocks read as zeroes.
    pub unmap_zeroes: bool,
}

/// The translation of an operation into commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation {
    /// There is nothing to do: a flush of a disk without a cache.
    Nothing,
    /// It begins with a command.
    Command(Next),
}

/// The first command of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The command.
    pub request: Request,
    /// Bytes of the range that the command is about. The rest of the operation needs more commands.
    pub covers: u32,
    /// The operation asks for stable storage, and the command does not: a flush must follow.
    pub flush: bool,
}

impl Disk {
    /// A disk of which nothing else is known.
    pub const fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            identity: None,
            generation: None,
            vendor: Label::EMPTY,
            product: Label::EMPTY,
            revision: Label::EMPTY,
            serial: Label::EMPTY,
            form: Form::Sixteen,
            fua: false,
            transfer_max: 0,
            unmap_max: 0,
            write_same_max: 0,
            write_same: None,
            no_data: false,
            unmap_zeroes: false,
        }
    }

    /// Whether data that an operation has written may be in a volatile cache.
    pub fn is_volatile(&self, operation: Operation) -> bool {
        let is_durable = self.fua && operation == Operation::Write { fua: true };
        self.geometry.write_cache && operation.modifies() && !is_durable
    }

    /// The first command of an operation on a range, in bytes; a flush has zero for both.
    ///
    /// # Errors
    /// As for requests of a block device: [`Failure::ReadOnly`], [`Failure::NoSpace`] for a
    /// modification past the end of the disk, [`Failure::NotSupported`] if the target has no such
    /// command, and [`Failure::Invalid`] for everything else.
    pub fn request(
        &self,
        operation: Operation,
        offset: u64,
        len: u32,
    ) -> Result<Translation, Failure> {
        let Geometry { block_size, write_cache, discard, .. } = self.geometry;
        self.geometry.check(operation, offset, len)?;
        let max = match operation {
            Operation::Flush if !write_cache => return Ok(Translation::Nothing),
            Operation::Flush => 0,
            Operation::Discard if !discard || self.unmap_max == 0 => {
                return Err(Failure::NotSupported);
            }
            Operation::Discard => self.unmap_max,
            Operation::WriteZeroes { .. } if self.write_same == Some(false) => {
                return Err(Failure::NotSupported);
            }
            Operation::WriteZeroes { .. } => self.write_same_blocks(),
            // A user takes all for data.
            Operation::BlockStatus => return Err(Failure::NotSupported),
            _ => self.transfer_blocks(),
        };
        let (lba, blocks) = (offset / u64::from(block_size), (len / block_size).min(max));
        let covers = blocks * block_size;
        let (command, data) = self.command(operation, lba, blocks, covers);
        // WRITE SAME has no FUA.
        let flush = match operation {
            Operation::Write { fua } => fua && write_cache && !self.fua,
            Operation::WriteZeroes { fua, .. } => fua && write_cache,
            _ => false,
        };
        let cdb = command.emit().ok_or(Failure::Invalid)?;
        Ok(Translation::Command(Next { request: Request { cdb, data }, covers, flush }))
    }

    fn command(&self, operation: Operation, lba: u64, blocks: u32, covers: u32) -> (Command, Data) {
        let range = Range { form: self.form, lba, blocks };
        match operation {
            Operation::Read => (Command::Read { range, fua: false }, Data::In(covers)),
            Operation::BlockStatus => unreachable!("there is no command for it"),
            Operation::Write { fua } => {
                let fua = fua && self.fua && self.geometry.write_cache;
                (Command::Write { range, fua }, Data::Out(covers))
            }
            Operation::Discard => {
                let len = UNMAP_ONE_LEN as u16;
                (Command::Unmap { len }, Data::Unmap(emit_unmap(lba, blocks)))
            }
            Operation::WriteZeroes { may_unmap, .. } => {
                let (unmap, no_data) = (may_unmap && self.unmap_zeroes, self.no_data);
                let block = Data::Zeroes(self.geometry.block_size);
                let data = if no_data { Data::None } else { block };
                (Command::WriteSame { lba, blocks, unmap, no_data }, data)
            }
            Operation::Flush => {
                let range = Range { form: self.form, lba: 0, blocks: 0 };
                (Command::SynchronizeCache { range, immediate: false }, Data::None)
            }
        }
    }

    /// The most blocks of a read or write, at least one.
    fn transfer_blocks(&self) -> u32 {
        let of_form = if self.form == Form::Ten { TEN_MAX } else { u32::MAX };
        let stated = if self.transfer_max == 0 { u32::MAX } else { self.transfer_max };
        of_form.min(stated)
    }

    fn write_same_blocks(&self) -> u32 {
        match u32::try_from(self.write_same_max) {
            Ok(0) => WRITE_SAME_MAX,
            Ok(stated) => stated,
            Err(_) => u32::MAX,
        }
    }
}
