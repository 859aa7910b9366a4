//! Safety rules, and how a build leaves one out on purpose.
//!
//! A checker that catches nothing is a defect. The simulator therefore also runs builds in which
//! one rule is off, and must catch each of them. The rules are those of a type parameter: in the
//! [sound](AllRules) build all are on as constants, so it carries no trace of them, and nothing at
//! run time can turn one off.

use tyche_wire::{Header, Open, Reject};

/// A rule that keeps data safe, or sessions going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A position of a ring, or a use of a slot, takes effect once.
    SuppressDuplicates,
    /// Packet numbers that are too old are rejected.
    RejectStale,
    /// No peer writes to the memory of a channel after others could know that it is closed.
    EndPlacement,
    /// The target knows which requests of a channel it has executed, and ignores their commands
    /// when they come again, even if the slot has been used for others since.
    RememberExecuted,
    /// Frames with another cookie than the channel's are dropped.
    CheckCookie,
    /// A ring's ack stops at the first position that has not arrived.
    AckInOrder,
    /// A mark of the network is told to the sender once.
    TellMarkOnce,
    /// The losses and marks of one flight shrink the congestion window once.
    ShrinkOnce,
    /// The congestion window has a minimum.
    LimitShrinking,
    /// Frames whose payload does not match its checksum are dropped.
    CheckPayload,
    /// A frame that is sent again has a packet number of its own.
    RenumberResent,
    /// A sealed frame is taken once.
    RejectReplays,
    /// Sealed frames whose tag does not match are dropped.
    CheckTag,
    /// A session with keys takes no answer in the clear.
    RefuseClear,
    /// Modifications in flight on a lost channel are reissued only after the target has closed that
    /// channel.
    FenceBeforeReissue,
    /// A channel that was lost to a reset is fenced like any other.
    FenceAfterReset,
    /// A channel that the host has given up because the target lost its cache is fenced like any
    /// other.
    FenceAfterLostCache,
    /// After operations have failed early, none is taken before the target has closed the channels
    /// that the failed modifications were in flight on.
    FenceFailed,
    /// An operation that has failed early is forgotten with its number: an answer to a fence ends
    /// and reissues nothing of it.
    ForgetFailed,
    /// While operations of one queue fail early, no queue of its session takes new ones.
    FailTogether,
    /// A request that the target has executed, by its answer to a fence, is not reissued.
    UseOutcomes,
    /// Where anybody may send from any address, an answer to a Discover is no longer than it.
    BoundAnswers,
    /// A silent target answers only those who know its key.
    StaySilent,
    /// The target checks the ticket of a Connect.
    CheckTicket,
    /// A Connect displaces no channel that was opened by a newer Connect.
    CheckOrder,
    /// A session that was not connected while another one wrote is not admitted again.
    RefuseFollowed,
    /// A writer is admitted only after it has been recorded on stable storage, and refused if that
    /// fails.
    KeepWriter,
    /// A session with a writing channel is noted as the holder, also if its first channel was
    /// read-only.
    NoteHolder,
    /// A session that shows a sign of life is not displaced by another of the same host.
    ProbeHolder,
    /// A slot is busy until its completion is composed.
    HoldSlots,
    /// The target refuses modifications on a read-only channel.
    EnforceReadOnly,
    /// The number of pages that a host may use, and its answer, are sent again if their frame is
    /// lost.
    RepeatCredit,
    /// A host answers that it uses no more pages than it may when that is so.
    DrainBeforeCredit,
    /// A frame with any error has no effect.
    TakeFramesWhole,
    /// The target tracks which bytes of a request have arrived, not only how many.
    TrackRanges,
    /// An operation in progress is repeated if a part of it was lost with the target's cache.
    RedoLost,
    /// The target confirms a fence only after the channel has stopped taking frames.
    CloseBeforeFenced,
    /// The target confirms a fence only after the disk has completed all requests of the channel.
    DrainBeforeFenced,
    /// An eviction is over only when the disk has completed all requests of the host.
    DrainBeforeEvicted,
    /// A removed export is given up, with its store, only when the disk has completed all of its
    /// requests.
    DrainBeforeRemoved,
    /// If the target lost unflushed writes, the next flush fails.
    LostCacheFailsFlush,
    /// A loss that a failed flush has told of is not told again.
    TellOnce,
    /// A channel carries requests of one generation of its export only.
    OneGeneration,
    /// A flush that was with the disk when the generation changed is not believed.
    DoubtFlush,
    /// A flush covers the writes completed on all queues of its session.
    CoverAllQueues,
    /// A session that takes over a device is admitted only after the channels of the former session
    /// are closed.
    CloseFormer,
    /// A session that takes over a device assumes that the former session has left writes in the
    /// target's cache.
    RememberFormerGeneration,
}

/// The rules that a build keeps.
pub trait Rules: Copy + Send + 'static {
    /// First position of a ring. A build of the simulator begins with one that wraps soon.
    const POSITION_FIRST: u32 = 0;
    /// Number of the first frame of a channel. A build of the simulator begins shortly before the
    /// first keys of sealed channels are replaced.
    const PACKET_FIRST: u64 = 1;
    /// Generation of a slot that was never used. A build of the simulator begins with one that
    /// wraps soon.
    const GENERATION_FIRST: u16 = 0;

    /// Whether it keeps a rule. It keeps all, unless a type says otherwise.
    #[inline(always)]
    fn keeps(rule: Rule) -> bool {
        let _ = rule;
        true
    }
}

/// All rules on: the only build that is ever used on data.
#[derive(Clone, Copy, Debug)]
pub struct AllRules;

impl Rules for AllRules {}

/// Accepts every payload unchecked, in a build without [`Rule::CheckPayload`].
pub(crate) struct Unchecked;

impl Open for Unchecked {
    fn open(&self, _: &Header, _: &[u8], _: usize) -> Result<(), Reject> {
        Ok(())
    }
}
