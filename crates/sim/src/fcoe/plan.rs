//! Plans of worlds, drawn from a seed.

use std::time::Duration;

use tyche_fc::Rule;

use crate::plan::{DiskPlan, Mix};
use crate::random::Random;

/// Salt of a seed, so that these worlds have nothing in common with the others.
const SALT: u64 = 0x6663_6f65;
/// Another one, for initiators whose operations fail early.
const FAST_FAIL: u64 = 0x6661_696c;
/// Another one, for targets with several threads.
const THREADS: u64 = 0x7468_7264;
/// Bytes that a logical unit can have at most.
pub(super) const SIZE_MAX: u64 = 128 << 10;
/// The largest MTU.
pub(super) const MTU_MAX: usize = 2500;
/// MTUs, of which one is too small for the longest frames, and the last is more than they need.
pub(super) const MTUS: [usize; 3] = [1500, 2158, MTU_MAX];
/// The index of the initiator that may be hostile.
pub(super) const HOSTILE: usize = 0;
/// Its E_D_TOV, with which it asks a target to wait for long.
pub(super) const HOSTILE_E_D_TOV: Duration = Duration::from_secs(60);
/// Commands that it has under way, if it may.
const HOSTILE_DEPTH: usize = 64;

/// The complete description of a run.
#[derive(Clone, Debug)]
pub(super) struct FcoePlan {
    /// Targets, each with so many logical units.
    pub(super) targets: Vec<usize>,
    pub(super) initiators: Vec<InitiatorPlan>,
    /// The disks of all logical units, target by target.
    pub(super) disks: Vec<(DiskPlan, bool)>,
    /// E_D_TOV of all ports; R_A_TOV is five times that.
    pub(super) e_d_tov: Duration,
    /// Bytes of the interfaces' frames without the Ethernet header.
    pub(super) mtu: usize,
    /// Threads of each interface of a target, and the longest time that one of several does not
    /// run, in milliseconds.
    pub(super) threads: usize,
    pub(super) nap_ms_max: u64,
    /// Exchanges of a target, and the bytes and frames that it asks for at once.
    pub(super) exchanges: u16,
    pub(super) burst_len: u32,
    pub(super) frames_max: u32,
    pub(super) air: AirPlan,
    /// The mean time between two incidents; none if zero.
    pub(super) incidents: Duration,
    /// The mean time between two frames of the stranger; none if zero.
    pub(super) stranger: Duration,
    /// Operations before the faults stop.
    pub(super) operations: u32,
    /// All ports begin with the same N_Port_ID.
    pub(super) collide: bool,
    /// The targets have unit attentions confirmed. Linux' does not.
    pub(super) confirms: bool,
    /// The targets tell generations. Others than ours do not.
    pub(super) generations: bool,
    /// A rule that is not kept, whatever else is: another protects the data alone.
    pub(super) without: Option<Rule>,
    /// The targets begin on segments of their own; see [`Segments`].
    pub(super) segments: Option<Segments>,
    /// All ports are in a fabric.
    pub(super) fabric: Option<FabricPlan>,
    /// The first target has a second interface, which every other initiator uses.
    pub(super) twin: bool,
    /// The initiator [`HOSTILE`] is, and there are no other faults.
    pub(super) hostility: Option<Hostility>,
}

/// The longest time that one of several lanes does not run, where that is a fault of the world.
const NAP_MS_MAX: u64 = 300;

/// The acts of a hostile initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hostility {
    /// It sends no data of its writes.
    Silent,
    /// It sends the first frame of each burst only.
    Sparse,
    /// It stops with all that it has under way.
    Frozen,
}

/// A fabric of one forwarder.
#[derive(Clone, Copy, Debug)]
pub(super) struct FabricPlan {
    /// The interval of its advertisements.
    pub(super) period: Duration,
    /// The time that it takes for a login.
    pub(super) login_delay: Duration,
}

/// Two targets on segments that do not hear each other. The initiators begin on that of the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segments {
    /// The time until they move to the other.
    pub(super) moved: Duration,
    /// The time until both segments are joined.
    pub(super) joined: Duration,
}

/// An initiator.
#[derive(Clone, Debug)]
pub(super) struct InitiatorPlan {
    /// Index of its logical unit among those of all targets.
    pub(super) disk: usize,
    pub(super) depth: usize,
    pub(super) think: Duration,
    pub(super) mix: Mix,
    /// Frames of reads at a time.
    pub(super) frames: u32,
    /// XIDs of a lane, besides one for each command at a time.
    pub(super) further_xids: u16,
    /// Lanes.
    pub(super) lanes: u16,
    /// The longest time that one of several lanes does not run, in milliseconds.
    pub(super) nap_ms_max: u64,
    /// Operations fail when the disk was away for so long, while the session goes on.
    pub(super) fast_io_fail_tmo: Option<Duration>,
}

