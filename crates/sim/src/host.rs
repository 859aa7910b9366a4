//! A host of the simulation: a session, its operations, and its workload.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_proto::crypto::PublicKey;
use tyche_proto::{
    ExportId, Instant, OpId, Operation, PathReport, PortConfig, ResumeState, Rules, SessionConfig,
    TargetId,
};
use tyche_wire::{ChannelId, CommandFlags, Name, Opcode, Uuid};

use crate::keys;
use crate::link::Carrier;
use crate::network::{Network, Station};
use crate::plan::{HostPlan, Mix};
use crate::queues::{LocalLink, Queues};
use crate::random::Random;

/// Longest time until the kept state is on the host's own disk.
const KEEPING_MAX: Duration = Duration::from_millis(20);

/// The name of the export with that index.
pub(crate) fn export_name(index: usize) -> Name {
    Name::new(&format!("disk-{index}")).expect("a name")
}

/// The index of the export of that name.
pub(crate) fn export_index(name: Name) -> usize {
    let index = name.as_str().strip_prefix("disk-").and_then(|index| index.parse().ok());
    index.expect("the name of an export")
}

/// An operation in progress.
pub(crate) struct Pending {
    pub(crate) operation: Operation,
    /// Identifies a modifying operation; zero for others.
    pub(crate) stamp: u64,
    pub(crate) submitted: Instant,
    /// Number of outages before its submission.
    pub(crate) outages: u64,
    /// Bytes of data that it may have to wait for, its own among them.
    pub(crate) behind: u64,
}

/// A run of a host's session.
pub(crate) struct Running<R: Rules> {
    /// Number of the session among those of all hosts.
    pub(crate) number: u64,
    pub(crate) session: Queues<R>,
    pub(crate) pending: BTreeMap<OpId, Pending>,
    /// Whether it was ever connected: from then on it takes operations.
    pub(crate) connected: bool,
    pub(crate) closing: bool,
}

/// State that a host keeps on a disk of its own for the next program that serves its device.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    newest: ResumeState,
    since: Instant,
    /// The state before that.
    older: ResumeState,
}

/// A device that a dead program has left, with its unanswered operations.
pub(crate) struct Left {
    pub(crate) session: u64,
    pub(crate) former: ResumeState,
    pub(crate) pending: Vec<(OpId, Pending)>,
}

/// One host of the simulation: the session that it runs, the state that it keeps for the next, and
/// the random workload. It outlives its programs: they crash, and take the device over.
pub(crate) struct Host<R: Rules> {
    index: usize,
    pub(crate) plan: HostPlan,
    pub(crate) running: Option<Running<R>>,
    kept: Option<Kept>,
    /// A device that waits for another program.
    pub(crate) left: Option<Left>,
    /// Links that were removed from the session, and are not in the next one either.
    pub(crate) removed: BTreeSet<usize>,
    /// When the next timer event is planned.
    pub(crate) alarm: Option<Instant>,
    /// Earliest time of the next operation.
    pub(crate) thinking_until: Instant,
    pub(crate) sessions: u64,
    pub(crate) random: Random,
    /// Whether it opens the first of its channels for reading only.
    pub(crate) reads_first: bool,
    /// If so: the attempts of its session, each with whether it is to be admitted for writing, and
    /// whether one of those was.
    pub(crate) attempts: BTreeMap<u64, bool>,
    pub(crate) writes: bool,
    /// The generation that it was told last, and the one that each queue of its session was.
    pub(crate) generation: Option<Uuid>,
    pub(crate) generations: BTreeMap<usize, Uuid>,
    /// The target that it asks for.
    pub(crate) target: TargetId,
    /// The key that it knows that by, if it has keys and has been started.
    pub(crate) target_key: Option<PublicKey>,
    uuid: Uuid,
    name: Name,
}

/// Makes a UUID of a number.
pub(crate) fn uuid(kind: u64, number: u64) -> Uuid {
    Uuid::from_u128(u128::from(kind) << 64 | u128::from(number))
}

