//! The requests of a thread that wait: at limits, or for the turn of their host while several are
//! active. There is a line for each host and export.
//!
//! A request waits after all of its data have come, and before it is given to its disk. It is held
//! back in its channel meanwhile, which is closed without it. Lines of a thread take turns; those
//! of several threads do at each limiter ([`Line`]).

use std::sync::Arc;
use std::time::Duration;

use tyche_engine::{Limiter, Line, Step};
use tyche_proto::Instant;
use tyche_proto::wire::{ChannelId, Command};

/// How long a host counts as active after its last request.
const ACTIVE_FOR: Duration = Duration::from_millis(10);
/// How often is looked which hosts are active.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The most that a host may cost in a turn of the loop while several are active: 16 requests of 4
/// KiB. Less: fewer answers share a system call. More: a host with many requests in flight has a
/// larger share.
const QUANTUM: u32 = 128 << 10;
/// The cost of a request besides that of its bytes, in bytes.
const REQUEST_COST: u32 = 4 << 10;

/// Returns the cost of a request that moves `len` bytes.
fn cost(len: u32) -> u32 {
    len + REQUEST_COST
}

/// The limits that the requests of a host at an export are subject to.
pub(super) struct Limits {
    /// The export's limit. A line may outlive the disk.
    export: Arc<Limiter>,
    /// The host's limit, if it is known by a name.
    host: Option<Arc<Limiter>>,
}

impl Limits {
    pub(super) fn new(export: Arc<Limiter>, host: Option<Arc<Limiter>>) -> Self {
        Self { export, host }
    }

    fn limiters(&self) -> impl Iterator<Item = &Limiter> + Clone {
        std::iter::once(&*self.export).chain(self.host.as_deref())
    }

    fn are_set(&self) -> bool {
        self.limiters().any(Limiter::is_limited)
    }
}

/// A line with its limits.
struct Limited {
    limits: Limits,
    line: Line<(ChannelId, Command)>,
    /// When its last request came.
    active_at: Instant,
    /// The cost that is left to it in this turn of the loop.
    credit: u32,
}

/// A request whose turn has come.
pub(super) struct Turn {
    pub(super) channel: ChannelId,
    pub(super) command: Command,
    /// The number of its line.
    pub(super) line: usize,
    /// How long it has waited at a limit.
    pub(super) waited: Duration,
}

/// The lines of a thread. Their numbers are those of its [uses](super::uses::Uses).
///
/// While several hosts are active, all their requests stand in lines, and a turn of the thread's
/// loop starts some of each: otherwise a thread that has no time left would serve each host by how
/// many requests it has in flight. The others wait in the lines instead of the link's receive ring
/// (deficit round robin, Shreedhar and Varghese 1995).
#[derive(Default)]
pub(super) struct Lines {
    lines: Vec<Limited>,
    /// Those in which requests wait.
    busy: Vec<usize>,
    /// Whether several are active, and when that was looked at.
    is_shared: bool,
    looked_at: Instant,
}

impl Lines {
    /// Sets the limits of a line, to which a channel is added.
    pub(super) fn open(&mut self, line: usize, limits: Limits) {
        if let Some(limited) = self.lines.get_mut(line) {
            limited.limits = limits;
            return;
        }
        // Those who have left have numbers as well, and no channels.
        while self.lines.len() <= line {
            let limits = Limits::new(Arc::clone(&limits.export), limits.host.clone());
            let (line, active_at, credit) = (Line::default(), Instant(0), 0);
            self.lines.push(Limited { limits, line, active_at, credit });
        }
    }

    /// Removes the requests of a channel, which are not executed.
    pub(super) fn close(&mut self, line: usize, channel: ChannelId) {
        self.lines[line].line.retain(|(of, _)| *of != channel);
        if self.lines[line].line.is_empty() {
            self.busy.retain(|busy| *busy != line);
        }
    }

