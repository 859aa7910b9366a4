//! The draws of a seed before a run begins: participants, sizes and faults. Each seed turns some
//! faults on and the others off (swarm testing, Groce et al. 2012): with everything on at once,
//! some bugs never get far enough to show.

mod edges;
mod incidents;
mod keys;
mod promises;
mod strangers;
mod topology;
mod udp;

use std::num::NonZeroU64;
use std::time::Duration;

use tyche_engine::RateLimit;
use tyche_proto::{BatchPolicy, CHANNEL_PAGES, ChannelChoice};
use tyche_wire::ETHERNET_LEN;

use crate::random::Random;

pub use edges::{BreakerPlan, ExportPlan};
pub use incidents::Incidents;
pub use promises::Promises;
pub use strangers::{ClonePlan, ForgerPlan, StrangerPlan, Strangers};
use topology::Topology;
pub use topology::{Faults, LinkPlan, SegmentPlan};
pub use udp::{TrainFaults, UdpPlan};

/// The longest time that an operation may take, whatever the host's keep-alive time, while one of
/// its host's links is whole and another is cut: for each cut that it meets, beside that of its
/// data. Most end sooner.
const STALL_MAX: Duration = Duration::from_secs(1);
/// The same where keys are needed, beside a forger: a queue may wait that long for its first
/// channel.
const STALL_MAX_FORGED: Duration = Duration::from_secs(2);

/// Batching policies to draw from; the usual one is there twice.
const BATCH: [BatchPolicy; 4] =
    [BatchPolicy::Adaptive, BatchPolicy::Adaptive, BatchPolicy::None, BatchPolicy::Natural];

const CHOICE: [ChannelChoice; 3] =
    [ChannelChoice::LeastOutstanding, ChannelChoice::LeastOutstanding, ChannelChoice::RoundRobin];

/// Salt of a seed for the random stream of the disk's faults.
const FAULTS_OF_DISK: u64 = 0x6469_736b;

/// Salt of a seed for the random stream of the hosts' queues.
const QUEUES: u64 = 0x7175_6575_6573;

/// Salt of a seed for the random stream of the strangers.
const STRANGERS: u64 = 0x666f_7267_6572;

/// Salt of a seed for the random stream of exports that come and go.
const REMOVALS: u64 = 0x7265_6d6f_7661_6c73;

/// Salt of a seed for the random stream of hosts whose operations fail early.
const FAST_FAIL: u64 = 0x6661_7374;
/// Salt of a seed for the target's memory.
const MEMORY: u64 = 0x6d65_6d6f_7279;
/// Salt of a seed for the random stream of the limits of exports.
const LIMITS: u64 = 0x6c69_6d69_7473;
/// Salt of a seed for the random stream of changes of the target's key.
const ROTATIONS: u64 = 0x726f_7461_7465;
/// Salt of a seed for the random stream of links of the target that come and go.
const UNLINKS: u64 = 0x756e_6c69_6e6b_7320;
/// Of the hosts that ask for the status of ranges.
const STATUS: u64 = 0x7374_6174_7573;

/// The kinds of worlds that seeds stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// All kinds: every third world has many links.
    #[default]
    Mixed,
    /// Up to six links at the target and at each host, together with more incidents of links.
    MultiLink,
    /// Worlds of Fibre Channel over Ethernet, which have nothing in common with the others.
    Fcoe,
}

/// The complete description of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the run's own random choices.
    pub seed: u64,
    /// Profile that the seed was drawn with.
    pub profile: Profile,
    /// Operations before the faults stop.
    pub operations: u32,
    /// The target.
    pub target: TargetPlan,
    /// Its disk: that of the first export.
    pub disk: DiskPlan,
    /// Several hosts may write to it at once.
    pub shared: bool,
    /// Exports besides the first.
    pub further: Vec<ExportPlan>,
    /// A host that breaks the protocol.
    pub breaker: Option<BreakerPlan>,
    /// Positions and generations soon wrap.
    pub wraps: bool,
    /// The target and its hosts have keys.
    pub keyed: bool,
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// The segments that the links of target and hosts are plugged in to.
    pub segments: Vec<SegmentPlan>,
    /// Incidents besides faults of single frames.
    pub incidents: Incidents,
    /// Strangers on the segments.
    pub strangers: Strangers,
    /// The longest time that an operation may take for each outage that it meets, if there is such
    /// a limit.
    pub stall_max: Option<Duration>,
    /// Promises that the checker insists on.
    pub promises: Promises,
    /// A target that was restored from a snapshot goes on as if nothing had happened.
    pub restores_unnoticed: bool,
}

