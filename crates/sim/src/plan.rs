//! What a seed decides before a run begins: who takes part, how big everything is, and which
//! faults there are. Each seed turns some of them on and the others off (swarm testing, Groce et
//! al. 2012): with everything on at once, some bugs never get far enough to show.

use std::time::Duration;

use tyche_proto::BatchPolicy;
use tyche_wire::ETHERNET_LEN;

use crate::random::Random;

/// The most usual one twice.
const BATCH: [BatchPolicy; 4] =
    [BatchPolicy::Adaptive, BatchPolicy::Adaptive, BatchPolicy::None, BatchPolicy::Natural];

/// Everything that a run needs to know.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the run's own chance follows from.
    pub seed: u64,
    /// Operations before the faults stop.
    pub operations: u32,
    /// The target.
    pub target: TargetPlan,
    /// Its disk.
    pub disk: DiskPlan,
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// The links; every host is on each of them.
    pub links: Vec<LinkPlan>,
    /// What happens besides.
    pub incidents: Incidents,
}

/// A target.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// Positions of its receive rings.
    pub rings: [u16; 2],
    /// Slots of a channel.
    pub queue_size_max: u16,
    /// Pages of a channel's data queue.
    pub damq_pages_max: u32,
    /// How its answers share frames.
    pub batch: BatchPolicy,
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
    /// How often a request fails.
    pub errors: f64,
    /// How often a request takes a thousand times as long.
    pub hiccups: f64,
    /// Flushes succeed without doing anything: broken on purpose.
    pub flush_lies: bool,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// It never writes.
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
    /// How long the target may be lost.
    pub ctrl_loss_tmo: Option<Duration>,
    /// How its requests share frames.
    pub batch: BatchPolicy,
    /// What it asks for.
    pub mix: Mix,
    /// Whether it submits operations of its own.
    pub busy: bool,
    /// All its reads and writes have the full length.
    pub whole: bool,
}

/// How often which operation is submitted, relative to each other, and how long it is.
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
    /// Longest read or write in bytes.
    pub len_max: u32,
}

/// A link.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// Longest frame that the interfaces take.
    pub frame_len_max: usize,
    /// Longest frame that the switch between them passes on.
    pub frame_len_passed: usize,
    /// Bits per second.
    pub rate: u64,
    /// Time that a port of the switch may be behind before it drops frames.
    pub queue: Duration,
    /// Time from end to end.
    pub latency: Duration,
    /// What may come on top of it, by chance: frames overtake each other.
    pub jitter: Duration,
    /// What goes wrong with single frames.
    pub faults: Faults,
}

/// How often something goes wrong with a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// It is lost.
    pub drop: f64,
    /// It comes twice.
    pub duplicate: f64,
    /// Bits of it are flipped.
    pub corrupt: f64,
    /// It comes milliseconds later, sometimes many.
    pub delay: f64,
    /// It comes again much later, when its channel may be another.
    pub late: f64,
}

/// How far apart incidents of each kind are, on average; `None`: they never happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incidents {
    /// The target dies; with a write cache, maybe with loss of what was not flushed.
    pub target_crash: Option<Duration>,
    /// A host dies, and comes back as another session.
    pub host_crash: Option<Duration>,
    /// A host ends its session, and comes back later.
    pub disconnect: Option<Duration>,
    /// A link carries nothing in one direction for a while.
    pub partition: Option<Duration>,
    /// A link carries nothing for a while.
    pub flap: Option<Duration>,
    /// A link's switch begins to drop long frames, for a while.
    pub mtu_drop: Option<Duration>,
    /// The export gets another size.
    pub resize: Option<Duration>,
}

impl Plan {
    /// One host, one target, one clean link, and nothing that happens by itself.
    pub fn clean(seed: u64) -> Self {
        let mtu = 9000;
        Self {
            seed,
            operations: 0,
            target: TargetPlan {
                rings: [256, 256],
                queue_size_max: 128,
                damq_pages_max: 1024,
                batch: BatchPolicy::default(),
            },
            disk: DiskPlan {
                size: 4 << 20,
                block_size: 512,
                write_cache: false,
                latency: Duration::from_micros(80),
                errors: 0.0,
                hiccups: 0.0,
                flush_lies: false,
            },
            hosts: vec![HostPlan::quiet()],
            links: vec![LinkPlan::clean(mtu)],
            incidents: Incidents::default(),
        }
    }

    /// What the seed draws.
    pub fn draw(seed: u64, operations: u32) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let hosts = random.pick(&[1, 1, 2, 2, 3]);
        let links = random.pick(&[1, 2, 2, 3]);
        let disk = DiskPlan::draw(random);
        Self {
            seed,
            operations,
            target: TargetPlan {
                rings: [random.pick(&[16, 64, 256, 4096]), random.pick(&[16, 64, 256, 4096])],
                queue_size_max: random.pick(&[1, 4, 32, 128, 1024]),
                damq_pages_max: random.pick(&[256, 300, 1024]),
                batch: random.pick(&BATCH),
            },
            hosts: (0..hosts).map(|index| HostPlan::draw(random, index, &disk)).collect(),
            links: (0..links).map(|_| LinkPlan::draw(random)).collect(),
            incidents: Incidents::draw(random),
            disk,
        }
    }
}

