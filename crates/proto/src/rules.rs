//! Safety rules, and how a build leaves one out on purpose.
//!
//! A checker that catches nothing is a defect. The simulator therefore also runs builds in which
//! one rule is off, and must catch each of them. The rules are constants of a type parameter, so
//! the sound build carries no trace of them and nothing at run time can turn one off.

use tyche_wire::{Header, Open, Reject};

/// The rules that keep data safe and sessions going. All are on unless a type says otherwise.
pub trait Rules: Copy + Send + 'static {
    /// A position of a ring, or a use of a slot, takes effect once.
    const SUPPRESS_DUPLICATES: bool = true;
    /// First position of a ring. A build of the simulator begins with one that wraps soon.
    const POSITION_FIRST: u32 = 0;
    /// Generation of a slot that was never used. A build of the simulator begins with one that
    /// wraps soon.
    const GENERATION_FIRST: u16 = 0;
    /// Packet numbers that are too old are rejected.
    const REJECT_STALE: bool = true;
    /// The target knows which requests of a channel it has executed, and ignores their commands
    /// when they come again, even if the slot has been used for others since.
    const REMEMBER_EXECUTED: bool = true;
    /// Frames with another cookie than the channel's are dropped.
    const CHECK_COOKIE: bool = true;
    /// A ring's ack stops at the first position that has not arrived.
    const ACK_IN_ORDER: bool = true;
    /// A mark of the network is told to the sender once.
    const TELL_MARK_ONCE: bool = true;
    /// The losses and marks of one flight shrink the congestion window once.
    const SHRINK_ONCE: bool = true;
    /// The congestion window has a minimum.
    const LIMIT_SHRINKING: bool = true;
    /// Frames whose payload does not match its checksum are dropped.
    const CHECK_PAYLOAD: bool = true;
    /// Modifications in flight on a lost channel are reissued only after the target has closed that
    /// channel.
    const FENCE_BEFORE_REISSUE: bool = true;
    /// A channel that was lost to a reset is fenced like any other.
    const FENCE_AFTER_RESET: bool = true;
    /// A channel that the host has given up because the target lost its cache is fenced like any
    /// other.
    const FENCE_AFTER_LOST_CACHE: bool = true;
    /// A request that the target has executed, by its answer to a fence, is not reissued.
    const USE_OUTCOMES: bool = true;
    /// Where anybody may send from any address, an answer to a Discover is no longer than it.
    const BOUND_ANSWERS: bool = true;
    /// The target checks the ticket of a Connect.
    const CHECK_TICKET: bool = true;
    /// A Connect displaces no channel that was opened by a newer Connect.
    const CHECK_ORDER: bool = true;
    /// A session that was not connected while another one wrote is not admitted again.
    const REFUSE_FOLLOWED: bool = true;
    /// A writer is admitted only after it has been recorded on stable storage, and refused if that
    /// fails.
    const KEEP_WRITER: bool = true;
    /// A session with a writing channel is noted as the holder, also if its first channel was
    /// read-only.
    const NOTE_HOLDER: bool = true;
    /// A session that shows a sign of life is not displaced by another of the same host.
    const PROBE_HOLDER: bool = true;
    /// A slot is busy until its completion is composed.
    const HOLD_SLOTS: bool = true;
    /// The target refuses modifications on a read-only channel.
    const ENFORCE_READ_ONLY: bool = true;
    /// A frame with any error has no effect.
    const TAKE_FRAMES_WHOLE: bool = true;
    /// The target tracks which bytes of a request have arrived, not only how many.
    const TRACK_RANGES: bool = true;
    /// An operation in progress is repeated if a part of it was lost with the target's cache.
    const REDO_LOST: bool = true;
    /// The target confirms a fence only after the channel has stopped taking frames.
    const CLOSE_BEFORE_FENCED: bool = true;
    /// The target confirms a fence only after the disk has completed all requests of the channel.
    const DRAIN_BEFORE_FENCED: bool = true;
    /// If the target lost unflushed writes, the next flush fails.
    const LOST_CACHE_FAILS_FLUSH: bool = true;
    /// A flush covers the writes completed on all queues of its session.
    const COVER_ALL_QUEUES: bool = true;
    /// A session that takes over a device is admitted only after the channels of the former session
    /// are closed.
    const CLOSE_FORMER: bool = true;
    /// A session that takes over a device assumes that the former session has left writes in the
    /// target's cache.
    const REMEMBER_FORMER_BOOT: bool = true;
}

/// All rules on: the only build that is ever used on data.
#[derive(Clone, Copy, Debug)]
pub struct Sound;

impl Rules for Sound {}

/// Accepts every payload unchecked, in a build without [`Rules::CHECK_PAYLOAD`].
pub(crate) struct Unchecked;

impl Open for Unchecked {
    fn open(&self, _: &Header, _: &[u8], _: usize) -> Result<(), Reject> {
        Ok(())
    }
}
