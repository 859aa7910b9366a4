//! The SCSI layer: requests become commands, which wait in one queue for all behind a lock; and the
//! ends of commands.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_block::{Completion, Errno, Extent, Operation, Sink};
use tyche_fcoe::scsi::initiator::{Data, Disk, Request, Translation, Verdict, classify};

/// Bytes of sense data that are kept.
const SENSE_LEN_MAX: usize = 96;

/// A command on its way through the layers.
pub(super) struct ScsiCommand {
    pub(super) request: Request,
    pub(super) buffer: Option<Extent>,
    pub(super) status: u8,
    pub(super) sense: Vec<u8>,
    /// Bytes that have been moved.
    pub(super) moved: u32,
    owner: Owner,
}

/// The recipient of a command's end.
enum Owner {
    Request { operation: Operation, token: u64, sink: Arc<dyn Sink> },
    Question(SyncSender<Box<ScsiCommand>>),
}

impl ScsiCommand {
    /// The command of a request of the block layer.
    ///
    /// # Errors
    /// The request, as it is completed: it has no command, or is longer than one.
    pub(super) fn new(
        disk: &Disk,
        it: tyche_block::Request,
        token: u64,
        sink: &Arc<dyn Sink>,
    ) -> Result<Box<Self>, Completion> {
        let result = match disk.request(it.operation, it.offset, it.len) {
            Ok(Translation::Command(next)) if next.covers == it.len => {
                let sink = Arc::clone(sink);
                let owner = Owner::Request { operation: it.operation, token, sink };
                return Ok(Self::boxed(next.request, it.buffer, owner));
            }
            Ok(Translation::Command(_)) => Err(Errno::INVAL),
            Ok(Translation::Nothing) => Ok(()),
            Err(failure) => Err(Errno(failure.errno())),
        };
        Err(Completion { token, result, buffer: it.buffer })
    }

    /// A question about the disk, whose end goes to `to`.
    pub(super) fn question(
        request: Request,
        buffer: Option<Extent>,
        to: SyncSender<Box<ScsiCommand>>,
    ) -> Box<Self> {
        Self::boxed(request, buffer, Owner::Question(to))
    }

    fn boxed(request: Request, buffer: Option<Extent>, owner: Owner) -> Box<Self> {
        let sense = Vec::with_capacity(SENSE_LEN_MAX);
        Box::new(Self { request, buffer, status: 0, sense, moved: 0, owner })
    }

    /// Keeps sense data.
    pub(super) fn set_sense(&mut self, sense: &[u8]) {
        self.sense.extend_from_slice(&sense[..sense.len().min(SENSE_LEN_MAX)]);
    }

    /// Answers the request, or the question.
    pub(super) fn complete(self: Box<Self>) {
        match &self.owner {
            Owner::Question(to) => {
                let to = to.clone();
                // The asker may have given up.
                let _ = to.send(self);
            }
            Owner::Request { .. } => self.complete_request(),
        }
    }

    fn complete_request(self) {
        let Self { request, buffer, status, sense, moved, owner } = self;
        let Owner::Request { operation, token, sink } = owner else { return };
        let is_whole = request.data == Data::None || moved == request.data.len();
        let result = match classify(status, &sense, Some(operation)) {
            Verdict::Done if is_whole => Ok(()),
            // There is no recovery here.
            _ => Err(Errno::IO),
        };
        sink.complete(Completion { token, result, buffer });
    }
}

struct Queue {
    waiting: VecDeque<Box<ScsiCommand>>,
    busy: usize,
}

/// The queue of a host adapter.
pub(super) struct RequestQueue {
    queue: Mutex<Queue>,
    depth: usize,
}

impl RequestQueue {
    /// A queue of which so many commands are at the target at a time.
    pub(super) fn new(depth: usize) -> Self {
        let waiting = VecDeque::with_capacity(depth);
        Self { queue: Mutex::new(Queue { waiting, busy: 0 }), depth }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, command: Box<ScsiCommand>) {
        self.queue().waiting.push_back(command);
    }

    /// The next command for the layer below, if there is room.
    pub(super) fn dispatch(&self) -> Option<Box<ScsiCommand>> {
        let mut queue = self.queue();
        if queue.busy == self.depth {
            return None;
        }
        let command = queue.waiting.pop_front()?;
        queue.busy += 1;
        Some(command)
    }

    /// A command has ended.
    pub(super) fn ended(&self) {
        self.queue().busy -= 1;
    }
}