/// The network.
#[derive(Clone, Copy, Debug)]
pub(super) struct AirPlan {
    /// The least time that a frame is on the way.
    pub(super) latency: Duration,
    pub(super) loss: f64,
    pub(super) duplicates: f64,
    /// Frames that are overtaken by others.
    pub(super) overtaken: f64,
    pub(super) corrupt: f64,
    /// Frames that arrive much later.
    pub(super) stray: f64,
    /// Frames of exchanges of which a copy arrives much later.
    pub(super) echoes: f64,
    /// That happens to data of writes only.
    pub(super) echoes_data: bool,
    /// Damaged frames have a right CRC: broken on purpose.
    pub(super) is_sealed: bool,
}

/// A network without faults.
pub(super) const CLEAN: AirPlan = AirPlan {
    latency: Duration::ZERO,
    loss: 0.0,
    duplicates: 0.0,
    overtaken: 0.0,
    corrupt: 0.0,
    stray: 0.0,
    echoes: 0.0,
    echoes_data: false,
    is_sealed: false,
};

impl FcoePlan {
    pub(super) fn draw(seed: u64, operations: u32) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let random = &mut random;
        let targets: Vec<usize> = match random.below(4) {
            0 => vec![1, 1],
            1 => vec![2],
            _ => vec![1],
        };
        let units = targets.iter().sum::<usize>();
        let disks: Vec<_> = (0..units).map(|_| (draw_disk(random), random.chance(0.3))).collect();
        let count = random.pick(&[1, 1, 2, 2, 3]);
        let initiators = (0..count).map(|index| InitiatorPlan::draw(random, index % units));
        let initiators: Vec<_> = initiators.collect();
        let latency = Duration::from_micros(random.pick(&[50, 300, 2000]));
        let mut sometimes = |often, rates: &[f64]| {
            let rate = random.pick(rates);
            if random.chance(often) { rate } else { 0.0 }
        };
        let air = AirPlan {
            latency,
            loss: sometimes(0.6, &[0.001, 0.01, 0.03]),
            duplicates: sometimes(0.5, &[0.005, 0.05, 0.2]),
            overtaken: sometimes(0.5, &[0.005, 0.05]),
            corrupt: sometimes(0.3, &[0.002, 0.01]),
            stray: sometimes(0.5, &[0.002, 0.02]),
            echoes: sometimes(0.3, &[0.02, 0.2]),
            echoes_data: false,
            is_sealed: false,
        };
        // As many as an initiator has, so that the numbers of both go round at the same pace.
        let pace =
            initiators.first().map_or(24, |it: &InitiatorPlan| it.depth as u16 + it.further_xids);
        let exchanges = random.pick(&[24, pace, pace, 256]);
        let incidents = Duration::from_millis(random.pick(&[0, 2000, 6000, 20_000]));
        let stranger = Duration::from_millis(random.pick(&[0, 0, 5, 100]));
        Self {
            targets,
            initiators,
            disks,
            e_d_tov: Duration::from_millis(random.pick(&[50, 200, 2000])),
            mtu: random.pick(&MTUS),
            threads: 1,
            nap_ms_max: NAP_MS_MAX,
            exchanges,
            burst_len: random.pick(&[4096, 16 << 10, 64 << 10]),
            frames_max: random.pick(&[8, 32, 256]),
            air,
            incidents,
            stranger,
            operations,
            collide: random.chance(0.3),
            confirms: true,
            generations: true,
            without: None,
            segments: None,
            fabric: None,
            hostility: None,
            twin: false,
        }
        .split(random)
        .divide(random)
        .forgo_confirmation(random)
        .join_fabric(random)
        .offend(random)
        .forgo_generations(random)
        .add_interface(random)
        .fail_early(&mut Random::new(seed ^ SALT ^ FAST_FAIL))
        .share_out(&mut Random::new(seed ^ SALT ^ THREADS))
    }

    /// Targets have several threads. A lane may then hear of a loss later than a flush on another
    /// thread has succeeded; see [`forgo_confirmation`](Self::forgo_confirmation).
    fn share_out(mut self, random: &mut Random) -> Self {
        self.threads = random.pick(&[1, 1, 2, 4]);
        if self.threads > 1 && !self.confirms {
            self.disks.iter_mut().for_each(|(disk, _)| disk.sync_errors = 0.0);
        }
        if self.hostility.is_some() {
            self.nap_ms_max = 1;
        }
        self
    }

    /// Operations of some initiators fail early.
    fn fail_early(mut self, random: &mut Random) -> Self {
        for initiator in &mut self.initiators {
            let tmo = random.pick(&[0, 0, 0, 20, 200, 1000, 5000]);
            initiator.fast_io_fail_tmo = (tmo > 0).then(|| Duration::from_millis(tmo));
        }
        self
    }

    /// A tenth of the worlds has a hostile initiator.
    fn offend(mut self, random: &mut Random) -> Self {
        if random.chance(0.1) {
            let all = [Hostility::Silent, Hostility::Sparse, Hostility::Frozen];
            self.be_hostile(random.pick(&all));
        }
        self
    }

    /// Makes the first initiator hostile, beside others of the same target, and ends all other
    /// faults, so that nothing else takes long.
    pub(super) fn be_hostile(&mut self, hostility: Hostility) {
        (self.hostility, self.segments, self.twin) = (Some(hostility), None, false);
        (self.incidents, self.stranger) = (Duration::ZERO, Duration::ZERO);
        self.e_d_tov = Duration::from_secs(2);
        self.air = AirPlan { latency: self.air.latency, is_sealed: self.air.is_sealed, ..CLEAN };
        for (disk, shared) in &mut self.disks {
            (disk.errors, disk.hiccups, disk.hangs, disk.sync_errors) = (0.0, 0.0, 0.0, 0.0);
            *shared = true;
        }
        let first = &self.initiators[HOSTILE];
        self.initiators.push(InitiatorPlan { lanes: 1, ..first.clone() });
        for initiator in &mut self.initiators {
            // So long that the others are at work when it is.
            initiator.think = initiator.think.max(Duration::from_millis(20));
            initiator.nap_ms_max = 1;
        }
        let hostile = &mut self.initiators[HOSTILE];
        (hostile.depth, hostile.lanes, hostile.think) = (HOSTILE_DEPTH, 1, Duration::ZERO);
        hostile.mix = Mix { read: 1, write: 20, len_max: 64 << 10, ..hostile.mix };
    }

    /// Several initiators have flushes that fail, beside few other faults.
    pub(super) fn fail_flushes(&mut self) {
        (self.incidents, self.stranger, self.air) = (Duration::ZERO, Duration::ZERO, CLEAN);
        for (disk, shared) in &mut self.disks {
            (disk.write_cache, disk.sync_errors, disk.errors, *shared) = (true, 0.2, 0.0, true);
        }
        let first = self.initiators[0].clone();
        self.initiators.push(first);
        for initiator in &mut self.initiators {
            initiator.mix.flush = initiator.mix.flush.max(5);
        }
    }

    /// The same, where responses are lost.
    pub(super) fn lose_responses(&mut self) {
        self.fail_flushes();
        (self.air.loss, self.confirms) = (0.05, true);
    }

    /// Without a rule, and with data of writes that are repeated late: few other faults hide them.
    pub(super) fn repeat_data(&mut self, without: Rule) {
        self.without = Some(without);
        (self.air.echoes, self.air.echoes_data) = (0.3, true);
        (self.air.loss, self.air.corrupt, self.air.stray) = (0.0, 0.0, 0.0);
        self.incidents = Duration::ZERO;
    }

    /// A third of the worlds without segments has a fabric.
    fn join_fabric(mut self, random: &mut Random) -> Self {
        if self.segments.is_none() && random.chance(0.3) {
            self.fabric = Some(FabricPlan {
                period: Duration::from_millis(random.pick(&[500, 2000, 8000])),
                login_delay: Duration::from_millis(random.pick(&[0, 0, 300, 3000])),
            });
        }
        self
    }

    /// Gives initiators several lanes.
    fn divide(mut self, random: &mut Random) -> Self {
        for initiator in &mut self.initiators {
            initiator.lanes = random.pick(&[1, 1, 2, 3]);
        }
        self
    }

    /// Without confirmation, a unit attention is gone with the response that tells it, and only the
    /// first of a login is told again. So where responses may be lost, or a lane may hear of it
    /// later than a flush on another has succeeded, no disk loses writes then while its target
    /// lives.
    fn forgo_confirmation(mut self, random: &mut Random) -> Self {
        self.confirms = random.chance(0.7);
        let AirPlan { loss, corrupt, stray, echoes, .. } = self.air;
        let are_responses_lost = loss + corrupt + stray + echoes > 0.0;
        let is_rough = are_responses_lost || !self.incidents.is_zero() || !self.stranger.is_zero();
        let has_lanes = self.initiators.iter().any(|it| it.lanes > 1);
        if !self.confirms && (is_rough || has_lanes) {
            self.disks.iter_mut().for_each(|(disk, _)| disk.sync_errors = 0.0);
        }
        self
    }

    /// A third of the worlds without segments has a target with two interfaces.
    fn add_interface(mut self, random: &mut Random) -> Self {
        self.twin = self.segments.is_none() && self.hostility.is_none() && random.chance(0.3);
        self
    }

    /// Targets with two interfaces, whose disks keep writes for long, and many resets.
    pub(super) fn reset_beside_writes(&mut self) {
        (self.twin, self.segments, self.hostility) = (true, None, None);
        self.stranger = Duration::from_millis(5);
        for (disk, shared) in &mut self.disks {
            (disk.hiccups, *shared) = (0.2, true);
        }
        let first = self.initiators[0].clone();
        self.initiators.push(first);
    }

    /// Two targets with the same N_Port_ID, on segments that are joined soon.
    pub(super) fn collide_after_a_move(&mut self) {
        (self.collide, self.twin, self.fabric, self.hostility) = (true, false, None, None);
        self.targets = vec![1, 1];
        self.disks.resize(2, self.disks[0].clone());
        let (moved, joined) = (Duration::from_secs(2), Duration::from_secs(4));
        self.segments = Some(Segments { moved, joined });
    }

    /// Initiators with several lanes, at targets that often start again and lose their caches.
    pub(super) fn restart_beside_lanes(&mut self) {
        (self.generations, self.hostility) = (false, None);
        (self.incidents, self.stranger) = (Duration::from_secs(1), Duration::ZERO);
        self.air = AirPlan { latency: self.air.latency, ..CLEAN };
        self.disks.iter_mut().for_each(|(disk, _)| disk.write_cache = true);
        for initiator in &mut self.initiators {
            initiator.lanes = 2;
            initiator.mix.flush = initiator.mix.flush.max(5);
        }
    }

    /// Targets with two threads, whose disks keep writes for long, and initiators that often begin
    /// anew.
    pub(super) fn log_out_beside_threads(&mut self) {
        (self.threads, self.hostility, self.segments) = (2, None, None);
        self.incidents = Duration::from_secs(1);
        self.disks.iter_mut().for_each(|(disk, _)| disk.hiccups = 0.2);
        let first = self.initiators[0].clone();
        self.initiators.push(first);
    }

    /// Without generations, a target that is started again is one that has lost its cache.
    fn forgo_generations(mut self, random: &mut Random) -> Self {
        self.generations = random.chance(0.7);
        self
    }

    /// Where two targets have the same N_Port_ID, commands can reach the wrong one.
    fn split(mut self, random: &mut Random) -> Self {
        if self.targets.len() > 1 && random.chance(0.5) {
            let moved = Duration::from_millis(random.between(1000, 12_000));
            let joined = moved + Duration::from_millis(random.between(1000, 30_000));
            (self.collide, self.segments) = (true, Some(Segments { moved, joined }));
        }
        self
    }
}

