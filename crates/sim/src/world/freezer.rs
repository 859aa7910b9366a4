//! Frozen parts of the world, which do nothing for a while: their events wait, and then come all at
//! once.

use std::time::Duration;

use tyche_proto::{Instant, Rules};

use super::{Event, World};
use crate::network::Station;
use crate::trace::Happening;

/// Frames that an interface keeps for a process that does not take them.
const BACKLOG_MAX: usize = 1024;

/// A part of the world that can freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Station(Station),
    Disk,
}

/// A part that is frozen.
struct Frozen {
    part: Part,
    until: Instant,
    /// Number of frames that wait.
    backlog: usize,
}

/// The list of frozen parts, each with the end of its freeze. It bounds the frames that wait for a
/// part, as the receive queue of an interface does.
#[derive(Default)]
pub(super) struct Freezer(Vec<Frozen>);

impl Freezer {
    /// The end of a part's freeze, if it is frozen.
    pub(super) fn until(&mut self, part: Option<Part>, now: Instant) -> Option<Instant> {
        self.0.retain(|frozen| frozen.until > now);
        let frozen = self.0.iter().find(|frozen| Some(frozen.part) == part);
        frozen.map(|frozen| frozen.until)
    }

    /// Whether another frame is kept for a frozen part.
    fn keeps(&mut self, part: Option<Part>) -> bool {
        let Some(frozen) = self.0.iter_mut().find(|frozen| Some(frozen.part) == part) else {
            return true;
        };
        frozen.backlog += 1;
        frozen.backlog <= BACKLOG_MAX
    }
}

impl<R: Rules> World<R> {
    pub(super) fn freeze_part(&mut self, part: Part, time: Duration) {
        let until = self.now + time;
        if self.freezer.until(Some(part), self.now).is_none() {
            self.freezer.0.push(Frozen { part, until, backlog: 0 });
            self.report.freezes += 1;
            self.note(Happening::Incident(format!("{part:?} is frozen for {time:?}")));
        }
    }

    /// Postpones an event of a frozen part until its thaw.
    pub(super) fn postpone(&mut self, thaw: Instant, event: Event) {
        if matches!(event, Event::Arrive(_)) && !self.freezer.keeps(self.part_of(&event)) {
            self.frames_in_flight -= 1;
            return;
        }
        self.schedule.plan(thaw, event);
    }
}
