//! The properties of one logical unit, asked for one after the other.
//!
//! ```text
//! INQUIRY → VPD 00 → of 83, 80, B0, B1, B2, and C0 of ours, those that 00 names
//!         → TEST UNIT READY
//!         → READ CAPACITY(16), else (10) → MODE SENSE(10), else (6), of the caching page
//!         → REPORT SUPPORTED OPERATION CODES, of WRITE SAME(16)
//! ```
//!
//! INQUIRY, readiness and size are needed. All else may be refused or wrong: then the disk does not
//! have that property. A disk that does not say whether it has a cache is taken to have one, so
//! that flushes reach it.

use core::fmt;

use tyche_geometry::Geometry;
use uuid::Uuid;

use super::disk::Disk;
use super::verdict::{Verdict, classify};
use super::{CommandAnswer, Data, Request};
use crate::capacity::{CAPACITY_10_LEN, CAPACITY_16_LEN, Capacity};
use crate::cdb::{Command, Form, ModeSense, OpcodeQuery, PageControl, opcode};
use crate::inquiry::Inquiry;
use crate::malformed::Malformed;
use crate::mode::{CACHING, Mode};
use crate::opcodes::Support;
use crate::operation::Failure;
use crate::vpd::{
    self, Characteristics, Designators, Generation, Identity, Limits, Pages, Provisioning, Serial,
    T10_VENDOR,
};

/// Retries at once of a question. An initiator that logs in gets one attention for each thing that
/// has happened.
const RETRIES_MAX: u8 = 10;
/// Retries after a pause, of all questions together.
const PAUSES_MAX: u8 = 60;
/// Bytes of an answer that are asked for: enough for all but long lists of names.
const ALLOCATION: u8 = 252;
/// Bytes that are asked for of the page of names.
const NAMES_ALLOCATION: u16 = 2048;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is a command to send.
    Next,
    /// There is a command to send after a pause, of about a second.
    Later,
    /// All is known.
    Done,
    /// The logical unit can't be used.
    Failed(DiscoveryError),
}

/// The reason why a logical unit can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryError {
    /// The target refuses a command that is needed.
    Refused(Failure),
    /// The target did not become ready, or not for long enough to answer.
    NotReady,
    /// The answer to a command that is needed is wrong.
    Malformed(Malformed),
    /// There is no logical unit.
    Absent,
    /// The logical unit is no disk, but of this type.
    NotADisk(u8),
    /// Blocks have another length than 512 or 4096 bytes: this one.
    BlockLen(u32),
    /// The size in bytes does not fit in 64 bits, or is not known to the commands of the target.
    Size,
}

impl fmt::Display for DiscoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(failure) => write!(f, "the target refuses: {failure:?}"),
            Self::NotReady => write!(f, "the logical unit does not become ready"),
            Self::Malformed(fault) => fault.fmt(f),
            Self::Absent => write!(f, "there is no logical unit of this number"),
            Self::NotADisk(kind) => write!(f, "the logical unit is no disk: type {kind:#04x}"),
            Self::BlockLen(len) => {
                write!(f, "blocks of {len} bytes; only 512 and 4096 can be used")
            }
            Self::Size => write!(f, "the size is too large"),
        }
    }
}

impl core::error::Error for DiscoveryError {}

/// The attempts of the present question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    retries: u8,
    pauses: u8,
}

impl Attempts {
    /// The data of a good answer; else what to do.
    pub(super) fn take<'a>(&mut self, answer: &CommandAnswer<'a>) -> Result<&'a [u8], Progress> {
        match classify(answer.status, answer.sense, None) {
            Verdict::Done => {
                self.retries = 0;
                Ok(answer.data)
            }
            Verdict::RetryNow | Verdict::Attention(_) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                Err(Progress::Next)
            }
            Verdict::RetryLater { .. } if self.pauses < PAUSES_MAX => {
                self.pauses += 1;
                Err(Progress::Later)
            }
            Verdict::Failed(failure) => {
                self.retries = 0;
                Err(Progress::Failed(DiscoveryError::Refused(failure)))
            }
            _ => Err(Progress::Failed(DiscoveryError::NotReady)),
        }
    }
}

/// A command that asks for so many bytes.
pub(super) fn question(command: Command, len: u32) -> Request {
    let cdb = command.emit().expect("the form and lengths of questions fit in their CDBs");
    Request { cdb, data: if len == 0 { Data::None } else { Data::In(len) } }
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Inquiry,
    Pages,
    Page(u8),
    Ready,
    Capacity16,
    Capacity10,
    Mode(Form),
    WriteSame,
}

/// The pages that are of use, in the order in which they are asked for.
const PAGES: [u8; 6] = [
    vpd::IDENTIFICATION,
    vpd::SERIAL,
    vpd::LIMITS,
    vpd::CHARACTERISTICS,
    vpd::PROVISIONING,
    vpd::GENERATION,
];

