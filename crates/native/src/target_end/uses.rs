//! What hosts have had done at exports, counted by the thread that their channels are of.

use std::time::Duration;

use tyche_block::{Errno, OperationKind};
use tyche_counters::counters;
use tyche_proto::{ExportKey, HostId, Instant};

/// The most pairs of a host and an export that a thread tells apart. Of more, those that have no
/// channel open are counted together, as one host that nobody is, at each export; so is a new one
/// if all have channels open. A target has as many for each of its threads, and for all that have
/// ended.
const USES_MAX: usize = 1024;

counters! {
    /// Requests of hosts that have ended, and their times from the frame that completed them, or
    /// the end of their wait at a limit, to the disk's answer.
    pub struct UseCounts {
        /// Successful reads.
        reads: Counter in Requests,
        /// Bytes read.
        read_bytes: Counter in Bytes,
        /// The time that all successful reads have taken.
        read_ns: Counter in Nanoseconds,
        /// Successful writes.
        writes: Counter in Requests,
        /// Bytes written.
        written_bytes: Counter in Bytes,
        /// The time that all successful writes have taken.
        write_ns: Counter in Nanoseconds,
        /// Successful flushes.
        flushes: Counter in Requests,
        /// Successful discards and write-zeroes.
        others: Counter in Requests,
        /// Requests that the disk has failed, or that were invalid.
        failed: Counter in Requests,
        /// Requests that have waited at a limit, before their time began.
        limited: Counter in Requests,
        /// The time that all of these have waited.
        limited_ns: Counter in Nanoseconds,
    }
}

impl UseCounts {
    /// Counts a request that has ended.
    fn add(&mut self, request: Executing, result: Result<(), Errno>, now: Instant) {
        let Executing { operation, len, begun } = request;
        let (len, time) = (u64::from(len), now.0.saturating_sub(begun.0));
        match (result, operation) {
            (Err(_), _) => self.failed += 1,
            (Ok(()), OperationKind::Read) => {
                self.reads += 1;
                self.read_bytes += len;
                self.read_ns += time;
            }
            (Ok(()), OperationKind::Write) => {
                self.writes += 1;
                self.written_bytes += len;
                self.write_ns += time;
            }
            (Ok(()), OperationKind::Flush) => self.flushes += 1,
            (Ok(()), _) => self.others += 1,
        }
    }

    /// The mean time of a successful read, and of a write; `None` without one, or if no time was
    /// measured: a thread reads its clock once a turn, and a disk in memory answers in the same.
    pub fn means(&self) -> [Option<Duration>; 2] {
        [(self.read_ns, self.reads), (self.write_ns, self.writes)].map(|(time, count)| {
            let mean = time.checked_div(count).filter(|_| time > 0);
            mean.map(Duration::from_nanos)
        })
    }
}

/// A request that is at the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Executing {
    pub(super) operation: OperationKind,
    /// Bytes.
    pub(super) len: u32,
    pub(super) begun: Instant,
}

/// What one host has had done at an export.
#[derive(Clone, Debug)]
pub struct Use {
    /// The export.
    pub export: ExportKey,
    /// The host; `None`: several that have left, or that there was no room to tell apart.
    pub host: Option<HostId>,
    /// Its counters.
    pub counts: UseCounts,
    /// Its requests that wait at a limit now.
    pub waiting: usize,
    /// Its open channels of this thread.
    channels: usize,
}

impl Use {
    fn new(export: ExportKey, host: Option<HostId>) -> Self {
        Self { export, host, counts: UseCounts::default(), waiting: 0, channels: 0 }
    }
}

/// The uses of a thread.
#[derive(Default)]
pub(super) struct Uses(Vec<Use>);

