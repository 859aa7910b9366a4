//! Why a target is not reached, or a channel was lost.

/// How far the last attempt to reach the target got, for people. What got farther is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// Nobody offered the export.
    NoOffer,
    /// A target speaks another version of the protocol.
    Version,
    /// The target offered it, but no probe came back, not even the smallest.
    NoHello,
    /// The target did not answer the connect: it may still be closing a former channel.
    NoAccept,
    /// The link itself is down or gone.
    Down,
    /// The link takes only shorter frames than it did.
    Narrowed,
    /// Nothing was heard for the keep-alive time, or for a while on this path but on others.
    Silence,
    /// The target is heard, but a frame does not get through to it.
    Stall,
    /// The target said that the channel does not exist: it was restarted.
    Reset,
    /// The target has lost its cache since the channel was opened.
    Outdated,
    /// The target ended the channel.
    Disconnected,
    /// The link was taken out of the session.
    Removed,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoOffer => "no target offers the export",
            Self::Version => "the target speaks another version of the protocol",
            Self::NoHello => "the target is there, but no frame of 1294 bytes gets through",
            Self::NoAccept => "the target does not answer the connect",
            Self::Down => "the interface is down",
            Self::Narrowed => "the interface takes only shorter frames than before",
            Self::Silence => "nothing is heard of the target",
            Self::Stall => "the target is heard, but long frames do not get through any more",
            Self::Reset => "the target was restarted",
            Self::Outdated => "the target has lost its cache",
            Self::Disconnected => "the target ended the connection",
            Self::Removed => "the link was removed",
        })
    }
}
