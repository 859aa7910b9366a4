//! Requests on their way through a loop.

use std::sync::Arc;

use tyche_block::{Completion, Errno, Request, Sink};

use crate::volume::Submission;

/// A request in progress.
pub struct Job {
    /// The request.
    pub request: Request,
    /// Its submitter's name for it.
    pub token: u64,
    /// The recipient of the answer; `None`: the owner of the driver.
    pub sink: Option<Arc<dyn Sink>>,
}

impl From<Submission> for Job {
    fn from(submission: Submission) -> Self {
        let Submission { request, token, sink } = submission;
        Self { request, token, sink: Some(sink) }
    }
}

/// A finished request.
pub struct Done {
    /// The answer.
    pub completion: Completion,
    sink: Option<Arc<dyn Sink>>,
}

impl Done {
    /// Delivers the answer.
    ///
    /// # Panics
    /// If the recipient is the owner of the driver.
    pub fn answer(self) {
        self.sink.expect("queued requests come with a sink").complete(self.completion);
    }
}

impl Job {
    /// Ends it.
    pub fn done(self, result: Result<(), Errno>) -> Done {
        let Self { request, token, sink } = self;
        Done { completion: Completion { token, result, buffer: request.buffer }, sink }
    }
}
