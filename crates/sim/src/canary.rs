//! Canaries: builds with one safety rule off. The checker must catch each, or it would not catch
//! mistakes either.
//!
//! | check | canaries that it catches, as a rule |
//! |---|---|
//! | a read returns what it can: [`history`](crate::history) | duplicates |
//! | what is durable is there: the same | lost-cache, queues, former-generation, flush, sync-error |
//! | the same, after a loss that a living target has noticed | flush-early, flush-other |
//! | a flush fails only for who had data at stake, once: the same | flush-twice |
//! | no acknowledged write is told as a hole: the same | status |
//! | a session is told of a restored target: the same | generation |
//! | a write is executed with its own data | payload |
//! | nothing is executed that was answered | completions, cookie |
//! | nothing is answered while it is executed | fence, fenced-open, fenced-busy |
//! | the same, across generations of what is served | fence-after-lost-cache |
//! | nothing that failed early happens later: the same | fence- and forget-failed, fail-together |
//! | nothing is executed twice in a run of the target | outcomes, fence-after-reset |
//! | one session writes, until another does | former-channels, holder-noted |
//! | who was followed is not let in again | followed, writer |
//! | who has ended is not let in late, nor after another: `world::witness` | order, both tickets |
//! | a living session is not displaced by a clone: the same | holder-asked |
//! | what was told to be done after a loss is there: the history | redo |
//! | what must be dropped is not executed | stale, whole-frames, ranges |
//! | a slot is used again only when it was answered | slots |
//! | every host says which pages it uses: `run` | credit |
//! | and uses no others: `world` | credit-early |
//! | nothing is modified for who may only read | read-only |
//! | operations end: `run` | acks |
//! | congestion is told as often as it was marked: `world::witness` | marks |
//! | a key seals no two frames with one number: `world::seals` | numbers |
//! | sealed frames are taken that were sent, each once: the same | replays, tag |
//! | a host with keys is told by its target alone: `world::witness` | downgrade |
//! | who was evicted is with the disk no more: `world::evictions` | evicted |
//! | an export that was given up has no request: `world::removals` | removed |
//! | strangers get no answer of a silent target: `world::witness` | silence |
//! | an answer over UDP is no longer than its question: the same | answers |

use std::cell::Cell;
use std::time::Duration;

use tyche_proto::{CHANNEL_PAGES, Rule, Rules};

use crate::fcoe;
use crate::mistake::{self, Canaries, Mistake};
use crate::options::Options;
use crate::plan::{Plan, Profile};
use crate::report::Caught;
use crate::run::run_with;

const CANARIES: &Canaries<Rule, Plan> = &[
    ("duplicates", Mistake::Rule(Rule::SuppressDuplicates)),
    ("completions", Mistake::Rule(Rule::RememberExecuted)),
    ("cookie", Mistake::Rule(Rule::CheckCookie)),
    ("payload", Mistake::Rule(Rule::CheckPayload)),
    ("fence", Mistake::Rule(Rule::FenceBeforeReissue)),
    ("fenced-open", Mistake::Rule(Rule::CloseBeforeFenced)),
    ("fenced-busy", Mistake::Rule(Rule::DrainBeforeFenced)),
    ("lost-cache", Mistake::Rule(Rule::LostCacheFailsFlush)),
    ("queues", Mistake::Rule(Rule::CoverAllQueues)),
    ("former-channels", Mistake::Rule(Rule::CloseFormer)),
    ("former-generation", Mistake::Rule(Rule::RememberFormerGeneration)),
    ("flush", Mistake::World(|plan| plan.disk.flush_lies = true)),
    ("flush-early", Mistake::RuleIn(Rule::DoubtFlush, fail_flushes)),
    ("flush-other", Mistake::Rule(Rule::OneGeneration)),
    ("flush-twice", Mistake::Rule(Rule::TellOnce)),
    ("status", Mistake::World(tell_the_medium)),
    ("sync-error", Mistake::World(|plan| plan.disk.errors_forgotten = true)),
    ("fence-failed", Mistake::RuleIn(Rule::FenceFailed, lose_single_queues)),
    ("forget-failed", Mistake::Rule(Rule::ForgetFailed)),
    ("fail-together", Mistake::RuleIn(Rule::FailTogether, lose_single_queues)),
    ("outcomes", Mistake::Rule(Rule::UseOutcomes)),
    ("generation", Mistake::World(|plan| plan.restores_unnoticed = true)),
    ("followed", Mistake::Rule(Rule::RefuseFollowed)),
    ("stale", Mistake::Rule(Rule::RejectStale)),
    ("key-alive", Mistake::Rule(Rule::EndPlacement)),
    ("slots", Mistake::Rule(Rule::HoldSlots)),
    ("credit", Mistake::Rule(Rule::RepeatCredit)),
    ("credit-early", Mistake::RuleIn(Rule::DrainBeforeCredit, lack_memory)),
    ("read-only", Mistake::Rule(Rule::EnforceReadOnly)),
    ("whole-frames", Mistake::Rule(Rule::TakeFramesWhole)),
    ("ranges", Mistake::Rule(Rule::TrackRanges)),
    ("redo", Mistake::Rule(Rule::RedoLost)),
    ("writer", Mistake::Rule(Rule::KeepWriter)),
    ("ticket", Mistake::Rule(Rule::CheckTicket)),
    ("order", Mistake::Rule(Rule::CheckOrder)),
    ("holder-asked", Mistake::Rule(Rule::ProbeHolder)),
    ("fence-after-reset", Mistake::Rule(Rule::FenceAfterReset)),
    ("fence-after-lost-cache", Mistake::Rule(Rule::FenceAfterLostCache)),
    ("holder-noted", Mistake::Rule(Rule::NoteHolder)),
    ("acks", Mistake::Rule(Rule::AckInOrder)),
    ("marks", Mistake::Rule(Rule::TellMarkOnce)),
    ("answers", Mistake::Rule(Rule::BoundAnswers)),
    ("numbers", Mistake::Rule(Rule::RenumberResent)),
    ("replays", Mistake::Rule(Rule::RejectReplays)),
    ("tag", Mistake::Rule(Rule::CheckTag)),
    ("sealed-ticket", Mistake::RuleIn(Rule::CheckTicket, |plan| plan.keyed = true)),
    ("downgrade", Mistake::Rule(Rule::RefuseClear)),
    ("evicted", Mistake::Rule(Rule::DrainBeforeEvicted)),
    ("removed", Mistake::Rule(Rule::DrainBeforeRemoved)),
    ("silence", Mistake::Rule(Rule::StaySilent)),
];