impl Uses {
    /// Notes a channel of a host for an export. Returns the number of its use. Of exports for which
    /// `is_there` is false, nobody asks any more.
    pub(super) fn begin(
        &mut self,
        export: ExportKey,
        host: HostId,
        is_there: impl Fn(ExportKey) -> bool,
    ) -> usize {
        let of = |host| move |it: &Use| (it.export, it.host) == (export, host);
        let index = self.0.iter().position(of(Some(host))).unwrap_or_else(|| {
            let new = Use::new(export, Some(host));
            if self.0.len() < USES_MAX {
                self.0.push(new);
                return self.0.len() - 1;
            }
            // Without one that may be given up, it is counted as nobody's.
            let is_gone = |it: &Use| it.channels == 0 && !is_there(it.export);
            let is_former = |it: &Use| it.channels == 0 && it.host.is_some();
            let given_up = self.0.iter().position(is_gone);
            match given_up.or_else(|| self.0.iter().position(is_former)) {
                Some(index) => {
                    let Use { export, counts, .. } = std::mem::replace(&mut self.0[index], new);
                    if is_there(export) {
                        self.add_former(export, counts);
                    }
                    index
                }
                None => self.former(export),
            }
        });
        self.0[index].channels += 1;
        index
    }

    /// The number of the use of those who have left an export.
    fn former(&mut self, export: ExportKey) -> usize {
        let is_it = |it: &Use| it.export == export && it.host.is_none();
        self.0.iter().position(is_it).unwrap_or_else(|| {
            self.0.push(Use::new(export, None));
            self.0.len() - 1
        })
    }

    fn add_former(&mut self, export: ExportKey, counts: UseCounts) {
        let index = self.former(export);
        self.0[index].counts += counts;
    }

    /// Notes that a channel with that use is closed.
    pub(super) fn end(&mut self, index: usize) {
        self.0[index].channels -= 1;
    }

    /// Counts a request that has ended.
    #[inline]
    pub(super) fn count(
        &mut self,
        index: usize,
        request: Executing,
        result: Result<(), Errno>,
        now: Instant,
    ) {
        self.0[index].counts.add(request, result, now);
    }

    /// Counts a request whose wait at a limit is over.
    pub(super) fn count_wait(&mut self, index: usize, waited: Duration) {
        let counts = &mut self.0[index].counts;
        counts.limited += 1;
        counts.limited_ns += u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
    }

    /// All of them. `waiting`: how many requests of each wait at a limit.
    pub(super) fn all(&self, waiting: impl Fn(usize) -> usize) -> Vec<Use> {
        let uses = self.0.iter().enumerate();
        uses.map(|(index, it)| Use { waiting: waiting(index), ..it.clone() }).collect()
    }
}

/// Adds the uses of another thread to these.
pub(super) fn merge(uses: &mut Vec<Use>, others: Vec<Use>) {
    for other in others {
        let is_it = |it: &&mut Use| (it.export, it.host) == (other.export, other.host);
        match uses.iter_mut().find(is_it) {
            Some(mine) => {
                mine.counts += other.counts;
                mine.waiting += other.waiting;
            }
            None => uses.push(other),
        }
    }
}

/// Adds the uses of a thread that has ended to those of others. Of too many pairs the first are
/// counted as one that nobody is, by their exports.
pub(super) fn keep_past(past: &mut Vec<Use>, ended: Vec<Use>) {
    merge(past, ended);
    past.iter_mut().for_each(|it| (it.channels, it.waiting) = (0, 0));
    let surplus = past.len().saturating_sub(USES_MAX);
    let former = past.drain(..surplus).map(|it| Use { host: None, ..it }).collect();
    merge(past, former);
    // Of so many exports the first are not there any more.
    past.drain(..past.len().saturating_sub(2 * USES_MAX));
}

#[cfg(test)]
mod tests {
    use slotmap::KeyData;
    use tyche_proto::wire::Uuid;

    use super::*;

    fn key(number: u64) -> ExportKey {
        KeyData::from_ffi(number).into()
    }

    fn host(number: u128) -> HostId {
        HostId::Uuid(Uuid::from_u128(number))
    }

    /// All exports are there.
    fn there(_: ExportKey) -> bool {
        true
    }

    fn read(uses: &mut Uses, index: usize) {
        let begun = Instant(1000);
        let request = Executing { operation: OperationKind::Read, len: 512, begun };
        uses.count(index, request, Ok(()), Instant(3000));
    }

