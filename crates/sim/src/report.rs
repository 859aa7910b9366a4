//! Result of a run: counters, or a violation.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use tyche_proto::Instant;
use tyche_remote::Notice;

use crate::plan::Profile;

/// Counters of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations submitted.
    pub operations: u64,
    /// Operations that succeeded.
    pub succeeded: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that vanished with their hosts.
    pub vanished: u64,
    /// Frames sent.
    pub frames: u64,
    /// Frames that were lost on the way, for any reason.
    pub drops: u64,
    /// Frames that were damaged on the way.
    pub corrupted: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames that arrived at a later channel of the same index.
    pub late: u64,
    /// Trains of datagrams that were sent.
    pub trains: u64,
    /// Those that were lost, or lost some of their datagrams.
    pub torn_trains: u64,
    /// Datagrams that the network has marked as congested.
    pub marks: u64,
    /// Times that a link of a host got another address on its way through routers.
    pub rebinds: u64,
    /// Frames sent again.
    pub retransmissions: u64,
    /// Frames received with a position that had been received before.
    pub duplicates: u64,
    /// Retransmission timers that expired.
    pub timeouts: u64,
    /// Channels that were opened.
    pub channels: u64,
    /// Times that a session was connected, for the first time or again.
    pub connections: u64,
    /// Sessions that failed.
    pub failures: u64,
    /// Times that a queue failed its operations early, while its session went on.
    pub failed_early: u64,
    /// Times that such a queue took operations again.
    pub resumed: u64,
    /// Deaths of the target.
    pub target_crashes: u64,
    /// Deaths of the target with loss of the disk's cache.
    pub caches_lost: u64,
    /// Times that a session was told of such a loss.
    pub losses_told: u64,
    /// Deaths of hosts.
    pub host_crashes: u64,
    /// Deaths of the forwarder of a fabric.
    pub forwarder_crashes: u64,
    /// Times that it ended all logins.
    pub links_cleared: u64,
    /// Times that a host was evicted from its export.
    pub evictions: u64,
    /// Times that an export was removed.
    pub removals: u64,
    /// Times that a link of the target was removed.
    pub unlinks: u64,
    /// Times that the target's key was changed.
    pub key_changes: u64,
    /// Times that the limits of exports were changed.
    pub limit_changes: u64,
    /// Deaths of programs whose devices were left for others.
    pub daemon_deaths: u64,
    /// Operations that such programs left unanswered.
    pub reissued: u64,
    /// Sessions that were refused because others had written since.
    pub shut_out: u64,
    /// Sectors that a status has told as holes.
    pub holes: u64,
    /// Requests that the disk failed.
    pub disk_errors: u64,
    /// Flushes and writes with FUA that failed because a write-back failed, then or before.
    pub sync_errors: u64,
    /// Requests that hung.
    pub hangs: u64,
    /// Sectors that were torn when the target's machine went down.
    pub torn: u64,
    /// Sectors that changed by themselves.
    pub rotten: u64,
    /// Times that an export got another generation in the same run of the target.
    pub renewals: u64,
    /// Times that the target's machine was restored from a snapshot.
    pub restores: u64,
    /// Deaths of the target between the execution of a request and its answer.
    pub unanswered: u64,
    /// Times that the target came back with other addresses.
    pub moves: u64,
    /// Times that the target, a host or the disk did nothing for a while.
    pub freezes: u64,
    /// Times that a segment was cut.
    pub cuts: u64,
    /// Times that all segments were cut together.
    pub blackouts: u64,
    /// Times that a link began to lose frames in one direction.
    pub one_ways: u64,
    /// Times that a segment began to drop long frames.
    pub narrowed: u64,
    /// Times that a link was taken out of a session.
    pub relinks: u64,
    /// Fences and their answers.
    pub fences: u64,
    /// Times that a segment was cut when it carried a fence or an answer to one.
    pub fence_cuts: u64,
    /// Frames of the host that breaks the protocol.
    pub broken: u64,
    /// The longest time that an operation took.
    pub slowest: Duration,
    /// Time from the end of all operations until all links were live again.
    pub rejoined: Duration,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Copies of earlier frames, sent by the forger or delivered late.
    pub repeated: u64,
    /// Frames that were forged.
    pub forged: u64,
    /// Connects that were delayed for seconds.
    pub held: u64,
    /// Hash of everything that happened: the same for the same seed.
    pub trace_hash: u64,
}