/// A target.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// Its links.
    pub links: Vec<LinkPlan>,
    /// Positions of its receive rings.
    pub rings: [u16; 2],
    /// Slots of a channel.
    pub queue_size_max: u16,
    /// Pages of a channel's data queue.
    pub damq_pages_max: u32,
    /// Pages of memory for all channels together.
    pub memory_pages: u64,
    /// Batching policy of its answers.
    pub batch: BatchPolicy,
    /// Whether it answers only those who know its key.
    pub silent: bool,
    /// The limit of the requests of each export.
    pub limit: RateLimit,
}

/// A disk.
#[derive(Clone, Debug)]
pub struct DiskPlan {
    /// Bytes.
    pub size: u64,
    /// 512 or 4096.
    pub block_size: u32,
    /// Whether completed writes are volatile until a flush.
    pub write_cache: bool,
    /// Mean time of a request.
    pub latency: Duration,
    /// Probability that a request fails.
    pub errors: f64,
    /// Probability that a request takes up to some seconds.
    pub hiccups: f64,
    /// Probability that a request takes half a minute.
    pub hangs: f64,
    /// Probability that a flush or a write with FUA fails, and loses some of the data to be written
    /// back.
    pub sync_errors: f64,
    /// Share of torn sectors among those that are being written when the machine goes down.
    pub tears: f64,
    /// Flushes succeed without doing anything: broken on purpose.
    pub flush_lies: bool,
    /// A flush succeeds after one that failed: broken on purpose.
    pub errors_forgotten: bool,
    /// The status of ranges is that of the medium, without what is in the cache: broken on purpose.
    pub status_lies: bool,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Its links. One that joins later without any gets one on each segment of the target's.
    pub links: Vec<LinkPlan>,
    /// Index of the export that it wants.
    pub export: usize,
    /// Connects for reading only.
    pub read_only: bool,
    /// Requests in flight on a channel.
    pub queue_size: u16,
    /// Positions of its receive rings.
    pub rings: [u16; 2],
    /// Operations in progress at once.
    pub depth: u32,
    /// Pause after an operation before the next.
    pub think: Duration,
    /// Silence after which a channel is dead.
    pub keep_alive: Duration,
    /// Pause between two attempts to connect.
    pub reconnect_delay: Duration,
    /// Limit for the loss of the target.
    pub ctrl_loss_tmo: Option<Duration>,
    /// Time without the target after which operations fail.
    pub fast_io_fail_tmo: Option<Duration>,
    /// Batching policy of its requests.
    pub batch: BatchPolicy,
    /// Queues of its session.
    pub queues: usize,
    /// How often the thread of one of them stands still for a while, per frame.
    pub pauses: f64,
    /// Channels for each pair of its links and the target's.
    pub channels: usize,
    /// Policy that chooses the channel of a request.
    pub choice: ChannelChoice,
    /// Its mix of operations.
    pub mix: Mix,
    /// Whether it submits operations of its own.
    pub busy: bool,
    /// All its reads and writes have the full length.
    pub whole: bool,
}

/// Relative frequencies of operations, and their length.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Reads.
    pub read: u32,
    /// Writes.
    pub write: u32,
    /// Writes that are durable when they complete.
    pub write_fua: u32,
    /// Flushes.
    pub flush: u32,
    /// Writes of zeroes.
    pub write_zeroes: u32,
    /// Discards.
    pub discard: u32,
    /// Requests for the status of ranges; of hosts that only read, that share in a hundred.
    pub status: u32,
    /// Longest read or write in bytes.
    pub len_max: u32,
}

