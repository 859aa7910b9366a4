//! A session with a remote disk, as program and library see it, of whichever protocol: its notices
//! and its reports.

#![forbid(unsafe_code)]

mod link;
mod notice;
mod report;

pub use link::{HostLink, LinkError, LinkFault};
pub use notice::Notice;
pub use report::{Favoured, HostReport, LinkReport};
