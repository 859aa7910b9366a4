//! What must never be left out, and how a build leaves it out on purpose.
//!
//! A checker that catches nothing is a defect. The simulator therefore also runs builds in which
//! one rule is off, and must catch each of them. The rules are constants of a type parameter, so
//! the sound build carries no trace of them and nothing at run time can turn one off.

use tyche_wire::{Header, Open, Reject};

/// The rules that keep data safe. All are on unless a type says otherwise.
pub trait Rules: Copy + Send + 'static {
    /// A position of a ring, or a use of a slot, takes effect once.
    const SUPPRESS_DUPLICATES: bool = true;
    /// Where positions begin: the simulator has channels that soon wrap.
    const POSITION_FIRST: u32 = 0;
    /// The generation of slots that were never used: the simulator has some that soon wrap.
    const GENERATION_FIRST: u16 = 0;
    /// Packet numbers that are too old are rejected.
    const REJECT_STALE: bool = true;
    /// The target knows which requests of a channel it has executed: their commands may come
    /// again, even when the slot has been used for others since.
    const REMEMBER_EXECUTED: bool = true;
    /// Frames with another cookie than the channel's are dropped.
    const CHECK_COOKIE: bool = true;
    /// Frames whose payload does not match its checksum are dropped.
    const CHECK_PAYLOAD: bool = true;
    /// What a lost channel had in flight is sent again only once that channel is closed.
    const FENCE_BEFORE_REISSUE: bool = true;
    /// A channel that was lost to a reset is fenced like any other.
    const FENCE_AFTER_RESET: bool = true;
    /// A channel that was lost because the target lost its cache is fenced like any other.
    const FENCE_AFTER_LOST_CACHE: bool = true;
    /// What the target says of the requests of a closed channel is believed: what was executed is
    /// not sent again.
    const USE_OUTCOMES: bool = true;
    /// A connect shows a ticket, which the target checks.
    const CHECK_TICKET: bool = true;
    /// A connect takes nothing from one that is newer than itself.
    const CHECK_ORDER: bool = true;
    /// A session that was away while another wrote is not let in again.
    const REFUSE_FOLLOWED: bool = true;
    /// Who wrote last is kept over restarts *before* it is let in, and not let in if that fails.
    const KEEP_WRITER: bool = true;
    /// A session that writes is noted as the holder, whichever of its channels came first.
    const NOTE_HOLDER: bool = true;
    /// A session that lives is not displaced by another of the same host.
    const PROBE_HOLDER: bool = true;
    /// A slot is busy until its completion is composed.
    const HOLD_SLOTS: bool = true;
    /// A channel that may not write does not.
    const ENFORCE_READ_ONLY: bool = true;
    /// A frame in which anything is wrong has no effect at all.
    const TAKE_FRAMES_WHOLE: bool = true;
    /// Which bytes of a request have come is kept track of, not only how many.
    const TRACK_RANGES: bool = true;
    /// What was lost with the target's cache while its operation is in progress is done again.
    const REDO_LOST: bool = true;
    /// The target confirms a fence only once the channel takes no frames any more.
    const CLOSE_BEFORE_FENCED: bool = true;
    /// The target confirms a fence only once nothing of the channel is with the disk any more.
    const DRAIN_BEFORE_FENCED: bool = true;
    /// If the target lost unflushed writes, the next flush fails.
    const LOST_CACHE_FAILS_FLUSH: bool = true;
    /// A flush covers what was completed on all queues of its session.
    const COVER_ALL_QUEUES: bool = true;
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

/// Opens every payload, in a build without [`Rules::CHECK_PAYLOAD`].
pub(crate) struct Unchecked;

impl Open for Unchecked {
    fn open(&self, _: &Header, _: &[u8], _: usize) -> Result<(), Reject> {
        Ok(())
    }
}