impl Plan {
    /// One host, one target, one clean link, and no incidents.
    pub fn clean(seed: u64) -> Self {
        let mut plan = Self {
            seed,
            profile: Profile::default(),
            operations: 0,
            target: TargetPlan {
                links: Vec::new(),
                rings: [256, 256],
                queue_size_max: 128,
                damq_pages_max: 1024,
                memory_pages: 1 << 20,
                batch: BatchPolicy::default(),
                silent: false,
                limit: RateLimit::default(),
            },
            disk: DiskPlan {
                size: 4 << 20,
                block_size: 512,
                write_cache: false,
                latency: Duration::from_micros(80),
                errors: 0.0,
                hiccups: 0.0,
                hangs: 0.0,
                sync_errors: 0.0,
                tears: 0.0,
                flush_lies: false,
                errors_forgotten: false,
                status_lies: false,
            },
            shared: false,
            further: Vec::new(),
            breaker: None,
            wraps: false,
            keyed: false,
            hosts: vec![HostPlan::quiet()],
            segments: Vec::new(),
            incidents: Incidents::default(),
            strangers: Strangers::default(),
            stall_max: None,
            promises: Promises::KEPT,
            restores_unnoticed: false,
        };
        plan.add_segment(9000);
        plan
    }

    /// Adds a clean segment, on which the target and each host have another link.
    pub fn add_segment(&mut self, mtu: usize) {
        let link = LinkPlan::clean(self.segments.len(), mtu);
        self.segments.push(SegmentPlan::clean(mtu));
        self.target.links.push(link);
        self.hosts.iter_mut().for_each(|host| host.links.push(link));
    }

    /// Gives all interfaces and segments this MTU.
    pub fn set_mtu(&mut self, mtu: usize) {
        let links = self.hosts.iter_mut().flat_map(|host| &mut host.links);
        links.chain(&mut self.target.links).for_each(|it| it.frame_len_max = ETHERNET_LEN + mtu);
        self.segments.iter_mut().for_each(|it| it.frame_len_passed = ETHERNET_LEN + mtu);
    }

