//! The commands of requests: how they are issued, and what becomes of their ends.

use std::time::Duration;

use tyche_block::{Errno, Operation as BlockOperation};
use tyche_fc::initiator::{Command, CommandAnswer, Data, Failure, Refused};
use tyche_fc::wire::fcp::Residual;
use tyche_fc::{Rule, Rules};
use tyche_scsi::initiator::{self as scsi, Next, Translation, Verdict, classify};
use tyche_scsi::{Code, Failure as DiskFailure, Sense};
use tyche_time::Instant;

use super::commands::{DataPlace, Owner};
use super::lane::InitiatorLane;
use crate::losses::Flushed;

/// How often a command is sent again at once.
const RETRIES_MAX: u8 = 5;
/// The pause before a command is sent again if the target has no room for it, or is not ready.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The time after which a request that the target does not take has failed. If it is the way that
/// takes nothing, another login is tried after that time.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which one more command is tried with a target that had no room for more.
const GROW_EVERY: Duration = Duration::from_secs(1);

/// The loss that a failed flush tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LossReport {
    /// Nothing: it has failed for another reason.
    Nothing,
    /// Writes of this session are lost.
    Loss,
    /// A loss that counts already.
    Again,
}

/// The reason why a command was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hindrance {
    /// The target says so.
    Target,
    /// Frames were lost, or not answered.
    Way,
}

impl Hindrance {
    fn of(end: &Result<CommandAnswer, Failure>) -> Self {
        let code =
            |answer: &CommandAnswer| Sense::parse(&answer.sense).ok().map(|sense| sense.code);
        match end {
            // Our data were lost.
            Ok(answer) if code(answer) == Some(Code::DATA_PHASE_ERROR) => Self::Way,
            Ok(_) => Self::Target,
            Err(_) => Self::Way,
        }
    }
}

/// The next step of a request.
enum Step {
    /// A command.
    Command(Next),
    /// It is over.
    End(Result<(), Errno>),
}

impl<R: Rules> InitiatorLane<R> {
    /// Issues the commands of requests that can go on.
    pub(super) fn issue(&mut self) {
        while self.lane.commands() < self.room
            && let Some(number) = self.requests.next_ready()
        {
            match self.step(number) {
                Step::End(result) => self.requests.end(number, result),
                Step::Command(next) => {
                    if !self.send(number, &next) {
                        self.requests.resume_first(number);
                        return;
                    }
                }
            }
        }
    }

    /// The next step of a request.
    fn step(&mut self, number: u16) -> Step {
        let disk = self.disk.as_ref().expect("a disk that is ready is known");
        let operation = self.requests.get(number);
        let request = &operation.job.request;
        let (offset, left) = (request.offset + u64::from(operation.done), operation.left());
        let is_begun = operation.done > 0;
        let translated = if is_begun && left == 0 {
            // What is left is the flush.
            disk.request(BlockOperation::Flush, 0, 0)
        } else if is_begun {
            disk.request(request.operation, offset, left)
        } else {
            match request.check(&disk.geometry) {
                Ok(()) => disk.request(request.operation, offset, left),
                Err(errno) => return Step::End(Err(errno)),
            }
        };
        let is_flush = left == 0;
        if is_flush {
            let losses = self.handle.losses();
            let since = losses.begin_flush();
            if since.is_lost {
                losses.settle(&since);
                return Step::End(Err(Errno::IO));
            }
        }
        match translated {
            Ok(Translation::Nothing) => Step::End(Ok(())),
            Ok(Translation::Command(next)) => Step::Command(next),
            Err(failure) => Step::End(Err(Errno(failure.errno()))),
        }
    }

    /// Sends a command; false if there is no room for it now.
    fn send(&mut self, number: u16, next: &Next) -> bool {
        let Some(unit) = self.own_unit() else { return false };
        let operation = self.requests.get_mut(number);
        let (place, data) = match next.request.data {
            scsi::Data::None => (DataPlace::None, Data::None),
            scsi::Data::In(len) => (DataPlace::Buffer(operation.done), Data::In(len)),
            scsi::Data::Out(len) => (DataPlace::Buffer(operation.done), Data::Out(len)),
            scsi::Data::Unmap(list) => (DataPlace::List(list), Data::Out(list.len() as u32)),
            scsi::Data::Zeroes(len) => (DataPlace::Zeroes, Data::Out(len)),
        };
        let is_flush = operation.left() == 0;
        let losses = self.handle.losses();
        let since = if is_flush { losses.begin_flush() } else { losses.begin_write() };
        let modifies = operation.job.request.operation.modifies();
        let cdb = *next.request.cdb.padded();
        let command = Command { unit, cdb, data, modifies, hears_attentions: true };
        match self.lane.submit(&command) {
            Ok(exchange) => {
                operation.covers = next.covers;
                operation.since = since;
                operation.flush |= next.flush;
                self.commands.set(exchange, Owner::Request(number), place);
                true
            }
            Err(Refused::Full | Refused::LoggedOut) => false,
        }
    }