impl Report {
    pub(crate) fn note(&mut self, notice: &Notice) {
        match notice {
            Notice::Connected(_) => self.connections += 1,
            Notice::Failed(_) => self.failures += 1,
            Notice::FailsFast => self.failed_early += 1,
            Notice::Resumed => self.resumed += 1,
            Notice::CacheLost => self.losses_told += 1,
            _ => {}
        }
    }

    /// Times that a host lost a link, or may have lost one.
    pub(crate) fn outages(&self) -> u64 {
        self.cuts + self.one_ways + self.narrowed + self.relinks + self.rebinds
    }

    pub(crate) fn completed(&mut self, is_success: bool) {
        if is_success {
            self.succeeded += 1;
        } else {
            self.failed += 1;
        }
    }
}

/// Adds the counters of runs, in any order.
impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.vanished += other.vanished;
        self.holes += other.holes;
        self.frames += other.frames;
        self.drops += other.drops;
        self.corrupted += other.corrupted;
        self.duplicated += other.duplicated;
        self.late += other.late;
        self.trains += other.trains;
        self.torn_trains += other.torn_trains;
        self.marks += other.marks;
        self.rebinds += other.rebinds;
        self.retransmissions += other.retransmissions;
        self.duplicates += other.duplicates;
        self.timeouts += other.timeouts;
        self.channels += other.channels;
        self.connections += other.connections;
        self.failures += other.failures;
        self.failed_early += other.failed_early;
        self.resumed += other.resumed;
        self.target_crashes += other.target_crashes;
        self.caches_lost += other.caches_lost;
        self.losses_told += other.losses_told;
        self.host_crashes += other.host_crashes;
        self.forwarder_crashes += other.forwarder_crashes;
        self.links_cleared += other.links_cleared;
        self.evictions += other.evictions;
        self.removals += other.removals;
        self.unlinks += other.unlinks;
        self.key_changes += other.key_changes;
        self.limit_changes += other.limit_changes;
        self.daemon_deaths += other.daemon_deaths;
        self.reissued += other.reissued;
        self.shut_out += other.shut_out;
        self.disk_errors += other.disk_errors;
        self.sync_errors += other.sync_errors;
        self.hangs += other.hangs;
        self.torn += other.torn;
        self.rotten += other.rotten;
        self.renewals += other.renewals;
        self.restores += other.restores;
        self.unanswered += other.unanswered;
        self.moves += other.moves;
        self.freezes += other.freezes;
        self.cuts += other.cuts;
        self.blackouts += other.blackouts;
        self.one_ways += other.one_ways;
        self.narrowed += other.narrowed;
        self.relinks += other.relinks;
        self.fences += other.fences;
        self.fence_cuts += other.fence_cuts;
        self.broken += other.broken;
        self.slowest = self.slowest.max(other.slowest);
        self.rejoined = self.rejoined.max(other.rejoined);
        self.virtual_time += other.virtual_time;
        self.repeated += other.repeated;
        self.forged += other.forged;
        self.held += other.held;
        self.trace_hash ^= other.trace_hash;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations ({} failed), {} frames ({} lost, {} sent again), {} channels, \
             {} fences, {} cuts of segments, {} crashes of the target, {} of hosts, {:.1} s",
            self.operations,
            self.failed,
            self.frames,
            self.drops,
            self.retransmissions,
            self.channels,
            self.fences,
            self.cuts,
            self.target_crashes,
            self.host_crashes,
            self.virtual_time.as_secs_f64()
        )
    }
}

/// A violation: something that must never happen has happened.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The profile that the seed was drawn with.
    pub profile: Profile,
    /// Virtual time of the violation.
    pub at: Instant,
    /// Description of the violation.
    pub what: String,
    /// The events just before it.
    pub recent: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.recent {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "{:>14.3} ms  VIOLATION: {}", self.at.0 as f64 / 1e6, self.what)?;
        let profile = match self.profile {
            Profile::Mixed => "",
            Profile::MultiLink => " --multi-link",
            Profile::Fcoe => " --fcoe",
        };
        write!(f, "seed {0}; to see it again: tyche-lab sim --seed {0}{profile}", self.seed)
    }
}

impl std::error::Error for Violation {}

/// A canary that was caught.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The first seed that caught it.
    pub seed: u64,
    /// The violation that was found.
    pub violation: Violation,
}

/// The words of an assertion that has failed in a state machine: a finding like any other.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a state machine panicked: {}", text.unwrap_or("without a word"))
}