impl<R: Rules> Host<R> {
    pub(crate) fn new(index: usize, plan: HostPlan, random: Random) -> Self {
        Self {
            index,
            plan,
            running: None,
            kept: None,
            left: None,
            removed: BTreeSet::new(),
            alarm: None,
            thinking_until: Instant(0),
            sessions: 0,
            random,
            reads_first: false,
            attempts: BTreeMap::new(),
            writes: false,
            generation: None,
            generations: BTreeMap::new(),
            target: TargetId::Any,
            target_key: None,
            uuid: uuid(1, index as u64),
            name: Name::new(&format!("host-{index}")).expect("a name"),
        }
    }

    /// The same host with the UUID of another: its machine is a copy of that one's.
    pub(crate) fn like(self, other: usize) -> Self {
        Self { uuid: uuid(1, other as u64), ..self }
    }

    pub(crate) fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Begins a session, which takes over the device of a `former` one if given. `target_key`: the
    /// key that a new host with keys knows the target by.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        number: u64,
        former: Option<ResumeState>,
        network: &Network,
        target_key: Option<PublicKey>,
    ) {
        assert!(self.running.is_none(), "one session at a time");
        (self.attempts, self.writes) = (BTreeMap::new(), false);
        self.generations.clear();
        self.kept = former.map(|former| Kept { newest: former, since: now, older: former });
        self.target_key = self.target_key.or(target_key);
        let plan = &self.plan;
        let config = SessionConfig {
            host: self.uuid,
            host_name: self.name,
            session: uuid(2, number),
            device: former.map_or(uuid(2, number), |former| former.device),
            resumes: former.map(|former| former.export),
            export: ExportId::Name(export_name(plan.export)),
            target: self.target,
            queue_size: plan.queue_size,
            damq_pages: 512,
            operations_max: plan.depth,
            read_only: plan.read_only,
            checksum: true,
            // Every other session, so that completions occur with and without stage times.
            stages: number % 2 == 1,
            keep_alive: plan.keep_alive,
            reconnect_delay: plan.reconnect_delay,
            ctrl_loss_tmo: plan.ctrl_loss_tmo,
            fast_io_fail_tmo: plan.fast_io_fail_tmo,
            batch: plan.batch,
            channels: plan.channels,
            choice: plan.choice,
            keys: self.target_key.map(|key| keys::of_host(self.uuid.as_u64_pair().1, key)),
        };
        let used = (0..plan.links.len()).filter(|link| !self.removed.contains(link));
        let links = used.map(|link| self.local(link, network)).collect();
        let queues = (if self.reads_first { 1 } else { plan.queues }, plan.pauses);
        let session = Queues::new(config, queues, links, self.random.fork(), now);
        self.sessions += 1;
        self.running = Some(Running {
            number,
            session,
            pending: BTreeMap::new(),
            // A device that was taken over takes operations at once.
            connected: former.is_some(),
            closing: false,
        });
    }

    /// Keeps the session's [`ResumeState`] for the next program.
    pub(crate) fn keep(&mut self, now: Instant) {
        let newest = self.running.as_ref().and_then(|running| running.session.resume_state());
        let Some(newest) = newest else { return };
        let older = self.kept.map_or(newest, |kept| kept.newest);
        self.kept = Some(Kept { newest, since: now, older });
    }

    /// The kept state as the next program finds it: the newest may not be on the disk yet.
    pub(crate) fn find_kept(&mut self, now: Instant) -> Option<ResumeState> {
        let Kept { newest, since, older } = self.kept?;
        let is_late = now.since(since) < KEEPING_MAX && self.random.chance(0.5);
        Some(if is_late { older } else { newest })
    }

    /// Draws the next operation for a disk of `size` bytes in blocks of `block` bytes.
    pub(crate) fn draw(&mut self, size: u64, block: u64) -> Operation {
        let random = &mut self.random;
        let (opcode, flags) = draw_kind(random, &self.plan.mix, self.plan.read_only);
        if opcode == Opcode::Flush {
            return Operation { opcode, flags, offset: 0, len: 0 };
        }
        if opcode == Opcode::BlockStatus {
            let offset = random.below(size / block) * block;
            let len = random.pick(&[block, 4096]).min(size - offset) as u32;
            return Operation { opcode, flags, offset, len };
        }
        let longest = u64::from(self.plan.mix.len_max).min(size) / block;
        // Half of the requests are one block, and the rest of all lengths.
        let short = !self.plan.whole && random.chance(0.5);
        let shortest = if self.plan.whole { longest } else { 1 };
        let blocks = if short { 1 } else { random.between(shortest, longest.max(1)) };
        // Half of the requests meet in the first eighth of the disk.
        let places = size / block - blocks.min(size / block) + 1;
        let places = if random.chance(0.5) { places.div_ceil(8) } else { places };
        let offset = random.below(places) * block;
        Operation { opcode, flags, offset, len: (blocks * block) as u32 }
    }
}

