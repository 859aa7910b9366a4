//! Strangers on the segments: programs that follow the protocol and do not belong to the session,
//! copies of hosts, and a forger.
//!
//! The forger reads all frames of its segments. It sends exact copies of them at any later time, on
//! any of its segments, from the original address or its own, and frames that it has made up. Every
//! one of them has to be harmless: at worst a session pauses. It does not forge the frames that
//! docs/protocol-annexes.md, "What is promised without keys", lists as not protected against:
//!
//! | not forged | would be |
//! |---|---|
//! | Connect with a good ticket, from the ticket's address | somebody who connects on purpose |
//! | Accept that answers a fresh attempt, from the right address | everything that a target can do |
//! | Reject of such a kind | the end of the session |
//! | Offer of another disk or target, with a fresh nonce | somebody who offers a disk on purpose |
//! | Command, Data, Void, Ack, Fenced with all that the receiver expects | requests, answers |
//! | packet numbers far ahead | the channel is lost |
//!
//! So from the right address, and with the right cookie, it forges Reset, Disconnect, Fence and
//! Keepalive; from others, on other links and with old cookies or attempts, all kinds.
//!
//! In worlds with keys it forges all of these and more, from what it has read: none of it may be
//! executed, or end or move a session, or reset a channel.

use std::time::Duration;

use crate::random::Random;

/// The plan of strangers, copies and old frames in a run. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct Strangers {
    /// A target that does not belong to the session.
    pub target: Option<StrangerPlan>,
    /// A host with the UUID of another.
    pub clone: Option<ClonePlan>,
    /// A forger: it reads frames, repeats them and makes up others.
    pub forger: Option<ForgerPlan>,
    /// Frames from before are still on their way when the target or a host begins anew.
    pub former_lives: bool,
    /// Probability that all Connects of an attempt are on their way for seconds.
    pub held: f64,
    /// Probability that a link of the target or of a host receives each frame twice.
    pub twice: f64,
    /// The host of that index opens the first of its channels for reading only.
    pub reads_first: Option<usize>,
}

/// A target with a UUID of its own, and a host of it.
#[derive(Clone, Debug)]
pub struct StrangerPlan {
    /// The segments that it is on.
    pub segments: Vec<usize>,
    /// Its export has the name of the target's. Then hosts are told which target they want.
    pub namesake: bool,
    /// It receives all frames of its segments, also those for others.
    pub hears_all: bool,
}

/// A copy of a host's machine.
#[derive(Clone, Debug)]
pub struct ClonePlan {
    /// The host whose UUID it has.
    pub of: usize,
    /// The time at which it begins.
    pub begins: Duration,
}

/// A forger of frames.
#[derive(Clone, Debug)]
pub struct ForgerPlan {
    /// The segment that it is on; `None`: all.
    pub segment: Option<usize>,
    /// Mean time between two of its frames.
    pub pause: Duration,
    /// It repeats frames only, and makes up none.
    pub repeats_only: bool,
}

impl Strangers {
    /// Draws the strangers of a seed. `steady`: none that could stop a host.
    pub(super) fn draw(
        random: &mut Random,
        (segments, hosts): (usize, usize),
        steady: bool,
    ) -> Self {
        let of = |random: &mut Random, count: usize| random.below(count as u64) as usize;
        let target = random.chance(0.25).then(|| StrangerPlan {
            segments: (0..segments).filter(|_| random.chance(0.7)).collect(),
            namesake: random.chance(0.5),
            hears_all: random.chance(0.3),
        });
        let clone = random.chance(0.2).then(|| ClonePlan {
            of: of(random, hosts),
            begins: Duration::from_millis(random.below(1000)),
        });
        let forger = random.chance(0.25).then(|| ForgerPlan {
            segment: random.chance(0.3).then(|| of(random, segments)),
            pause: Duration::from_millis(random.pick(&[5, 20, 100])),
            repeats_only: random.chance(0.3),
        });
        let former_lives = random.chance(0.3);
        let held = if random.chance(0.25) { random.pick(&[0.1, 0.5]) } else { 0.0 };
        let twice = if random.chance(0.1) { 0.5 } else { 0.0 };
        // A host that reads only for a moment loses the export to its clone: not both.
        let reads_first = random.chance(0.05).then(|| of(random, hosts));
        let reads_first = reads_first.filter(|_| clone.is_none());
        let drawn = Self { target, clone, forger, former_lives, held, twice, reads_first };
        if !steady {
            return drawn;
        }
        Self { target: drawn.target, twice: drawn.twice, ..Self::default() }
    }
}
