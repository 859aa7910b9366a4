//! Links of a session that runs.

use tyche_link::Link;
use tyche_proto::wire::Mac;

/// A link that may reach the target.
pub struct HostLink {
    /// The link.
    pub link: Box<dyn Link>,
    /// The target's address, if it is known.
    pub target: Option<Mac>,
}

/// Reasons why a link is not added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChangeError {
    /// The session uses it already.
    InUse,
    /// The session does not use it.
    Unknown,
    /// It is the session's last one.
    Last,
    /// The session has ended, or does not answer within a second.
    Gone,
}

/// A fault of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFault {
    /// Name of the link.
    pub link: String,
    /// The fault, with its remedy.
    pub message: String,
}
