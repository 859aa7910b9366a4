//! Edges of ordinary operation: numbers that wrap, several exports, exports with several writers,
//! and a host that breaks the protocol.

use std::time::Duration;

use super::{DiskPlan, HostPlan, LinkPlan, Plan};
use crate::random::Random;

/// Salt of a seed for the random stream of this module.
const EDGES: u64 = 0x6564_6765_7300;

/// The most hosts that a plan has in all.
const HOSTS_MAX: usize = 5;

/// An export of the target.
#[derive(Clone, Debug)]
pub struct ExportPlan {
    /// Its disk.
    pub disk: DiskPlan,
    /// Several hosts may write at once.
    pub shared: bool,
    /// It is for the host that breaks the protocol: its content is unknown.
    pub wild: bool,
}

/// A host that breaks the protocol wherever it can.
#[derive(Clone, Debug)]
pub struct BreakerPlan {
    /// Its links: it uses one at a time.
    pub links: Vec<LinkPlan>,
    /// It writes to an export of its own; otherwise it reads the first one.
    pub writes: bool,
    /// It opens one channel after the other, and sends nothing on them.
    pub floods: bool,
    /// Mean time between two frames of it.
    pub pause: Duration,
    /// Frames that it sends in all.
    pub frames: u32,
}

impl Plan {
    /// All exports, by index. The last one is the breaker's if it has one.
    pub fn exports(&self) -> impl Iterator<Item = ExportPlan> {
        let first = ExportPlan { disk: self.disk.clone(), shared: self.shared, wild: false };
        let of_breaker = self.breaker.as_ref().filter(|breaker| breaker.writes);
        let wild = |_| ExportPlan { disk: DiskPlan::of_breaker(), shared: false, wild: true };
        let further = self.further.iter().cloned().chain(of_breaker.map(wild));
        std::iter::once(first).chain(further)
    }

    /// Draws numbers that wrap, further exports and the breaker.
    pub(super) fn draw_edges(&mut self) {
        let random = &mut Random::new(self.seed ^ EDGES);
        self.wraps = random.chance(0.25);
        let (several, shared) = (random.chance(0.2), random.chance(0.15));
        let (breaks, in_parts) = (random.chance(0.25), random.chance(0.06));
        if breaks {
            self.breaker = Some(BreakerPlan {
                writes: random.chance(0.75),
                floods: random.chance(0.2),
                pause: Duration::from_micros(random.pick(&[500, 2000, 10_000])),
                ..BreakerPlan::new(self.hosts[0].links.clone())
            });
        }
        // With a limit for the time of operations, no other host may load disks and links.
        if self.stall_max.is_some() {
            return;
        }
        if in_parts {
            self.write_in_parts(random);
        }
        if several {
            self.draw_further(random);
        }
        if shared {
            self.shared = true;
            self.add_hosts(random, 2);
            let last = self.hosts.len() - 1;
            (self.hosts[last].read_only, self.hosts[last].export) = (false, 0);
        }
    }

    /// Has several channels carry each operation, whose parts end at different times, and has the
    /// target die often in between.
    fn write_in_parts(&mut self, random: &mut Random) {
        self.operations = self.operations.min(150);
        (self.disk.write_cache, self.disk.hiccups) = (true, 0.2);
        self.disk.size = self.disk.size.max(1 << 20);
        self.incidents.target_crash = Some(Duration::from_millis(random.pick(&[100, 300])));
        let host = &mut self.hosts[0];
        (host.depth, host.channels, host.whole) = (1, 2, true);
        (host.mix.len_max, host.mix.write) = (256 << 10, 60);
    }

    /// Draws one or two further exports, and hosts for them.
    fn draw_further(&mut self, random: &mut Random) {
        for _ in 0..random.pick(&[1, 1, 2]) {
            let mut disk = DiskPlan::draw(random);
            disk.draw_faults(random, false);
            self.further.push(ExportPlan { disk, shared: random.chance(0.3), wild: false });
        }
        self.add_hosts(random, 2);
        let exports = self.further.len() as u64 + 1;
        for host in &mut self.hosts[1..] {
            host.export = random.below(exports) as usize;
        }
    }

    /// Adds hosts up to `least`, and perhaps another one.
    fn add_hosts(&mut self, random: &mut Random, least: usize) {
        let wanted = least.max(self.hosts.len() + random.below(2) as usize).min(HOSTS_MAX);
        while self.hosts.len() < wanted {
            let links = random.below(self.hosts.len() as u64) as usize;
            let links = self.hosts[links].links.clone();
            let index = self.hosts.len() as u64;
            self.hosts.push(HostPlan::draw(random, index, links, &self.disk));
        }
    }
}

impl BreakerPlan {
    /// A breaker that writes to an export of its own.
    pub fn new(links: Vec<LinkPlan>) -> Self {
        let pause = Duration::from_millis(1);
        Self { links, writes: true, floods: false, pause, frames: 600 }
    }
}

impl DiskPlan {
    /// A small disk without faults.
    fn of_breaker() -> Self {
        let disk = Plan::clean(0).disk;
        Self { size: 64 << 10, latency: Duration::from_micros(20), ..disk }
    }
}