/// The search for the properties of one logical unit.
#[derive(Clone, Debug)]
pub struct Discovery {
    question: Option<Question>,
    pages: Pages,
    attempts: Attempts,
    disk: Disk,
    /// READ CAPACITY says that blocks can be deallocated, and that they then read as zeroes.
    provisioned: (bool, bool),
    provisioning: Provisioning,
    limits: Limits,
}

impl Default for Discovery {
    fn default() -> Self {
        Self {
            question: Some(Question::Inquiry),
            pages: Pages::default(),
            attempts: Attempts::default(),
            disk: Disk::new(Geometry::UNKNOWN),
            provisioned: (false, false),
            provisioning: Provisioning::default(),
            limits: Limits::default(),
        }
    }
}

impl Discovery {
    /// The command to send; `None` at the end.
    pub fn request(&self) -> Option<Request> {
        let len = u32::from(ALLOCATION);
        Some(match self.question? {
            Question::Inquiry => inquiry(None, ALLOCATION.into()),
            Question::Pages => inquiry(Some(vpd::SUPPORTED), ALLOCATION.into()),
            Question::Page(page) => {
                let is_long = page == vpd::IDENTIFICATION;
                inquiry(Some(page), if is_long { NAMES_ALLOCATION } else { ALLOCATION.into() })
            }
            Question::Ready => question(Command::TestUnitReady, 0),
            Question::Capacity16 => {
                let allocation = CAPACITY_16_LEN as u32;
                question(Command::ReadCapacity16 { allocation }, allocation)
            }
            Question::Capacity10 => question(Command::ReadCapacity10, CAPACITY_10_LEN as u32),
            Question::Mode(form) => {
                let control = PageControl::Current;
                let query =
                    ModeSense { form, no_descriptors: true, control, page: CACHING, subpage: 0 };
                question(Command::ModeSense { query, allocation: ALLOCATION.into() }, len)
            }
            Question::WriteSame => {
                let query = OpcodeQuery::Opcode(opcode::WRITE_SAME_16);
                question(Command::ReportOpcodes { query, timeouts: false, allocation: len }, len)
            }
        })
    }

    /// Takes the answer to the last [`Discovery::request`].
    pub fn handle(&mut self, answer: CommandAnswer<'_>) -> Progress {
        let Some(question) = self.question else { return Progress::Done };
        let next = match self.attempts.take(&answer) {
            Ok(data) => self.learn(question, data),
            Err(Progress::Failed(DiscoveryError::Refused(failure))) => {
                self.do_without(question, failure)
            }
            Err(Progress::Failed(error)) => Err(error),
            Err(progress) => return progress,
        };
        self.question = next.unwrap_or(None);
        match next {
            Ok(Some(_)) => Progress::Next,
            Ok(None) => {
                self.conclude();
                Progress::Done
            }
            Err(error) => {
                self.disk = Disk::new(Geometry::UNKNOWN);
                Progress::Failed(error)
            }
        }
    }

    /// The generation of a disk of ours, as soon as it has said so.
    pub fn generation(&self) -> Option<Uuid> {
        self.disk.generation
    }

    /// The disk, when all is known.
    pub fn disk(&self) -> Option<&Disk> {
        // Only a disk that has been found has blocks.
        (self.question.is_none() && self.disk.geometry.size > 0).then_some(&self.disk)
    }

    /// Learns from an answer; returns the next question. Of the answers that are not needed those
    /// that are malformed count as none.
    fn learn(
        &mut self,
        question: Question,
        data: &[u8],
    ) -> Result<Option<Question>, DiscoveryError> {
        let malformed = DiscoveryError::Malformed;
        Ok(match question {
            Question::Inquiry => {
                let inquiry = Inquiry::parse(data).map_err(malformed)?;
                if inquiry.qualifier != 0 {
                    return Err(DiscoveryError::Absent);
                }
                if !inquiry.is_disk() {
                    return Err(DiscoveryError::NotADisk(inquiry.device_type));
                }
                let Inquiry { vendor, product, revision, .. } = inquiry;
                self.disk = Disk { vendor, product, revision, ..self.disk };
                Some(Question::Pages)
            }
            Question::Pages | Question::Page(_) if is_absent(data) => {
                return Err(DiscoveryError::Absent);
            }
            Question::Pages => {
                self.pages = Pages::parse(data).unwrap_or_default();
                Some(self.page_after(None))
            }
            Question::Page(page) => {
                self.learn_page(page, data);
                Some(self.page_after(Some(page)))
            }
            Question::Ready => Some(Question::Capacity16),
            Question::Capacity16 => {
                self.learn_capacity(Capacity::parse_16(data).map_err(malformed)?)?;
                Some(Question::Mode(Form::Ten))
            }
            Question::Capacity10 => {
                let capacity = Capacity::parse_10(data).map_err(malformed)?;
                if capacity.last == u64::from(u32::MAX) {
                    return Err(DiscoveryError::Size);
                }
                self.disk.form = Form::Ten;
                self.learn_capacity(capacity)?;
                Some(Question::Mode(Form::Ten))
            }
            Question::Mode(form) => {
                self.learn_mode(Mode::parse(form, data).unwrap_or_default());
                Some(Question::WriteSame)
            }
            Question::WriteSame => {
                self.learn_write_same(Support::parse(data).unwrap_or(Support::Unknown));
                None
            }
        })
    }