fn draw_kind(random: &mut Random, mix: &Mix, read_only: bool) -> (Opcode, CommandFlags) {
    if read_only {
        let asks = random.hits(f64::from(mix.status) / 100.0);
        let opcode = if asks { Opcode::BlockStatus } else { Opcode::Read };
        return (opcode, CommandFlags::NONE);
    }
    let kinds = [
        (mix.read, Opcode::Read, CommandFlags::NONE),
        (mix.write, Opcode::Write, CommandFlags::NONE),
        (mix.write_fua, Opcode::Write, CommandFlags::FUA),
        (mix.flush, Opcode::Flush, CommandFlags::NONE),
        (mix.write_zeroes, Opcode::WriteZeroes, CommandFlags::NONE),
        (mix.discard, Opcode::Discard, CommandFlags::NONE),
        (mix.status, Opcode::BlockStatus, CommandFlags::NONE),
    ];
    let total: u32 = kinds.iter().map(|kind| kind.0).sum();
    let mut point = random.below(u64::from(total)) as u32;
    for (weight, opcode, flags) in kinds {
        if point < weight {
            return (opcode, flags);
        }
        point -= weight;
    }
    unreachable!("the point lies below the sum of the weights")
}

impl<R: Rules> Host<R> {
    /// A link as the session sees it.
    fn local(&self, link: usize, network: &Network) -> LocalLink {
        let frame_len_max = self.plan.links[link].frame_len_max;
        let port = network.port(Station::Host(self.index), link);
        let (mac, carrier) = (network.own_mac(port), network.carrier(port));
        let routed = carrier != Carrier::Ethernet;
        let config = PortConfig {
            frame_len_max,
            rings: self.plan.rings,
            target: None,
            node: None,
            transport: u8::from(routed),
            routed,
            checks_data: false,
        };
        LocalLink { link, mac, carrier, config }
    }

    /// Removes a link from the session, unless it is the last; returns whether it is removed.
    pub(crate) fn remove_link(&mut self, now: Instant, link: usize) -> bool {
        let Some(running) = &mut self.running else { return false };
        running.session.uses(link)
            && running.session.remove_link(now, link)
            && self.removed.insert(link)
    }

    /// The interface of a link goes down for a moment.
    pub(crate) fn lose_carrier(&mut self, now: Instant, link: usize) {
        if let Some(running) = &mut self.running {
            running.session.lose_carrier(now, link);
        }
    }

    /// Adds a removed link to the session, or to the next one; returns whether it was removed.
    pub(crate) fn add_link(&mut self, now: Instant, link: usize, network: &Network) -> bool {
        if !self.removed.remove(&link) {
            return false;
        }
        let local = self.local(link, network);
        if let Some(running) = &mut self.running {
            running.session.add_link(now, local);
        }
        true
    }
}

impl<R: Rules> Running<R> {
    /// The live channels of the session, each with its link.
    pub(crate) fn live_channels(&self) -> Vec<(usize, ChannelId)> {
        let live = self.session.paths().filter(|(_, path)| path.live);
        live.map(|(link, path)| (link, path.channel)).collect()
    }

    /// The session's reports on the channels of a link.
    pub(crate) fn paths(&self, link: usize) -> impl Iterator<Item = PathReport> {
        self.session.paths().filter(move |(of, _)| *of == link).map(|(_, path)| path)
    }
}

impl Pending {
    /// How long it has been in progress.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.since(self.submitted)
    }
}
