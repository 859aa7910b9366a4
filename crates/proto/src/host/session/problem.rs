//! Why a target is not reached, or a channel was lost.

/// Why the last attempt failed, or the channel was lost. Attempts that got farther are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// No target offered the export.
    NoOffer,
    /// A target speaks another version of the protocol.
    Version,
    /// The target offered the export again and again, but answered no probe, not even the shortest.
    NoHello,
    /// The target did not answer the Connect: it may still be closing another channel.
    NoAccept,
    /// A target without a key has refused the Connect of a host with one; or somebody says so in
    /// its place.
    NoKey,
    /// The Connect of a host with a key was accepted in the clear, which no target does: somebody
    /// else has answered.
    Unsealed,
    /// The link itself is down or gone.
    Down,
    /// The link takes only shorter frames than before.
    Narrowed,
    /// Nothing was heard for the keep-alive time, or for a shorter time if others are heard.
    Silence,
    /// The target is heard, but frames do not get through.
    Stall,
    /// The target does not know the channel: it was restarted, or has given the channel up.
    Reset,
    /// The target has lost its cache since the channel was opened.
    Outdated,
    /// The target ended the channel.
    Disconnected,
    /// The link was taken out of the session.
    Removed,
    /// A channel with longer frames has replaced it.
    Replaced,
    /// This machine was restored to an earlier state: its keys may have been used since.
    Restored,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoOffer => "no target offers the export",
            Self::Version => "the target speaks another version of the protocol",
            Self::NoHello => "the target is there, but no frame of 1232 bytes gets through",
            Self::NoAccept => "the target does not answer the connect",
            Self::NoKey => "the target says that it has no key",
            Self::Unsealed => "somebody without the target's key answers in its place",
            Self::Down => "the interface is down",
            Self::Narrowed => "the interface takes only shorter frames than before",
            Self::Silence => "nothing is heard of the target",
            Self::Stall => "the target is heard, but long frames do not get through any more",
            Self::Reset => "the target was restarted, or has given up the connection",
            Self::Outdated => "the target has lost its cache",
            Self::Disconnected => "the target ended the connection",
            Self::Removed => "the link was removed",
            Self::Replaced => "a connection with longer frames has replaced it",
            Self::Restored => "this machine was restored to an earlier state",
        })
    }
}
