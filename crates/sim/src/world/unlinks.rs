//! Links that the target's administrator removes while hosts use them, and adds again later.
//!
//! Rule: nobody is let in over a link that was removed, it ends as soon as the disks have finished
//! the requests that have come over it, and sessions go on over the others.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_proto::Rules;

use super::incidents::Incident;
use super::{Event, World};
use crate::network::Station;
use crate::trace::Happening;

/// Time between two attempts to add a link of which something is left.
const AGAIN: Duration = Duration::from_millis(100);
/// The most attempts: a disk does not take that long.
const ATTEMPTS: u32 = 600;

/// The links that are removed now, each with the attempts to add it again.
#[derive(Default)]
pub(super) struct Unlinks(BTreeMap<usize, u32>);

impl Unlinks {
    /// Another run of the target serves all links.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl<R: Rules> World<R> {
    /// Removes a link of the target for a while, unless another is removed.
    pub(super) fn unlink_randomly(&mut self) -> Result<(), String> {
        let links = self.plan.target.links.len() as u64;
        let link = self.random.below(links) as usize;
        if links < 2 || !self.unlinks.0.is_empty() {
            return Ok(());
        }
        self.unlink(link)?;
        let pause = Duration::from_millis(self.random.pick(&[1, 50, 500]));
        self.plan_in(pause, Event::Incident(Incident::LinkBack(link)));
        Ok(())
    }

    /// Removes a link of the target.
    pub(super) fn unlink(&mut self, link: usize) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if !process.remove_link(self.now, link) {
            return Ok(());
        }
        self.unlinks.0.insert(link, 0);
        self.report.unlinks += 1;
        self.note(Happening::Incident(format!("the target's link {link} is removed")));
        self.drive_target()
    }

    /// Adds a link again that was removed, as soon as nothing of it is left.
    pub(super) fn link_back(&mut self, link: usize) -> Result<(), String> {
        let Some(attempts) = self.unlinks.0.get_mut(&link) else { return Ok(()) };
        *attempts += 1;
        if *attempts > ATTEMPTS {
            return Err(format!("the target's link {link}, which was removed, does not end"));
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        let port = self.network.port(Station::Target, link);
        let mac = (self.network.mac(port), self.network.carrier(port));
        let plan = (&self.plan.target, self.plan.keyed.then(|| self.rotation.keys()));
        if !process.add_link_again(plan, link, mac, self.random.fork()) {
            self.plan_in(AGAIN, Event::Incident(Incident::LinkBack(link)));
            return Ok(());
        }
        self.unlinks.0.remove(&link);
        self.note(Happening::Incident(format!("the target's link {link} is added again")));
        self.drive_target()
    }
}
