//! Answers of a running target at its control socket.

use tyche_engine::Target;
use tyche_store::ResizeError;

use super::config::Export;
use crate::control::{Answer, Request};
use crate::error::{Code, Error, Result};
use crate::report::{ExportResized, TargetReport};

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

    pub(super) fn to(&self, target: &Target, request: &Request) -> Answer {
        match request {
            Request::Report => Answer::Target(TargetReport::new(&self.name, &target.report())),
            Request::Resize { export, size } => {
                self.resize(target, export, *size).map(Answer::Resized).into()
            }
            Request::Disconnect { .. } | Request::AddLink { .. } | Request::RemoveLink { .. } => {
                Answer::refused(Code::Usage, "this is a target, not a session")
            }
        }
    }

    fn resize(&self, target: &Target, name: &str, size: Option<u64>) -> Result<ExportResized> {
        let index = self.exports.iter().position(|export| export == name);
        let index = index.ok_or_else(|| {
            let message = format!("target `{}` has no export `{name}`", self.name);
            Error::new(Code::NotFound, message)
        })?;
        let size = target.resize(index, size).map_err(|error| {
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
