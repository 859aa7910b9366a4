//! Incidents besides faults of single frames, and their frequency.

use std::time::Duration;

use crate::random::Random;

/// Mean times between incidents of each kind; `None`: they never happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incidents {
    /// The target dies; with a write cache, maybe with loss of what was not flushed.
    pub target_crash: Option<Duration>,
    /// The target dies when it has executed a request and not yet answered it.
    pub unanswered: Option<Duration>,
    /// Probability that a target that comes back has other addresses or is plugged in elsewhere.
    pub moves: f64,
    /// The target does nothing for a while, and then everything.
    pub target_freeze: Option<Duration>,
    /// A host does nothing for a while, and then everything.
    pub host_freeze: Option<Duration>,
    /// The disk ends no request for a while.
    pub disk_stall: Option<Duration>,
    /// A sector of the disk changes by itself.
    pub rot: Option<Duration>,
    /// The target's machine is restored to an earlier moment, with its disk and the target's files;
    /// if [`Promises::generations`](super::Promises::generations).
    pub restore: Option<Duration>,
    /// The target cannot store anything for a while; if
    /// [`Promises::writers`](super::Promises::writers).
    pub state_full: Option<Duration>,
    /// A host dies, and comes back as another session.
    pub host_crash: Option<Duration>,
    /// The program that serves a host's device dies, and another takes the device over.
    pub daemon_death: Option<Duration>,
    /// A host ends its session, and comes back later.
    pub disconnect: Option<Duration>,
    /// A link loses some or all of what it sends, or of what it receives, for a while.
    pub one_way: Option<Duration>,
    /// A segment carries nothing for a while, or several times in a row.
    pub flap: Option<Duration>,
    /// No segment carries anything for a while.
    pub blackout: Option<Duration>,
    /// Probability that the segment that carries a fence, or the answer to one, is cut at that
    /// moment.
    pub fence_cut: f64,
    /// A segment begins to drop long frames, for a while.
    pub mtu_drop: Option<Duration>,
    /// Routers give a link of a host over UDP another address (NAT).
    pub rebind: Option<Duration>,
    /// A link is taken out of a host's session, and put back later.
    pub relink: Option<Duration>,
    /// The export gets another size.
    pub resize: Option<Duration>,
    /// A host is evicted from its export, and let in again later.
    pub evict: Option<Duration>,
    /// An export is removed, and added again later.
    pub remove: Option<Duration>,
    /// A link of the target is removed, and added again later, if it has another.
    pub unlink: Option<Duration>,
    /// The target's key is changed, a step at a time; if there are keys.
    pub rotate: Option<Duration>,
    /// The limits of exports are changed.
    pub relimit: Option<Duration>,
    /// The segment without incidents, if there is one.
    pub steady: Option<usize>,
}

impl Incidents {
    /// Draws the incidents. `many`: those of links are more frequent, so that they coincide.
    pub(super) fn draw(random: &mut Random, many: bool) -> Self {
        let mut sometimes = |often: f64, milliseconds: &[u64]| {
            let mean = Duration::from_millis(random.pick(milliseconds));
            random.chance(often).then_some(mean)
        };
        let of_links = if many { 0.6 } else { 0.4 };
        let mut drawn = Self {
            target_crash: sometimes(0.4, &[200, 1000, 4000]),
            unanswered: sometimes(0.2, &[200, 1000]),
            target_freeze: sometimes(0.2, &[500, 2000]),
            host_freeze: sometimes(0.2, &[500, 2000]),
            disk_stall: sometimes(0.2, &[500, 2000]),
            host_crash: sometimes(0.3, &[300, 2000]),
            daemon_death: sometimes(0.4, &[100, 300, 2000]),
            disconnect: sometimes(0.3, &[300, 2000]),
            one_way: sometimes(of_links, &[200, 1000]),
            flap: sometimes(of_links, &[200, 1000]),
            blackout: sometimes(0.2, &[500, 3000]),
            mtu_drop: sometimes(0.4, &[500, 2000]),
            relink: sometimes(if many { 0.3 } else { 0.1 }, &[300, 2000]),
            resize: sometimes(0.3, &[300, 2000]),
            ..Self::default()
        };
        drawn.moves = if random.chance(0.5) { 0.5 } else { 0.0 };
        drawn.fence_cut = if random.chance(0.3) { 0.3 } else { 0.0 };
        drawn
    }

    /// Draws the incidents of the disks of the target's machine.
    pub(super) fn draw_faults(&mut self, random: &mut Random) {
        let mean = Duration::from_millis(random.pick(&[50, 1000]));
        self.rot = random.chance(0.1).then_some(mean);
        let steady = self.steady.is_some();
        let mean = Duration::from_millis(random.pick(&[500, 3000]));
        self.restore = (random.chance(0.1) && !steady).then_some(mean);
        self.state_full = random.chance(0.2).then_some(mean);
    }

    /// Draws whether exports come and go.
    pub(super) fn draw_removals(&mut self, random: &mut Random) {
        let mean = Duration::from_millis(random.pick(&[300, 2000]));
        self.remove = (random.chance(0.3) && self.steady.is_none()).then_some(mean);
    }

    /// Draws whether links of the target come and go.
    pub(super) fn draw_unlinks(&mut self, random: &mut Random) {
        let mean = Duration::from_millis(random.pick(&[300, 2000]));
        self.unlink = (random.chance(0.3) && self.steady.is_none()).then_some(mean);
    }

    /// Draws whether the target's key is changed.
    pub(super) fn draw_rotations(&mut self, random: &mut Random) {
        let mean = Duration::from_millis(random.pick(&[100, 500, 2000]));
        // A target that is restored has keys of a former time.
        let is_possible = self.steady.is_none() && self.restore.is_none();
        self.rotate = (random.chance(0.4) && is_possible).then_some(mean);
    }

    /// Draws whether limits of exports are changed.
    pub(super) fn draw_relimits(&mut self, random: &mut Random) {
        let mean = Duration::from_millis(random.pick(&[20, 200, 1000]));
        self.relimit = random.chance(0.5).then_some(mean);
    }

    /// Removes the incidents that could stop a host for longer than the loss of a link does, while
    /// `segment` stays whole.
    pub(super) fn spare(&mut self, segment: usize) {
        self.steady = Some(segment);
        (self.target_crash, self.unanswered, self.daemon_death) = (None, None, None);
        (self.target_freeze, self.host_freeze, self.disk_stall) = (None, None, None);
        // One at a time: no useful limit holds for the time that several cost together.
        let rarely = |mean: Option<Duration>| mean.map(|mean| mean.max(Duration::from_secs(1)));
        (self.flap, self.one_way) = (rarely(self.flap), rarely(self.one_way));
        (self.mtu_drop, self.relink) = (rarely(self.mtu_drop), rarely(self.relink));
    }
}
