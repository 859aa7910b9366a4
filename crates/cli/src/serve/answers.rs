//! Answers of a running target at its control socket.

use tyche_store::ResizeError;

use super::Served;
use super::config::Export;
use crate::control::{Answer, Request};
use crate::error::{Code, Error, Result};
use crate::report::{ExportResized, TargetPort, TargetReport};

/// See the module.
#[derive(Clone)]
pub(super) struct Answers {
    /// The target's name.
    name: String,
    /// The names of its exports, by index.
    exports: Vec<String>,
}

impl Answers {
    pub(super) fn new(name: &str, exports: &[Export]) -> Self {
        let exports = exports.iter().map(|export| export.name.clone()).collect();
        Self { name: name.to_owned(), exports }
    }

    pub(super) fn to(&self, served: &Served, request: &Request) -> Answer {
        match request {
            Request::Report => Answer::Target(self.report(served)),
            Request::Resize { export, size } => {
                self.resize(served, export, *size).map(Answer::Resized).into()
            }
            Request::Disconnect { .. } | Request::AddLink { .. } | Request::RemoveLink { .. } => {
                Answer::refused(Code::Usage, "this is a target, not a session")
            }
        }
    }

    fn report(&self, served: &Served) -> TargetReport {
        let mut report = TargetReport::new(&self.name, &served.target.report());
        report.fcoe = served.fcoe.report().iter().map(TargetPort::from).collect();
        for (export, lun) in report.exports.iter_mut().zip(served.fcoe.luns()) {
            export.lun = Some(lun);
        }
        report
    }

    fn resize(&self, served: &Served, name: &str, size: Option<u64>) -> Result<ExportResized> {
        let index = self.exports.iter().position(|export| export == name);
        let index = index.ok_or_else(|| {
            let message = format!("target `{}` has no export `{name}`", self.name);
            Error::new(Code::NotFound, message)
        })?;
        let size = served.resize(index, size).map_err(|error| {
            let code = match error {
                ResizeError::Shrinks { .. } | ResizeError::Indivisible { .. } => Code::Usage,
                _ => Code::Device,
            };
            Error::new(code, format!("export `{name}`: {error}"))
        })?;
        tracing::info!(size, "export {name} is resized");
        Ok(ExportResized { target: self.name.clone(), export: name.to_owned(), size })
    }
}
