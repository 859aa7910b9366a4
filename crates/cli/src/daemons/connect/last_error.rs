//! The reports about a session, with the reasons why it is not live in words for people.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_proto::Failure;
use tyche_proto::wire::{Reason, Rejection};
use tyche_remote::{Control, HostReport, Notice};

use super::SessionArgs;
use super::late::MissingLinks;
use super::revival::Trying;
use crate::shared::block_device;
use crate::shared::report::{Figures, SessionReport, SessionState};
use crate::shared::state::State;

/// Reasons that the session reported since it was last live. They are noted where the notices are
/// told, so that they are known before a report says that the session is lost or has failed.
#[derive(Default)]
pub(super) struct LastError(Mutex<Reasons>);

#[derive(Default)]
struct Reasons {
    /// Why the target refused to resume the session.
    refusal: Option<String>,
    /// Why the last channel was lost.
    loss: Option<String>,
    /// Why the session has failed for good.
    failure: Option<String>,
}

impl LastError {
    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what a notice says about the session.
    pub(super) fn note(&self, notice: &Notice, args: &SessionArgs) {
        self.reasons().note(notice, args);
    }
}

impl Reasons {
    fn note(&mut self, notice: &Notice, args: &SessionArgs) {
        match notice {
            Notice::Connected(_) => *self = Self::default(),
            Notice::Lost(problem) => self.loss = Some(problem.to_string()),
            Notice::Rejected(rejection) => self.refusal = Some(refusal(rejection, args)),
            Notice::Failed(failure) => self.failure = Some(self.explain(*failure)),
            _ => {}
        }
    }

    /// The failure, with its cause.
    fn explain(&self, failure: Failure) -> String {
        match (failure, &self.refusal, &self.loss) {
            (Failure::Rejected(_), Some(refusal), _) => refusal.clone(),
            (Failure::TargetLost, Some(cause), _) | (Failure::TargetLost, None, Some(cause)) => {
                format!("{failure}: {cause}")
            }
            _ => failure.to_string(),
        }
    }

    /// The current problem, if any.
    fn problem(&self, report: &HostReport) -> Option<String> {
        if self.failure.is_some() || report.live {
            let closes = report.fails_fast && self.failure.is_none();
            let closing = "the target is back: it has to close the lost channels first";
            return self.failure.clone().or_else(|| closes.then(|| closing.to_owned()));
        }
        let attempt = || report.problem.map(|problem| problem.to_string());
        self.refusal.clone().or_else(attempt).or_else(|| self.loss.clone())
    }
}

/// The source of a daemon's reports about its session, for all of its threads.
#[derive(Clone)]
pub(super) struct Reporter {
    pub(super) args: SessionArgs,
    pub(super) control: Arc<dyn Control>,
    /// The links that are missing so far.
    pub(super) missing: Arc<MissingLinks>,
    /// History of the session.
    pub(super) last_error: Arc<LastError>,
    /// Whether the session, which has failed, is tried again.
    pub(super) trying: Trying,
}

impl Reporter {
    /// The report about the session with that record.
    pub(super) fn describe(&self, record: &State) -> SessionReport {
        let mut state = self.control.report().map_or(SessionState::Ending, |report| {
            let problem = self.last_error.reasons().problem(&report);
            if record.has_device() {
                return SessionState::new(&report, problem);
            }
            let problem = format!("{} is not there any more", record.device.display());
            SessionState::Gone(Box::new(Figures { problem: Some(problem), ..(&report).into() }))
        });
        if let Some(figures) = state.figures_mut() {
            let unnamed = self.args.common.links.is_empty();
            figures.links.iter_mut().for_each(|link| link.unnamed = unnamed);
            figures.links.extend(self.missing.reports());
            figures.trying = self.trying.is_on();
            figures.device_size = block_device::size(&record.device);
        }
        SessionReport { record: record.clone(), state }
    }
}

/// Explains why the target does not resume a session that it had admitted before.
fn refusal(rejection: &Rejection, args: &SessionArgs) -> String {
    let (export, detail) = (&args.export, &rejection.detail);
    match rejection.reason {
        Reason::SessionLost => format!(
            "another host has written to export `{export}` since, or the target does not know who \
             has, so what is not written yet may be stale: give it up with \
             `tyche disconnect {export} --force`, then connect again"
        ),
        Reason::Held => format!("export `{export}` is held by host {detail}"),
        Reason::Denied => format!(
            "{}; when it may, `tyche disconnect {export} --force`, and connect again: this session \
             has ended",
            args.refused(rejection).message
        ),
        _ => args.refused(rejection).message,
    }
}
