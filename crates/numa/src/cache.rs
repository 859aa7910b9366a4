//! The last-level caches of a machine, and which of them a session belongs to.
//!
//! A hand-over between two CPUs costs two to five times as much if they do not share a cache, and a
//! processor of today has several on one NUMA node. So all threads of a
//! session belong to one, if it has room for them: best to that of the CPUs which the interfaces of
//! its links interrupt, and else to the one with the fewest sessions.

use crate::{Cpus, Topology};

impl Topology {
    /// The CPUs that a process with so many busy threads belongs to, which uses these interfaces
    /// and may run on `allowed`: those of one cache. `others` are the CPUs of processes like it,
    /// and `turn` decides between caches with equally many.
    ///
    /// `None` if there is nothing to choose, or no cache has so many CPUs.
    pub fn cache_for(
        &self,
        (threads, interfaces): (usize, &[&str]),
        allowed: &Cpus,
        others: &[Cpus],
        turn: usize,
    ) -> Option<Cpus> {
        let usable = |group: &Cpus| group.intersection(allowed);
        let caches = self.caches();
        let mut groups: Vec<_> = caches.iter().filter(|it| !usable(it).is_empty()).collect();
        if groups.len() < 2 {
            return None;
        }
        groups.retain(|group| usable(group).len() >= threads);
        let near: Vec<_> =
            groups.iter().copied().filter(|it| self.is_near(it, interfaces)).collect();
        let mut groups = if near.is_empty() { groups } else { near };
        if groups.is_empty() {
            return None;
        }
        let count = groups.len();
        groups.rotate_left(turn % count);
        let crowd = |group: &Cpus| others.iter().filter(|cpus| group.contains(cpus)).count();
        let interrupted: Cpus = interfaces.iter().flat_map(|it| self.interrupted(it)).collect();
        let best = groups.iter().copied().find(|group| {
            let has_room = usable(group).len() >= crowd(group) + threads;
            has_room && !interrupted.is_empty() && group.contains(&interrupted)
        });
        best.or_else(|| groups.into_iter().min_by_key(|group| crowd(group))).map(usable)
    }

    /// Whether a cache is on the node of these interfaces, as far as that is known.
    fn is_near(&self, group: &Cpus, interfaces: &[&str]) -> bool {
        let nodes = interfaces.iter().filter_map(|it| self.node_of_interface(it));
        let mut nodes = nodes.filter_map(|node| self.cpus(node));
        nodes.all(|cpus| cpus.contains(group))
    }
}
