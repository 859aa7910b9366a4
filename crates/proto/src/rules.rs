//! What must never be left out, and how a build leaves it out on purpose.
//!
//! A checker that catches nothing is a defect. The simulator therefore also runs builds in which
//! one rule is off, and must catch each of them. The rules are constants of a type parameter, so
//! the sound build carries no trace of them and nothing at run time can turn one off.

/// The rules that keep data safe. All are on unless a type says otherwise.
pub trait Rules: Copy + Send + 'static {
    /// A position of a ring, or a use of a slot, takes effect once.
    const SUPPRESS_DUPLICATES: bool = true;
    /// The target knows which requests of a channel it has executed: their commands may come
    /// again, even when the slot has been used for others since.
    const REMEMBER_EXECUTED: bool = true;
    /// Frames with another cookie than the channel's are dropped.
    const CHECK_COOKIE: bool = true;
    /// Frames whose payload does not match its checksum are dropped.
    const CHECK_PAYLOAD: bool = true;
    /// What a lost channel had in flight is sent again only once that channel is closed.
    const FENCE_BEFORE_REISSUE: bool = true;
    /// The target confirms a fence only once the channel takes no frames any more.
    const CLOSE_BEFORE_FENCED: bool = true;
    /// The target confirms a fence only once nothing of the channel is with the disk any more.
    const DRAIN_BEFORE_FENCED: bool = true;
    /// If the target lost unflushed writes, the next flush fails.
    const LOST_CACHE_FAILS_FLUSH: bool = true;
    /// A session that takes the place of another is let in only once that one's channels are
    /// closed.
    const CLOSE_FORMER: bool = true;
    /// A session that takes the place of another minds what that one may have left in the target's
    /// cache.
    const REMEMBER_FORMER_BOOT: bool = true;
}

/// All rules on: the only build that is ever used on data.
#[derive(Clone, Copy, Debug)]
pub struct Sound;

impl Rules for Sound {}