    /// Whether a request that has come need not stand in its line: there are no limits, no others
    /// are before it, and no other host is active.
    #[inline]
    pub(super) fn passes(&mut self, now: Instant, line: usize) -> bool {
        let Limited { limits, line, active_at, .. } = &mut self.lines[line];
        *active_at = now;
        line.is_empty() && !self.is_shared && !limits.are_set()
    }

    /// Puts a request at the end of a line.
    pub(super) fn push(&mut self, now: Instant, line: usize, (of, command): (ChannelId, Command)) {
        let waiting = &mut self.lines[line].line;
        if waiting.is_empty() {
            self.busy.push(line);
        }
        let len = if command.opcode.has_data() { command.len } else { 0 };
        waiting.push(now, (of, command), len);
    }

    /// Begins a turn of the loop.
    pub(super) fn begin_turn(&mut self, now: Instant) {
        if now.since(self.looked_at) >= LOOK_EVERY {
            self.looked_at = now;
            let active = self.lines.iter().filter(|it| now.since(it.active_at) < ACTIVE_FOR);
            self.is_shared = active.count() > 1;
        }
        for &line in &self.busy {
            let Limited { limits, credit, line, .. } = &mut self.lines[line];
            line.look(now, limits.limiters());
            let most = cost(line.first_len().unwrap_or_default()).max(QUANTUM);
            let more = credit.saturating_add(QUANTUM).min(most);
            *credit = if self.is_shared { more } else { u32::MAX };
        }
    }

    /// The next request that is to be started in this turn of the loop.
    pub(super) fn next(&mut self, now: Instant) -> Option<Turn> {
        loop {
            let places = (0..self.busy.len()).filter(|place| self.has_credit(*place));
            let place = places.min_by_key(|place| self.next_at_of(*place))?;
            self.next_at_of(place).filter(|at| *at <= now)?;
            let number = self.busy[place];
            let Limited { limits, line, credit, .. } = &mut self.lines[number];
            let cost = cost(line.first_len().unwrap_or_default());
            let step = line.step(now, limits.limiters());
            if line.is_empty() {
                self.busy.swap_remove(place);
            }
            if let Step::Passes((channel, command), waited) = step {
                *credit = if line.is_empty() { 0 } else { *credit - cost };
                let waited = if limits.are_set() { waited } else { Duration::ZERO };
                return Some(Turn { channel, command, line: number, waited });
            }
        }
    }

    fn has_credit(&self, place: usize) -> bool {
        let Limited { line, credit, .. } = &self.lines[self.busy[place]];
        line.first_len().is_some_and(|len| cost(len) <= *credit)
    }

    fn next_at_of(&self, place: usize) -> Option<Instant> {
        self.lines[self.busy[place]].line.next_at()
    }

    /// When the turn of a request may have come.
    pub(super) fn next_at(&self) -> Option<Instant> {
        (0..self.busy.len()).filter_map(|place| self.next_at_of(place)).min()
    }