    #[test]
    fn hosts_are_told_apart_at_each_export() {
        let mut uses = Uses::default();
        let (a, b) = (uses.begin(key(1), host(1), there), uses.begin(key(1), host(2), there));
        let c = uses.begin(key(2), host(1), there);
        assert_eq!(uses.begin(key(1), host(1), there), a, "another channel of it");
        read(&mut uses, a);
        read(&mut uses, a);
        read(&mut uses, c);
        // In one turn of its thread.
        uses.count(
            b,
            Executing { operation: OperationKind::Read, len: 512, begun: Instant(7) },
            Ok(()),
            Instant(7),
        );
        assert_eq!(uses.all(|_| 0)[b].counts.means(), [None; 2], "no time was measured");
        let executing = Executing { operation: OperationKind::Write, len: 4096, begun: Instant(0) };
        uses.count(b, executing, Err(Errno::IO), Instant(5));
        let reads: Vec<_> = uses.all(|_| 0).iter().map(|it| it.counts.reads).collect();
        assert_eq!(reads, [2, 1, 1]);
        assert_eq!(uses.all(|_| 0)[a].counts.means(), [Some(Duration::from_micros(2)), None]);
        assert_eq!((uses.all(|_| 0)[b].counts.failed, uses.all(|_| 0)[b].counts.writes), (1, 0));
        let mut merged = uses.all(|_| 0);
        merge(&mut merged, uses.all(|_| 0));
        assert_eq!((merged.len(), merged[0].counts.reads), (3, 4));
    }

    #[test]
    fn those_who_have_left_are_counted_as_one_when_there_are_too_many() {
        let mut uses = Uses::default();
        let first = uses.begin(key(1), host(0), there);
        for number in 1..USES_MAX as u128 {
            let index = uses.begin(key(1), host(number), there);
            read(&mut uses, index);
            uses.end(index);
        }
        for number in 0..USES_MAX as u128 {
            let index = uses.begin(key(1), host(10_000 + number), there);
            uses.end(index);
        }
        let all = uses.all(|_| 0);
        assert!(all.len() <= USES_MAX + 1, "{}", all.len());
        assert_eq!(all[first].host, Some(host(0)), "it has a channel");
        let reads: u64 = all.iter().map(|it| it.counts.reads).sum();
        assert_eq!(reads, USES_MAX as u64 - 1, "nothing is lost");
    }

    #[test]
    fn with_channels_of_all_of_them_one_more_is_counted_with_those_who_have_left() {
        let mut uses = Uses::default();
        for number in 0..USES_MAX as u128 {
            uses.begin(key(1), host(number), there);
        }
        let others: Vec<_> = [5000, 5001].map(|it| uses.begin(key(1), host(it), there)).into();
        assert_eq!(others, [USES_MAX; 2], "as one");
        others.iter().for_each(|index| read(&mut uses, *index));
        let all = uses.all(|_| 0);
        assert_eq!((all.len(), all[USES_MAX].host), (USES_MAX + 1, None));
        assert_eq!(all[USES_MAX].counts.reads, 2);
        // One that leaves makes room for the next.
        uses.end(7);
        assert_eq!(uses.begin(key(1), host(5002), there), 7);
    }

    #[test]
    fn exports_that_come_and_go_leave_nothing_behind() {
        let mut uses = Uses::default();
        for number in 1..=4 * USES_MAX as u64 {
            let index = uses.begin(key(number), host(1), |it| it == key(number));
            read(&mut uses, index);
            uses.end(index);
        }
        assert_eq!(uses.all(|_| 0).len(), USES_MAX);
        let mut past = Vec::new();
        for number in 1..=4 * USES_MAX as u64 {
            keep_past(&mut past, vec![Use::new(key(number), Some(host(1)))]);
        }
        assert!(past.len() <= 2 * USES_MAX, "{}", past.len());
    }

    #[test]
    fn what_was_done_over_links_that_have_ended_is_counted_in_bounded_memory() {
        let mut past = Vec::new();
        for thread in 0..3 {
            let mut uses = Uses::default();
            for number in 0..USES_MAX as u128 / 2 {
                let index = uses.begin(key(1), host(10_000 * thread + number), there);
                read(&mut uses, index);
                uses.end(index);
            }
            keep_past(&mut past, uses.all(|_| 0));
        }
        assert!(past.len() <= USES_MAX + 1, "{}", past.len());
        let reads: u64 = past.iter().map(|it| it.counts.reads).sum();
        assert_eq!(reads, 3 * (USES_MAX as u64 / 2), "nothing is lost");
    }
}
