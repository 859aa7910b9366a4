//! A session with a remote disk, as program and library see it, of whichever protocol: its disk,
//! its control, its notices and its reports, and the threads of its queues.

#![forbid(unsafe_code)]

mod link;
mod memory;
mod notice;
mod options;
mod queue;
mod report;
mod session;

pub use link::{HostLink, LinkChangeError, LinkFault};
pub use notice::Notice;
pub use options::{QUEUE_SIZE, SessionOptions};
pub use queue::{Notify, QueueDriver, Queues, Starter};
pub use report::{HostReport, LinkReport};
pub use session::{Control, LinkControl, Remote};
