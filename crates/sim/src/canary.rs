//! Canaries: builds with one safety rule off. The checker must catch each, or it would not catch
//! mistakes either.
//!
//! | check | canaries that it catches, as a rule |
//! |---|---|
//! | a read returns what it can: [`history`](crate::history) | duplicates |
//! | what is durable is there: the same | lost-cache, queues, former-boot, flush, sync-error |
//! | a session is told of a restored target: the same | generation |
//! | a write is executed with its own data | payload |
//! | nothing is executed that was answered | completions, cookie |
//! | nothing is answered while it is executed | fence, fenced-open, fenced-busy |
//! | the same, across generations of what is served | fence-after-lost-cache |
//! | nothing is executed twice in a run of the target | outcomes, fence-after-reset |
//! | one session writes, until another does | former-channels, holder-noted |
//! | who was followed is not let in again | followed, writer |
//! | who has ended is not let in late, nor after another: `world::witness` | ticket, order |
//! | a living session is not displaced by a clone: the same | holder-asked |
//! | what was told to be done after a loss is there: the history | redo |
//! | what must be dropped is not executed | stale, whole-frames, ranges |
//! | a slot is used again only when it was answered | slots |
//! | nothing is modified for who may only read | read-only |
//! | operations end: `run` | acks |
//! | congestion is told as often as it was marked: `world::witness` | marks |
//! | an answer over UDP is no longer than its question: the same | answers |

use tyche_proto::{Rules, Sound};

use crate::fcoe;
use crate::plan::{Plan, Profile};
use crate::report::Violation;
use crate::run::{Options, run_with};

/// A canary that was caught.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The first seed that caught it.
    pub seed: u64,
    /// The violation that was found.
    pub violation: Violation,
}

macro_rules! broken {
    ($($name:ident: $rule:ident;)*) => {
        $(
            #[derive(Clone, Copy, Debug)]
            struct $name;

            impl Rules for $name {
                const $rule: bool = false;
            }
        )*
    };
}

broken! {
    AcceptsDuplicates: SUPPRESS_DUPLICATES;
    IgnoresCookies: CHECK_COOKIE;
    IgnoresPayload: CHECK_PAYLOAD;
    ReissuesUnfenced: FENCE_BEFORE_REISSUE;
    ConfirmsOpenFences: CLOSE_BEFORE_FENCED;
    ConfirmsBusyFences: DRAIN_BEFORE_FENCED;
    ForgetsExecuted: REMEMBER_EXECUTED;
    ForgetsLostCache: LOST_CACHE_FAILS_FLUSH;
    CoversOwnQueue: COVER_ALL_QUEUES;
    ResumesBesideFormer: CLOSE_FORMER;
    ForgetsFormerBoot: REMEMBER_FORMER_BOOT;
    IgnoresOutcomes: USE_OUTCOMES;
    AdmitsFollowed: REFUSE_FOLLOWED;
    TakesStale: REJECT_STALE;
    ReusesSlots: HOLD_SLOTS;
    WritesReadOnly: ENFORCE_READ_ONLY;
    TakesFramesInPart: TAKE_FRAMES_WHOLE;
    CountsBytes: TRACK_RANGES;
    ForgetsLostParts: REDO_LOST;
    ForgetsWriter: KEEP_WRITER;
    IgnoresTickets: CHECK_TICKET;
    IgnoresOrder: CHECK_ORDER;
    AsksNobody: PROBE_HOLDER;
    ReissuesAfterReset: FENCE_AFTER_RESET;
    ReissuesAfterLostCache: FENCE_AFTER_LOST_CACHE;
    ForgetsHolder: NOTE_HOLDER;
    AcksBeyondGaps: ACK_IN_ORDER;
    RepeatsMarks: TELL_MARK_ONCE;
    AnswersAtLength: BOUND_ANSWERS;
}

const CANARIES: [&str; 32] = [
    "duplicates",
    "completions",
    "cookie",
    "payload",
    "fence",
    "fenced-open",
    "fenced-busy",
    "lost-cache",
    "queues",
    "former-channels",
    "former-boot",
    "flush",
    "sync-error",
    "outcomes",
    "generation",
    "followed",
    "stale",
    "slots",
    "read-only",
    "whole-frames",
    "ranges",
    "redo",
    "writer",
    "ticket",
    "order",
    "holder-asked",
    "fence-after-reset",
    "fence-after-lost-cache",
    "holder-noted",
    "acks",
    "marks",
    "answers",
];

/// Names of all canaries of a profile.
pub fn canaries(profile: Profile) -> &'static [&'static str] {
    if profile == Profile::Fcoe { &fcoe::CANARIES } else { &CANARIES }
}

/// Runs a canary with `seeds` seeds of the profile, from `first` on, until the checker catches it.
///
/// # Panics
/// If there is no canary of that name.
pub fn hunt(name: &str, profile: Profile, first: u64, seeds: u64) -> Option<Caught> {
    if profile == Profile::Fcoe {
        return fcoe::hunt(name, first, seeds);
    }
    let run_one = match name {
        "duplicates" => run_with::<AcceptsDuplicates>,
        "cookie" => run_with::<IgnoresCookies>,
        "payload" => run_with::<IgnoresPayload>,
        "completions" => run_with::<ForgetsExecuted>,
        "fenced-open" => run_with::<ConfirmsOpenFences>,
        "fenced-busy" => run_with::<ConfirmsBusyFences>,
        "fence" => run_with::<ReissuesUnfenced>,
        "lost-cache" => run_with::<ForgetsLostCache>,
        "queues" => run_with::<CoversOwnQueue>,
        "former-channels" => run_with::<ResumesBesideFormer>,
        "former-boot" => run_with::<ForgetsFormerBoot>,
        "outcomes" => run_with::<IgnoresOutcomes>,
        "followed" => run_with::<AdmitsFollowed>,
        "stale" => run_with::<TakesStale>,
        "slots" => run_with::<ReusesSlots>,
        "read-only" => run_with::<WritesReadOnly>,
        "whole-frames" => run_with::<TakesFramesInPart>,
        "ranges" => run_with::<CountsBytes>,
        "redo" => run_with::<ForgetsLostParts>,
        "writer" => run_with::<ForgetsWriter>,
        "ticket" => run_with::<IgnoresTickets>,
        "order" => run_with::<IgnoresOrder>,
        "holder-asked" => run_with::<AsksNobody>,
        "fence-after-reset" => run_with::<ReissuesAfterReset>,
        "fence-after-lost-cache" => run_with::<ReissuesAfterLostCache>,
        "holder-noted" => run_with::<ForgetsHolder>,
        "acks" => run_with::<AcksBeyondGaps>,
        "marks" => run_with::<RepeatsMarks>,
        "answers" => run_with::<AnswersAtLength>,
        "flush" | "sync-error" | "generation" => run_with::<Sound>,
        other => panic!("there is no canary {other}; there are {CANARIES:?}"),
    };
    let adjust: Option<fn(&mut Plan)> = match name {
        "flush" => Some(|plan| plan.disk.flush_lies = true),
        "sync-error" => Some(|plan| plan.disk.errors_forgotten = true),
        "generation" => Some(|plan| plan.restores_unnoticed = true),
        _ => None,
    };
    (first..first + seeds).find_map(|seed| {
        let options = Options { profile, adjust, ..Options::default() };
        let violation = *run_one(seed, options).err()?;
        Some(Caught { seed, violation })
    })
}
