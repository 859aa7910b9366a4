//! The findings of `tyche doctor`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::error::Code;

/// The findings on a machine.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// Names of the groups of checks that were made.
    pub checked: Vec<String>,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
    /// The paths to the target that was named with `--target`.
    pub paths: Vec<DoctorPath>,
}

/// A path to a target, with the longest frames that get through.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DoctorPath {
    /// Name of the link.
    pub link: String,
    /// The target's Ethernet address on it.
    pub mac: String,
    /// The longest frame in bytes that was answered; 0: none was.
    pub frame_len: u64,
    /// The longest frame in bytes that the link takes.
    pub frame_len_max: u64,
}

/// Something that is wrong, or could be better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Its name, the same in all versions.
    pub id: String,
    /// Its severity.
    pub severity: Severity,
    /// Its kind: the exit code, if it is the worst error.
    pub code: Code,
    /// The fault, in words.
    pub what: String,
    /// The remedy, in words.
    pub remedy: String,
}

/// The severity of a finding.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It does not work, or data are in danger.
    Error,
    /// It works now, and will not always.
    Warning,
    /// It could be faster, or safer.
    Note,
}

impl Severity {
    /// The name, as in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl Finding {
    /// An error of that kind.
    pub(crate) fn error(id: &str, code: Code, what: impl Into<String>) -> Self {
        Self::new(id, Severity::Error, code, what.into())
    }

    /// A warning.
    pub(crate) fn warning(id: &str, what: impl Into<String>) -> Self {
        Self::new(id, Severity::Warning, Code::Other, what.into())
    }

    /// A note.
    pub(crate) fn note(id: &str, what: impl Into<String>) -> Self {
        Self::new(id, Severity::Note, Code::Other, what.into())
    }

    fn new(id: &str, severity: Severity, code: Code, what: String) -> Self {
        Self { id: id.to_owned(), severity, code, what, remedy: String::new() }
    }

    /// The same, with what to do about it.
    pub(crate) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }
}