    /// Draws the plan of a seed.
    pub fn draw(seed: u64, operations: u32, profile: Profile) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let hosts = random.pick(&[1, 1, 2, 2, 3]);
        let many = profile == Profile::MultiLink || random.chance(0.3);
        let mut topology = if many {
            Topology::draw_large(random, hosts)
        } else {
            Topology::draw_small(random, hosts)
        };
        let mut incidents = Incidents::draw(random, many);
        let mut disk = DiskPlan::draw(random);
        let steady = many && random.chance(0.25);
        if steady {
            incidents.spare(topology.steady());
            (disk.hiccups, disk.latency) = (0.0, Duration::from_micros(100));
        }
        let mut links = topology.links.into_iter();
        let target = TargetPlan::draw(random, links.next().unwrap_or_default());
        let host = |(index, links)| HostPlan::draw(random, index, links, &disk);
        let mut hosts: Vec<_> = (0..).zip(links).map(host).collect();
        let stall_max = steady.then_some(STALL_MAX);
        if steady {
            hosts.iter_mut().for_each(HostPlan::be_modest);
        }
        let segments = topology.segments;
        // Random streams of their own: the rest of the seed's plan stays the same.
        let mut of_disk = Random::new(seed ^ FAULTS_OF_DISK);
        disk.draw_faults(&mut of_disk, steady);
        incidents.draw_faults(&mut of_disk);
        let mut of_strangers = Random::new(seed ^ STRANGERS);
        let counts = (segments.len(), hosts.len());
        let strangers = Strangers::draw(&mut of_strangers, counts, steady);
        if let Some(host) = strangers.reads_first {
            hosts[host].channels = 2;
        }
        let mut of_queues = Random::new(seed ^ QUEUES);
        for host in &mut hosts {
            host.queues = of_queues.pick(&[1, 1, 1, 2, 3, 4]);
            let stands_still = host.queues > 1 && !steady && of_queues.chance(0.7);
            host.pauses = if stands_still { 0.002 } else { 0.0 };
        }
        let promises = Promises::KEPT;
        let mut plan = Self {
            seed,
            profile,
            operations,
            target,
            disk,
            shared: false,
            further: Vec::new(),
            breaker: None,
            wraps: false,
            keyed: false,
            hosts,
            segments,
            incidents,
            strangers,
            stall_max,
            promises,
            restores_unnoticed: false,
        };
        plan.draw_edges();
        plan.draw_udp();
        plan.draw_keys();
        plan.draw_fast_fail();
        plan.draw_changes(steady);
        plan.draw_status();
        plan.draw_memory();
        plan
    }

    /// Draws what the target's administrator changes while hosts use it.
    fn draw_changes(&mut self, steady: bool) {
        let of = |salt: u64| Random::new(self.seed ^ salt);
        self.incidents.draw_removals(&mut of(REMOVALS));
        self.incidents.draw_unlinks(&mut of(UNLINKS));
        if !steady {
            let random = &mut of(LIMITS);
            self.target.draw_limit(random);
            if self.target.limit != RateLimit::default() {
                self.incidents.draw_relimits(random);
            }
        }
        if self.keyed {
            self.incidents.draw_rotations(&mut of(ROTATIONS));
        }
    }

    /// Draws the hosts that ask for the status of ranges.
    fn draw_status(&mut self) {
        let mut random = Random::new(self.seed ^ STATUS);
        for host in &mut self.hosts {
            host.mix.status = random.pick(&[0, 0, 3, 20]);
        }
    }

    /// Draws how much memory the target has beyond the least of so many channels as there may be at
    /// once, those included that are being closed.
    fn draw_memory(&mut self) {
        let mut random = Random::new(self.seed ^ MEMORY);
        let channels = self.hosts.iter().map(|it| it.channels * it.links.len().max(1) * it.queues);
        let least = (2 * channels.sum::<usize>() + 64) as u64 * CHANNEL_PAGES;
        self.target.memory_pages = random.pick(&[1 << 20, least, least + 100, least + 1000]);
    }

    /// Draws the hosts whose operations fail early.
    fn draw_fast_fail(&mut self) {
        let mut random = Random::new(self.seed ^ FAST_FAIL);
        for host in &mut self.hosts {
            let tmo = random.pick(&[0, 0, 0, 20, 200, 1000, 5000]);
            host.fast_io_fail_tmo = (tmo > 0).then(|| Duration::from_millis(tmo));
        }
    }
}

impl TargetPlan {
    fn draw(random: &mut Random, links: Vec<LinkPlan>) -> Self {
        Self {
            links,
            rings: [random.pick(&[16, 64, 256, 4096]), random.pick(&[16, 64, 256, 4096])],
            queue_size_max: random.pick(&[1, 4, 32, 128, 1024]),
            damq_pages_max: random.pick(&[256, 300, 1024]),
            memory_pages: 1 << 20,
            batch: random.pick(&BATCH),
            silent: false,
            limit: RateLimit::default(),
        }
    }

    /// Draws limits of its exports that some requests wait at.
    fn draw_limit(&mut self, random: &mut Random) {
        if random.chance(0.25) {
            self.limit = draw_limit(random);
        }
    }
}

/// Draws a limit that some requests wait at.
pub(crate) fn draw_limit(random: &mut Random) -> RateLimit {
    let [iops, mebibytes] = [random.pick(&[200, 200, 1000]), random.pick(&[0, 0, 32])];
    RateLimit { iops: NonZeroU64::new(iops), bytes_per_second: NonZeroU64::new(mebibytes << 20) }
}