impl DiskPlan {
    fn draw(random: &mut Random) -> Self {
        Self {
            size: random.pick(&[64 << 10, 256 << 10, 1 << 20, 4 << 20]),
            block_size: random.pick(&[512, 512, 4096]),
            write_cache: random.chance(0.5),
            latency: Duration::from_micros(random.pick(&[20, 100, 1000, 10_000])),
            errors: if random.chance(0.2) { 0.002 } else { 0.0 },
            hiccups: if random.chance(0.4) { random.pick(&[0.01, 0.05]) } else { 0.0 },
            flush_lies: false,
        }
    }
}

impl HostPlan {
    /// A host that does only what it is told.
    pub fn quiet() -> Self {
        Self {
            read_only: false,
            queue_size: 64,
            rings: [256, 256],
            depth: 64,
            think: Duration::ZERO,
            keep_alive: Duration::from_millis(500),
            reconnect_delay: Duration::from_millis(50),
            ctrl_loss_tmo: None,
            batch: BatchPolicy::default(),
            mix: Mix {
                read: 1,
                write: 1,
                write_fua: 0,
                flush: 0,
                write_zeroes: 0,
                discard: 0,
                len_max: 4096,
            },
            busy: false,
            whole: false,
        }
    }

    fn draw(random: &mut Random, index: u64, disk: &DiskPlan) -> Self {
        let len_max = random.pick(&[4096, 16 << 10, 64 << 10, 256 << 10, 3 << 20]);
        let keep_alive = random.pick(&[100, 100, 300, 1000, 3000]);
        let tmo = random.pick(&[0, 0, 500, 2000, 10_000]);
        Self {
            read_only: index > 0 && random.chance(0.4),
            queue_size: random.pick(&[1, 4, 32, 128, 1024]),
            rings: [random.pick(&[16, 64, 256, 4096]), random.pick(&[16, 64, 256, 4096])],
            depth: random.pick(&[1, 4, 16, 64]),
            think: Duration::from_micros(random.pick(&[0, 200, 5000, 20_000, 50_000])),
            keep_alive: Duration::from_millis(keep_alive),
            reconnect_delay: Duration::from_millis(random.pick(&[10, 100, 500])),
            ctrl_loss_tmo: (tmo > 0).then(|| Duration::from_millis(tmo)),
            mix: Mix::draw(random, len_max.min(disk.size as u32)),
            busy: true,
            whole: false,
            batch: random.pick(&BATCH),
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
            len_max,
        }
    }
}

impl LinkPlan {
    /// 10 Gb/s, and nothing goes wrong.
    pub fn clean(mtu: usize) -> Self {
        Self {
            frame_len_max: ETHERNET_LEN + mtu,
            frame_len_passed: ETHERNET_LEN + mtu,
            rate: 10_000_000_000,
            queue: Duration::from_secs(1),
            latency: Duration::from_micros(20),
            jitter: Duration::ZERO,
            faults: Faults::default(),
        }
    }

    fn draw(random: &mut Random) -> Self {
        let mtu = random.pick(&[1500, 1500, 9000, 9000, 65_535]);
        let passed = if random.chance(0.2) { 1500 } else { mtu };
        Self {
            frame_len_passed: ETHERNET_LEN + passed,
            rate: random.pick(&[1, 10, 25]) * 1_000_000_000,
            queue: Duration::from_micros(random.pick(&[500, 5000, 1_000_000])),
            latency: Duration::from_micros(random.pick(&[5, 30, 500])),
            jitter: Duration::from_micros(random.pick(&[0, 5, 50, 500])),
            faults: Faults::draw(random),
            ..Self::clean(mtu)
        }
    }
}

impl Faults {
    fn draw(random: &mut Random) -> Self {
        let mut sometimes = |rates: &[f64]| {
            if random.chance(0.5) { random.pick(rates) } else { 0.0 }
        };
        Self {
            drop: sometimes(&[0.001, 0.01, 0.05]),
            duplicate: sometimes(&[0.001, 0.02]),
            corrupt: sometimes(&[0.001, 0.02]),
            delay: sometimes(&[0.001, 0.02]),
            late: sometimes(&[0.01, 0.1]),
        }
    }
}

impl Incidents {
    fn draw(random: &mut Random) -> Self {
        let mut sometimes = |milliseconds: &[u64]| {
            let mean = Duration::from_millis(random.pick(milliseconds));
            random.chance(0.4).then_some(mean)
        };
        Self {
            target_crash: sometimes(&[200, 1000, 4000]),
            host_crash: sometimes(&[300, 2000]),
            disconnect: sometimes(&[300, 2000]),
            partition: sometimes(&[200, 1000]),
            flap: sometimes(&[200, 1000]),
            mtu_drop: sometimes(&[500, 2000]),
            resize: sometimes(&[300, 2000]),
        }
    }
}