    /// Takes the end of a request's command.
    pub(super) fn handle_end(
        &mut self,
        now: Instant,
        number: u16,
        end: &Result<CommandAnswer, Failure>,
    ) {
        if self.is_over() {
            return self.requests.end(number, Err(Errno::IO));
        }
        let operation = self.requests.get(number).job.request.operation;
        let verdict = match end {
            Ok(answer) => match classify(answer.status, &answer.sense, Some(operation)) {
                // Fewer data than there are in the range.
                Verdict::Done if answer.residual != Residual::None => Verdict::RetryNow,
                verdict => verdict,
            },
            Err(Failure::Refused(_)) => Verdict::Failed(DiskFailure::Io),
            // It waits for the next login, however often that ends.
            Err(Failure::LoggedOut { .. }) => return self.requests.resume(number),
            Err(_) => Verdict::RetryNow,
        };
        match verdict {
            Verdict::Done => self.go_on(number, operation),
            Verdict::RetryNow => self.retry(now, number, Hindrance::of(end), None),
            Verdict::RetryLater { full } => {
                if full {
                    self.shrink(now);
                }
                self.retry(now, number, Hindrance::Target, Some(now + RETRY_PAUSE));
            }
            Verdict::Attention(attention) => {
                self.hear(attention);
                self.requests.resume(number);
            }
            Verdict::Failed(failure) if self.requests.get(number).left() == 0 => {
                self.fail_flush(now, number, (end, failure));
            }
            Verdict::Failed(failure) => {
                let is_zeroes = matches!(operation, BlockOperation::WriteZeroes { .. });
                if let Some(disk) = &mut self.disk
                    && is_zeroes
                    && failure == DiskFailure::NotSupported
                {
                    disk.write_same = Some(false);
                }
                self.requests.end(number, Err(Errno(failure.errno())));
            }
        }
    }

    /// Goes on with a request whose command is done.
    fn go_on(&mut self, number: u16, kind: BlockOperation) {
        let is_volatile = self.disk.as_ref().is_some_and(|disk| disk.is_volatile(kind));
        let operation = self.requests.get_mut(number);
        let was_flush = operation.left() == 0;
        operation.done += operation.covers;
        (operation.retries, operation.vain_since) = (0, None);
        let (losses, since) = (self.handle.losses(), operation.since);
        if was_flush {
            operation.flush = false;
            // A loss may have been told to another command while the flush was on its way.
            if losses.flushed(&since, true) != Flushed::Durable {
                losses.settle(&since);
                return self.requests.end(number, Err(Errno::IO));
            }
        } else if is_volatile {
            losses.written(self.handle.lane(), since);
        }
        let operation = self.requests.get(number);
        if operation.left() == 0 && !operation.flush {
            self.requests.end(number, Ok(()));
        } else {
            self.requests.resume_first(number);
        }
    }

    /// A flush has failed. What it covers is reported then, and not again. If there is nothing, it
    /// has not failed to do anything.
    fn fail_flush(
        &mut self,
        now: Instant,
        number: u16,
        (end, failure): (&Result<CommandAnswer, Failure>, DiskFailure),
    ) {
        let sense = end.as_ref().ok().and_then(|answer| Sense::parse(&answer.sense).ok());
        let generations = self.handle.generations();
        // Of a generation that was asked for, all that was in doubt may have been reported since.
        let is_settled =
            |generation| generations.is_now(generation) && !self.handle.losses().is_doubtful();
        let told = match sense.and_then(|sense| sense.generation) {
            // It may tell only one flush, whoever else has writes in its cache.
            _ if !generations.are_there() => LossReport::Loss,
            None => LossReport::Nothing,
            Some(generation) if !is_settled(generation) && generations.lost(generation) => {
                LossReport::Loss
            }
            Some(_) if self.lane.rules().keeps(Rule::TellOnce) => LossReport::Again,
            Some(_) => LossReport::Loss,
        };
        if told == LossReport::Loss {
            self.lose();
        }
        let operation = self.requests.get_mut(number);
        let (since, kind) = (operation.since, operation.job.request.operation);
        let losses = self.handle.losses();
        match losses.flushed(&since, false) {
            Flushed::Durable if self.lane.rules().keeps(Rule::SpareOthers) => {
                self.go_on(number, kind);
            }
            Flushed::Failed if told == LossReport::Again => {
                self.retry(now, number, Hindrance::Target, None);
            }
            _ => {
                losses.settle(&since);
                self.requests.end(number, Err(Errno(failure.errno())));
            }
        }
    }

    /// Sends the command of a request again, now or then. If that has been in vain for long, the
    /// request has failed, or another login is tried, as long as requests wait for a lost target.
    fn retry(&mut self, now: Instant, number: u16, why: Hindrance, at: Option<Instant>) {
        let limit = self.config.fast_io_fail_tmo.or(self.config.ctrl_loss_tmo);
        let operation = self.requests.get_mut(number);
        operation.retries = operation.retries.saturating_add(1);
        let vain_since = *operation.vain_since.get_or_insert(now);
        if operation.retries > RETRIES_MAX && now.since(vain_since) > PATIENCE {
            let is_given_up = limit.is_some_and(|limit| now.since(operation.begun) > limit);
            if why == Hindrance::Target || is_given_up {
                return self.requests.end(number, Err(Errno::IO));
            }
            (operation.retries, operation.vain_since) = (0, None);
            self.told.is_lossy = Some(self.logouts());
        }
        let operation = self.requests.get(number);
        match at {
            Some(at) => self.requests.resume_at(at, number),
            None if operation.retries > RETRIES_MAX => {
                self.requests.resume_at(now + RETRY_PAUSE, number);
            }
            None => self.requests.resume(number),
        }
    }

    /// The target has no room for as many commands: half of them from now on.
    fn shrink(&mut self, now: Instant) {
        self.room = (self.lane.commands() / 2).max(1);
        self.grow_at = Some(now + GROW_EVERY);
    }

    /// Tries one more command with a target that had no room for more.
    pub(super) fn grow(&mut self, now: Instant) {
        if self.grow_at.is_some_and(|at| at <= now) {
            self.room = (self.room + 1).min(self.config.depth);
            let is_full = self.room == self.config.depth;
            self.grow_at = (!is_full).then_some(now + GROW_EVERY);
        }
    }
}