    /// Number of requests in a line that wait at a limit.
    pub(super) fn waiting(&self, line: usize) -> usize {
        let limited = self.lines.get(line).filter(|limited| limited.limits.are_set());
        limited.map_or(0, |limited| limited.line.len())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use tyche_engine::{Exported, RateLimit};
    use tyche_proto::wire::{CommandFlags, Opcode, Tag};
    use tyche_store::null::NullStore;

    use super::*;

    const START: Instant = Instant(1_000_000_000_000);

    fn command(opcode: Opcode, len: u32) -> Command {
        let (flags, tag) = (CommandFlags::NONE, Tag { slot: 0, generation: 0 });
        Command { opcode, flags, tag, offset: 0, len, damq_page: 0 }
    }

    fn export() -> Arc<Exported> {
        let store = NullStore::new(1 << 20, 512).expect("a size");
        Arc::new(Exported::new("a".to_owned(), Arc::new(store)))
    }

    /// As many lines of an export.
    fn lines(export: &Arc<Exported>, count: usize) -> Lines {
        let mut lines = Lines::default();
        (0..count)
            .for_each(|line| lines.open(line, Limits::new(Arc::clone(export.limiter()), None)));
        lines
    }

    fn push(lines: &mut Lines, now: Instant, line: usize, len: u32) {
        if lines.passes(now, line) {
            // The caller starts it.
            return;
        }
        lines.push(now, line, (ChannelId(line as u16), command(Opcode::Read, len)));
    }

    /// Two hosts with so many requests of a length in flight, and a thread that is always busy: it
    /// has a round trip of one turn. Returns how many bytes of each are started.
    fn shares(hosts: [(u32, u32); 2]) -> [u64; 2] {
        let mut lines = lines(&export(), 2);
        let mut outstanding = [0; 2];
        let mut started = [0; 2];
        for turn in 0..1000 {
            let now = START.plus_ns(turn * 100_000);
            for (line, (depth, len)) in hosts.into_iter().enumerate() {
                (outstanding[line]..depth).for_each(|_| push(&mut lines, now, line, len));
                outstanding[line] = depth;
            }
            lines.begin_turn(now);
            while let Some(Turn { line, command, .. }) = lines.next(now) {
                outstanding[line] -= 1;
                started[line] += u64::from(command.len);
            }
        }
        started
    }

    #[test]
    fn hosts_on_a_busy_thread_have_shares_that_depend_little_on_their_depths() {
        let [deep, shallow] = shares([(128, 4096), (8, 4096)]);
        assert!(deep <= shallow * 2 + deep / 20, "{deep} and {shallow}");
        let [large, small] = shares([(32, 1 << 20), (32, 4096)]);
        assert!(large <= small * 2 + large / 20, "{large} and {small}");
    }

    #[test]
    fn a_host_that_is_alone_does_not_stand_in_line() {
        let mut lines = lines(&export(), 2);
        for turn in 0..100 {
            let now = START.plus_ns(turn * 1_000_000);
            assert!(lines.passes(now, 0));
            lines.begin_turn(now);
        }
        let later = START.plus_ns(100_000_000);
        assert!(lines.passes(later, 1), "it has just come");
        lines.begin_turn(later.plus_ns(1_000_000));
        assert!(!lines.passes(later.plus_ns(1_000_000), 1), "both are active");
        let much_later = later.plus_ns(20_000_000);
        assert!(!lines.passes(much_later, 1));
        lines.begin_turn(much_later);
        assert!(lines.passes(much_later, 1), "the other is not active any more");
    }

    #[test]
    fn all_that_is_in_line_is_started_when_a_host_is_alone_again() {
        let export = export();
        let mut lines = lines(&export, 1);
        let (iops, bytes_per_second) = (NonZeroU64::new(1), None);
        export.limiter().set(RateLimit { iops, bytes_per_second });
        (0..100).for_each(|_| push(&mut lines, START, 0, 1 << 20));
        assert_eq!(lines.waiting(0), 100);
        export.limiter().set(RateLimit::default());
        lines.begin_turn(START);
        assert_eq!(std::iter::from_fn(|| lines.next(START)).count(), 100);
        assert_eq!((lines.waiting(0), lines.next_at()), (0, None));
    }

    #[test]
    fn requests_of_a_channel_that_is_closed_are_gone() {
        let export = export();
        let mut lines = lines(&export, 2);
        let (iops, bytes_per_second) = (NonZeroU64::new(1), None);
        export.limiter().set(RateLimit { iops, bytes_per_second });
        for line in [0, 1, 0, 1] {
            push(&mut lines, START, line, 512);
        }
        lines.close(0, ChannelId(0));
        assert_eq!([lines.waiting(0), lines.waiting(1)], [0, 2]);
        lines.begin_turn(START);
        let started: Vec<_> = std::iter::from_fn(|| lines.next(START)).map(|it| it.line).collect();
        assert_eq!(started, [1], "at one in a second");
        assert!(lines.next_at() > Some(START));
    }
}