/// Queues lose the target one by one, and their operations fail soon, while the disk is slow.
fn lose_single_queues(plan: &mut Plan) {
    for host in &mut plan.hosts {
        (host.queues, host.pauses) = (3, 0.01);
        host.keep_alive = Duration::from_millis(100);
        host.fast_io_fail_tmo = Some(Duration::from_millis(20));
    }
    plan.disk.hiccups = 0.2;
}

/// Flushes fail often, and others are with the disk meanwhile.
fn fail_flushes(plan: &mut Plan) {
    (plan.disk.write_cache, plan.disk.sync_errors) = (true, 0.2);
    plan.hosts.iter_mut().for_each(|host| host.mix.flush = host.mix.flush.max(10));
}

/// Busy hosts with long requests want more memory than the target has.
fn lack_memory(plan: &mut Plan) {
    plan.target.memory_pages = plan.hosts.len() as u64 * 16 * CHANNEL_PAGES + 600;
    plan.target.damq_pages_max = 1024;
    for host in &mut plan.hosts {
        (host.depth, host.mix.len_max) = (64, 256 << 10);
    }
}

/// The disk does not look into its cache when it tells which ranges are holes.
fn tell_the_medium(plan: &mut Plan) {
    (plan.disk.status_lies, plan.disk.write_cache) = (true, true);
    plan.hosts.iter_mut().for_each(|host| host.mix.status = 20);
}

thread_local! {
    /// The rule that is off in the runs of this thread.
    static OFF: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// The build with one rule off. It is one build for all rules: to compile the protocol and the
/// world for each would take minutes.
#[derive(Clone, Copy, Debug)]
struct Broken;

impl Rules for Broken {
    fn keeps(rule: Rule) -> bool {
        OFF.get() != Some(rule)
    }
}

/// Names of all canaries of the worlds of a profile.
pub fn canaries(profile: Profile) -> Vec<&'static str> {
    match profile {
        Profile::Fcoe => fcoe::canaries(),
        Profile::Mixed | Profile::MultiLink => mistake::names(CANARIES),
    }
}

/// Runs a canary with `seeds` seeds of the profile, from `first` on, until the checker catches it.
///
/// # Panics
/// If there is no canary of that name.
pub fn hunt(name: &str, profile: Profile, first: u64, seeds: u64) -> Option<Caught> {
    if profile == Profile::Fcoe {
        return fcoe::hunt(name, first, seeds);
    }
    mistake::hunt(CANARIES, name, (first, seeds), |seed, rule, adjust| {
        OFF.set(rule);
        run_with::<Broken>(seed, Options { profile, adjust, ..Options::default() })
    })
}
