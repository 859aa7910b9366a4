//! Safety rules, and how a simulation leaves one out on purpose.
//!
//! A checker that catches nothing is a defect. So the simulator also runs machines that break one
//! rule, and must notice each. The rules are a type parameter of the machines. That of the product
//! is [`AllRules`], which has no bytes and keeps them all: nothing of this is left in a program,
//! and nothing at run time can turn a rule off. The simulator has a type whose *values* differ, so
//! that one more copy of the machines is enough for all rules.

/// A rule that keeps data safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An initiator completes a command whose exchange is aborted only after BA_ACC.
    AwaitAbort,
    /// Bytes of a transfer count once, however often they come.
    CountOnce,
    /// A target executes a write when all its data have come.
    ExecuteWhole,
    /// The XID of an exchange that has ended abnormally is out of use for R_A_TOV.
    Quarantine,
    /// A target gives an OX_ID another RX_ID each time, until it has had all of them.
    RenewRxIds,
    /// A target takes data of the burst's sequence only.
    CheckSequences,
    /// An initiator takes no answer of a target of ours that has the RX_ID of an earlier exchange.
    RefuseFormerRxIds,
    /// A target sends BA_ACC when nothing of the exchange is at work any more.
    DrainAborted,
    /// A target answers a task management function when the commands of all its threads have
    /// ended.
    EndAllTasks,
    /// A target gives up a removed logical unit when the commands of all its threads have ended.
    DrainRemoved,
    /// A target ends a login when the commands of all threads of the port have ended.
    DrainThreads,
    /// A target does not take a command again whose number (CRN) it has seen.
    CheckNumbers,
    /// An initiator counts a cache as lost whose loss may have been told in a response that was
    /// lost.
    NoteLosses,
    /// A target tells of a unit attention, and of lost writes, until that is confirmed.
    AwaitConfirmation,
    /// A target compares the losses of a store before it answers a flush, whatever the store says.
    CompareLosses,
    /// A flush does not fail that covers nothing which is in the cache.
    SpareOthers,
    /// An initiator counts a loss once, however often it is told of it.
    TellOnce,
    /// An initiator compares the generation of a disk after each login, if there is one.
    CompareGenerations,
    /// A port logs in with nobody whose N_Port_ID another port may still hold.
    AwaitFormer,
    /// The loss of a cache counts for all lanes, whichever has heard of it.
    ShareLosses,
    /// A target asks each initiator for no more data than it leaves room for others, and one that
    /// sends none for nothing else.
    ShareRing,
}

/// The rules that a machine keeps.
pub trait Rules: Copy + Send + 'static {
    /// Whether it keeps this one.
    fn keeps(self, rule: Rule) -> bool;
}

/// All rules are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllRules;

impl Rules for AllRules {
    #[inline]
    fn keeps(self, _: Rule) -> bool {
        true
    }
}