impl DiskPlan {
    fn draw(random: &mut Random) -> Self {
        Self {
            size: random.pick(&[64 << 10, 256 << 10, 1 << 20, 4 << 20]),
            block_size: random.pick(&[512, 512, 4096]),
            write_cache: random.chance(0.5),
            latency: Duration::from_micros(random.pick(&[20, 100, 1000, 10_000])),
            errors: if random.chance(0.2) { 0.002 } else { 0.0 },
            hiccups: if random.chance(0.5) { random.pick(&[0.01, 0.05, 0.2]) } else { 0.0 },
            hangs: 0.0,
            sync_errors: 0.0,
            tears: 0.0,
            flush_lies: false,
            errors_forgotten: false,
            status_lies: false,
        }
    }

    /// Draws its faults, except single errors.
    fn draw_faults(&mut self, random: &mut Random, steady: bool) {
        let mut sometimes = |often, rate| if random.chance(often) { rate } else { 0.0 };
        self.hangs = sometimes(if steady { 0.0 } else { 0.1 }, 0.002);
        self.sync_errors = sometimes(0.3, 0.1);
        self.tears = sometimes(0.5, 0.3);
    }
}

impl HostPlan {
    /// A host that acts on orders only.
    pub fn quiet() -> Self {
        Self {
            links: Vec::new(),
            export: 0,
            read_only: false,
            queue_size: 64,
            rings: [256, 256],
            depth: 64,
            think: Duration::ZERO,
            keep_alive: Duration::from_millis(500),
            reconnect_delay: Duration::from_millis(50),
            ctrl_loss_tmo: None,
            fast_io_fail_tmo: None,
            batch: BatchPolicy::default(),
            queues: 1,
            pauses: 0.0,
            channels: 1,
            choice: ChannelChoice::default(),
            mix: Mix {
                read: 1,
                write: 1,
                write_fua: 0,
                flush: 0,
                write_zeroes: 0,
                discard: 0,
                status: 0,
                len_max: 4096,
            },
            busy: false,
            whole: false,
        }
    }

    /// Limits its requests in progress, so that no operation waits long for others.
    fn be_modest(&mut self) {
        self.depth = self.depth.min(16);
        self.mix.len_max = self.mix.len_max.min(64 << 10);
    }

    fn draw(random: &mut Random, index: u64, links: Vec<LinkPlan>, disk: &DiskPlan) -> Self {
        let len_max = random.pick(&[4096, 16 << 10, 64 << 10, 256 << 10, 3 << 20]);
        let keep_alive = random.pick(&[100, 100, 300, 1000, 3000]);
        let tmo = random.pick(&[0, 0, 500, 2000, 10_000]);
        Self {
            links,
            export: 0,
            read_only: index > 0 && random.chance(0.4),
            queue_size: random.pick(&[1, 4, 32, 128, 1024]),
            rings: [random.pick(&[16, 64, 256, 4096]), random.pick(&[16, 64, 256, 4096])],
            depth: random.pick(&[1, 4, 16, 64]),
            think: Duration::from_micros(random.pick(&[0, 200, 5000, 20_000, 50_000])),
            keep_alive: Duration::from_millis(keep_alive),
            reconnect_delay: Duration::from_millis(random.pick(&[10, 100, 500])),
            ctrl_loss_tmo: (tmo > 0).then(|| Duration::from_millis(tmo)),
            fast_io_fail_tmo: None,
            mix: Mix::draw(random, len_max.min(disk.size as u32)),
            busy: true,
            whole: false,
            batch: random.pick(&BATCH),
            queues: 1,
            pauses: 0.0,
            channels: random.pick(&[1, 1, 1, 2]) as usize,
            choice: random.pick(&CHOICE),
        }
    }
}

impl Mix {
    fn draw(random: &mut Random, len_max: u32) -> Self {
        let mut sometimes = |weight| if random.chance(0.5) { weight } else { 0 };
        Self {
            read: 10 + sometimes(40),
            write: 10 + sometimes(40),
            write_fua: sometimes(4),
            flush: 1 + sometimes(5),
            write_zeroes: sometimes(3),
            discard: sometimes(2),
            status: 0,
            len_max,
        }
    }
}