    /// Goes on after a question that the target refuses to answer.
    fn do_without(
        &mut self,
        question: Question,
        failure: Failure,
    ) -> Result<Option<Question>, DiscoveryError> {
        if failure == Failure::Gone {
            // It was taken away meanwhile, which says nothing of its properties.
            return Err(DiscoveryError::Refused(failure));
        }
        let is_unknown = matches!(failure, Failure::NotSupported | Failure::Invalid);
        Ok(match question {
            Question::Capacity16 if is_unknown => Some(Question::Capacity10),
            Question::Inquiry | Question::Ready | Question::Capacity16 | Question::Capacity10 => {
                return Err(DiscoveryError::Refused(failure));
            }
            Question::Pages => Some(Question::Ready),
            Question::Page(page) => Some(self.page_after(Some(page))),
            Question::Mode(Form::Ten) if is_unknown => Some(Question::Mode(Form::Six)),
            Question::Mode(_) => {
                self.learn_mode(Mode::default());
                Some(Question::WriteSame)
            }
            Question::WriteSame => None,
        })
    }

    /// The question for the next page that the target has, or for what comes after the pages.
    fn page_after(&self, page: Option<u8>) -> Question {
        let asked = PAGES.iter().position(|it| Some(*it) == page).map_or(0, |at| at + 1);
        let is_ours = self.disk.vendor.as_str() == T10_VENDOR;
        let is_known = |page: u8| page != vpd::GENERATION || is_ours;
        let next = PAGES[asked..].iter().find(|it| self.pages.has(**it) && is_known(**it));
        next.map_or(Question::Ready, |page| Question::Page(*page))
    }

    fn learn_page(&mut self, page: u8, data: &[u8]) {
        match page {
            vpd::IDENTIFICATION => {
                self.disk.identity = Designators::parse(data).ok().and_then(Identity::best);
            }
            vpd::SERIAL => {
                if let Ok(Serial(serial)) = Serial::parse(data) {
                    self.disk.serial = serial;
                }
            }
            vpd::LIMITS => self.limits = Limits::parse(data).unwrap_or_default(),
            vpd::CHARACTERISTICS => {
                let page = Characteristics::parse(data).unwrap_or_default();
                self.disk.geometry.rotational = page.rotational == Some(true);
            }
            vpd::PROVISIONING => {
                self.provisioning = Provisioning::parse(data).unwrap_or_default();
            }
            vpd::GENERATION => {
                self.disk.generation = Generation::parse(data).ok().map(|page| page.0);
            }
            _ => {}
        }
    }

    fn learn_capacity(&mut self, capacity: Capacity) -> Result<(), DiscoveryError> {
        let Capacity { block_len, provisioned, reads_zeroes, .. } = capacity;
        if !Geometry::is_block_size(block_len) {
            return Err(DiscoveryError::BlockLen(block_len));
        }
        self.disk.geometry.size = capacity.bytes().ok_or(DiscoveryError::Size)?;
        self.disk.geometry.block_size = block_len;
        self.provisioned = (provisioned, reads_zeroes);
        Ok(())
    }

    fn learn_mode(&mut self, mode: Mode) {
        self.disk.geometry.read_only = mode.read_only;
        self.disk.geometry.write_cache = mode.write_cache.unwrap_or(true);
        self.disk.fua = mode.fua;
    }

    fn learn_write_same(&mut self, support: Support<'_>) {
        self.disk.write_same = match support {
            Support::Unknown => None,
            Support::No => Some(false),
            Support::Yes(usage) => {
                self.disk.no_data = usage.get(1).is_some_and(|flags| flags & 1 != 0);
                Some(true)
            }
        };
    }

    /// Puts together what several answers say.
    fn conclude(&mut self) {
        let (can_unmap, reads_zeroes) = self.provisioned;
        let Provisioning { unmap, write_same, reads_zeroes: page_reads_zeroes, .. } =
            self.provisioning;
        self.disk.geometry.discard = can_unmap && unmap && self.limits.unmap_blocks_max > 0;
        self.disk.unmap_zeroes = can_unmap && write_same && (reads_zeroes || page_reads_zeroes);
        self.disk.transfer_max = self.limits.transfer_max;
        self.disk.write_same_max = self.limits.write_same_max;
        if self.disk.geometry.discard {
            self.disk.unmap_max = self.limits.unmap_blocks_max;
        }
    }
}

fn inquiry(page: Option<u8>, allocation: u16) -> Request {
    question(Command::Inquiry { page, allocation }, allocation.into())
}

/// Whether a page says that there is no logical unit, by the peripheral qualifier.
fn is_absent(page: &[u8]) -> bool {
    page.first().is_some_and(|kind| kind >> 5 != 0)
}
