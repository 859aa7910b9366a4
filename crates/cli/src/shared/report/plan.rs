//! The plan of a target whose configuration has changed.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DefinedBy;

/// The check of a target's configuration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckReport {
    /// Name of the target.
    pub target: String,
    /// The file; null if there is none.
    pub config: Option<String>,
    /// Whether a target of that name runs on this machine.
    pub running: bool,
    /// The plan of a target that read that configuration; empty if it does not run.
    #[serde(flatten)]
    pub plan: PlanReport,
    /// Remarks on what may be meant otherwise, such as an interface that is not there.
    pub remarks: Vec<String>,
}

/// The plan of a running target for another configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanReport {
    /// The steps that it takes when it reads the configuration, in this order.
    pub steps: Vec<PlannedStep>,
    /// The changes that take a restart of the target.
    pub restart: Vec<PendingChange>,
    /// The parts that were added by command and do not count, each with the reason.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// A step that a running target takes when it reads its configuration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlannedStep {
    /// The action.
    pub action: PlannedAction,
    /// Its subject.
    pub part: PlannedPart,
    /// The name of that.
    pub name: String,
    /// A remark, in words; null if there is none.
    pub note: Option<String>,
}

impl fmt::Display for PlannedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, part, name, note } = self;
        match (action, part) {
            (_, PlannedPart::Auth) => write!(f, "change who has to have a key (`auth`)")?,
            (PlannedAction::Change, PlannedPart::Host) => {
                write!(f, "change host {name}: its keys or limits")?;
            }
            (PlannedAction::Change, PlannedPart::Export) => {
                write!(f, "change export {name}: who may have it, or its limits")?;
            }
            (_, PlannedPart::Key) => write!(f, "change the key of this target (`key`)")?,
            (action, part) => write!(f, "{} {} {name}", action.name(), part.name())?,
        }
        note.as_ref().map_or(Ok(()), |note| write!(f, " ({note})"))
    }
}

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannedAction {
    /// It is new.
    Add,
    /// It is gone.
    Remove,
    /// It is there, and something of it is another.
    Change,
}

impl PlannedAction {
    fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Change => "change",
        }
    }
}

/// The subject of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannedPart {
    /// A host with its keys.
    Host,
    /// An admin, who asks from elsewhere.
    Admin,
    /// The target's own keys.
    Key,
    /// Whether hosts have to have a key.
    Auth,
    /// A link.
    Link,
    /// A pool.
    Pool,
    /// An export; if it is changed, those who may have it, or its limits.
    Export,
}

impl PlannedPart {
    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Admin => "admin",
            Self::Key => "key",
            Self::Auth => "auth",
            Self::Link => "link",
            Self::Pool => "pool",
            Self::Export => "export",
        }
    }
}

/// A change of a configuration that takes a restart of the target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PendingChange {
    /// The key in the file.
    pub key: String,
    /// The line in the file; null if the key is gone from it, or is not of the file.
    pub line: Option<u64>,
    /// The change, in words.
    pub change: String,
}

impl fmt::Display for PendingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, change, .. } = self;
        f.write_str(change)?;
        line.map_or(Ok(()), |line| write!(f, " (line {line})"))
    }
}

/// A change of the links of a target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TargetLinkChanged {
    /// Name of the target.
    pub target: String,
    /// The link: the interface, or `udp:ADDRESS:PORT`, `tcp:ADDRESS:PORT`, `rdma:ADDRESS:PORT`.
    pub link: String,
    /// Whether anything has changed: false if it was so already.
    pub changed: bool,
    /// Why the link is not served so far, in words: it is as soon as it is there. Null if it is
    /// served, or removed.
    pub waits_for: Option<String>,
    /// The place that names the link, now or after the target has read its configuration
    /// again; null if nothing does.
    pub defined_by: Option<DefinedBy>,
}
