//! The owners and the data of the commands in progress.

use tyche_fc::Part;
use tyche_scsi::UNMAP_ONE_LEN;

use super::question::ANSWER_LEN;
use super::requests::Requests;

/// The block of a WRITE SAME.
static ZEROES: [u8; 4096] = [0; 4096];

/// The purpose of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// There is no command.
    #[default]
    Nobody,
    /// It is about the target, or the properties of the disk.
    Question,
    /// It is for the request of this number.
    Request(u16),
}

/// The place of a command's data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum DataPlace {
    /// It has none.
    #[default]
    None,
    /// In the answer to a question.
    Answer,
    /// In the buffer of its request, from this byte on.
    Buffer(u32),
    /// Here: the parameter list of an UNMAP.
    List([u8; UNMAP_ONE_LEN]),
    /// Zeroes.
    Zeroes,
}

/// The table of commands in progress, by the number that the lane gives them: the request that each
/// is for, and where its data lie. There is room for one answer, because questions come one at a
/// time.
pub(super) struct Commands {
    commands: Box<[(Owner, DataPlace)]>,
    /// The answer to a question.
    answer: Box<[u8; ANSWER_LEN]>,
}

impl Commands {
    /// Room for commands with numbers up to `max`.
    pub(super) fn new(max: usize) -> Self {
        Self { commands: vec![Default::default(); max].into(), answer: Box::new([0; ANSWER_LEN]) }
    }

    /// Notes a command.
    pub(super) fn set(&mut self, number: u16, owner: Owner, place: DataPlace) {
        self.commands[usize::from(number)] = (owner, place);
    }

    /// Forgets a command; returns its owner.
    pub(super) fn take(&mut self, number: u16) -> Owner {
        std::mem::take(&mut self.commands[usize::from(number)]).0
    }

    /// The first bytes of the answer to a question.
    pub(super) fn answer(&self, len: u32) -> &[u8] {
        &self.answer[..self.answer.len().min(len as usize)]
    }

    /// Copies data of a read to their place.
    pub(super) fn place(&mut self, requests: &mut Requests, at: (u16, u32), data: &[u8]) {
        let (number, offset) = (usize::from(at.0), at.1 as usize);
        let room = match self.commands[number] {
            (Owner::Question, DataPlace::Answer) => self.answer.get_mut(offset..),
            (Owner::Request(request), DataPlace::Buffer(start)) => {
                let buffer = requests.get_mut(request).job.request.buffer.as_mut();
                buffer.and_then(|buffer| buffer.get_mut(start as usize + offset..))
            }
            _ => None,
        };
        // The lane keeps data within those of the command.
        let room = room.and_then(|room| room.get_mut(..data.len()));
        room.expect("data have a place").copy_from_slice(data);
    }

    /// The data of a frame.
    pub(super) fn part<'d>(&'d self, requests: &'d Requests, part: &Part) -> &'d [u8] {
        let (start, source) = match &self.commands[usize::from(part.exchange)] {
            (Owner::Request(request), DataPlace::Buffer(start)) => {
                (*start, requests.get(*request).job.request.buffer.as_deref())
            }
            (_, DataPlace::List(list)) => (0, Some(list.as_slice())),
            (_, DataPlace::Zeroes) => (0, Some(ZEROES.as_slice())),
            _ => (0, None),
        };
        let source = source.expect("a write has data");
        &source[(start + part.offset) as usize..][..part.len as usize]
    }
}