fn draw_disk(random: &mut Random) -> DiskPlan {
    let mut sometimes = |often, rate| if random.chance(often) { rate } else { 0.0 };
    let (hiccups, hangs) = (sometimes(0.4, 0.02), sometimes(0.4, 0.01));
    let (sync_errors, errors) = (sometimes(0.4, 0.1), sometimes(0.2, 0.005));
    DiskPlan {
        size: random.pick(&[16 << 10, 64 << 10, SIZE_MAX]),
        block_size: 512,
        write_cache: random.chance(0.6),
        latency: Duration::from_micros(random.pick(&[20, 100, 1000, 10_000])),
        errors,
        hiccups,
        hangs,
        sync_errors,
        tears: 0.0,
        flush_lies: false,
        errors_forgotten: false,
        status_lies: false,
    }
}

impl InitiatorPlan {
    fn draw(random: &mut Random, disk: usize) -> Self {
        let mut sometimes = |weight| if random.chance(0.5) { weight } else { 0 };
        let mix = Mix {
            read: 10 + sometimes(20),
            write: 10 + sometimes(20),
            write_fua: sometimes(4),
            flush: 1 + sometimes(5),
            write_zeroes: 0,
            discard: 0,
            status: 0,
            len_max: 0,
        };
        Self {
            disk,
            depth: random.pick(&[1, 4, 8]),
            think: Duration::from_micros(random.pick(&[0, 200, 5000, 50_000])),
            mix: Mix { len_max: random.pick(&[512, 4096, 16 << 10, 64 << 10]), ..mix },
            frames: random.pick(&[8, 64, 512]),
            further_xids: random.pick(&[20, 40]),
            lanes: 1,
            nap_ms_max: NAP_MS_MAX,
            fast_io_fail_tmo: None,
        }
    }
}
