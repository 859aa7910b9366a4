//! Errors of opening a volume, and of submitting a request.

use std::io;

use thiserror::Error;
use tyche_block::{Errno, Request};
use tyche_fcoe::Obstacle;
use tyche_fcoe::fc::port::Failure;
use tyche_link::{ip, packet};
use tyche_native::ConnectError;
use tyche_proto::wire::Reason;
use tyche_remote::Notice;
use tyche_session::LinkError;
use tyche_session::fcoe::{FcoeError, Unreached};

/// Reasons why a volume does not open.
#[derive(Debug, Error)]
pub enum OpenError {
    /// An option has an invalid value.
    #[error("{0}")]
    Option(String),
    /// A link cannot be used.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A disk over FCoE is misspelt, its interface can't be used, or this end gets no port on it.
    #[error(transparent)]
    Fcoe(#[from] FcoeError),
    /// A disk over FCoE can't be used in time.
    #[error(transparent)]
    Unreached(Box<Unreached>),
    /// This machine's identity cannot be read or stored.
    #[error("the identity of this host: {0}")]
    Identity(io::Error),
    /// The system refuses a thread or descriptor.
    #[error("start a session: {0}")]
    System(io::Error),
    /// The target refuses.
    #[error("the target refuses the export: {reason}{}", detail(.1), reason = .0)]
    Refused(Reason, String),
    /// The session has failed before it was connected.
    #[error("the session failed: {0}")]
    Failed(String),
    /// The target does not answer in time.
    #[error(
        "the target does not answer in time{}; check cables and VLAN, and that `tyche serve` runs \
         on the same Ethernet", detail(.0)
    )]
    TimedOut(String),
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl OpenError {
    /// The nearest error number of Linux.
    pub fn errno(&self) -> Errno {
        Errno(match self {
            Self::Option(_) => libc::EINVAL,
            Self::Link(error) => return link_errno(error),
            Self::Fcoe(error) => return fcoe_errno(error),
            Self::Unreached(error) => obstacle_errno(&error.obstacle),
            Self::Identity(error) | Self::System(error) => return Errno::from_io(error),
            Self::Refused(Reason::UnknownExport, _) => libc::ENOENT,
            Self::Refused(Reason::Held | Reason::Cloned, _) => libc::EBUSY,
            Self::Refused(Reason::ReadOnly, _) => libc::EROFS,
            Self::Refused(Reason::Offline, _) => libc::ENOMEDIUM,
            Self::Refused(..) | Self::Failed(_) => libc::ECONNREFUSED,
            Self::TimedOut(_) => libc::ETIMEDOUT,
        })
    }

    /// Converts a notice that ends the session.
    pub(crate) fn from_notice(notice: Notice) -> Self {
        match notice {
            Notice::Rejected(refusal) => Self::Refused(refusal.reason, refusal.detail.to_string()),
            Notice::Failed(failure) => Self::Failed(failure.to_string()),
            notice => Self::Failed(format!("{notice:?}")),
        }
    }
}

/// The nearest error number for a link that does not open.
fn link_errno(error: &LinkError) -> Errno {
    Errno(match error {
        LinkError::Packet(error) => packet_errno(error),
        LinkError::Ip(ip::OpenError::Connect { source, .. }) | LinkError::System(source) => {
            return Errno::from_io(source);
        }
        LinkError::Ip(_) | LinkError::Address(..) => libc::EHOSTUNREACH,
        LinkError::Name(_) | LinkError::Twice(_) | LinkError::NoInterface => libc::EINVAL,
        LinkError::Placement(_) => libc::EIO,
    })
}

fn packet_errno(error: &packet::OpenError) -> i32 {
    match error {
        packet::OpenError::NotPermitted => libc::EPERM,
        packet::OpenError::NoSuchInterface { .. } => libc::ENODEV,
        _ => libc::ENETDOWN,
    }
}

/// The nearest error number for a session over FCoE that does not start.
fn fcoe_errno(error: &FcoeError) -> Errno {
    Errno(match error {
        FcoeError::Name(_) | FcoeError::NoInterface(_) => libc::EINVAL,
        FcoeError::Interface(error) => packet_errno(error),
        FcoeError::Lock(_, source) => return Errno::from_io(source),
        FcoeError::InUse(_) => libc::EBUSY,
    })
}

/// The nearest error number for an obstacle on the way to a disk.
fn obstacle_errno(obstacle: &Obstacle) -> i32 {
    match obstacle {
        Obstacle::Interface(_) => libc::ENETDOWN,
        Obstacle::NoAddress | Obstacle::NoForwarder | Obstacle::NoFabricLogin => libc::ETIMEDOUT,
        Obstacle::NotHeard | Obstacle::Asking => libc::ETIMEDOUT,
        Obstacle::NoLogin(None | Some((_, Failure::Silence))) => libc::ETIMEDOUT,
        Obstacle::NoLogin(Some(_)) => libc::ECONNREFUSED,
        Obstacle::NoTarget | Obstacle::NoLun(_) => libc::ENOENT,
        Obstacle::Unusable(_) => libc::EIO,
    }
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Refused(notice) => Self::from_notice(*notice),
            ConnectError::TimedOut(problem) => {
                Self::TimedOut(problem.map(|problem| problem.to_string()).unwrap_or_default())
            }
        }
    }
}

/// Reasons why a call on a volume had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The limit of requests in progress is reached: poll, then try again.
    #[error("the limit of requests in progress is reached")]
    Full,
    /// Another thread is in a call on the same volume, which is in inline mode.
    #[error("another thread drives this volume, which is in inline mode")]
    Busy,
}

/// A refused request.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct Refused {
    /// The reason.
    pub reason: Refusal,
    /// The request, with its buffer.
    pub request: Request,
}
