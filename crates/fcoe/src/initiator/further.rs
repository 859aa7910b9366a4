//! A further lane of a session: commands, without a port.

use tyche_block::Geometry;
use tyche_engine::{Done, Frames, Job, Ports, Protocol, Received, RequestCounts, Service, now};
use tyche_fc::neighbour::Membership;
use tyche_fc::wire::{Mac, Reject};
use tyche_fc::{AllRules, Rules};
use tyche_remote::HostReport;
use tyche_time::Instant;

use super::lane::{InitiatorConfig, InitiatorLane};
use super::report::{report, take_ended};
use super::requests::Ended;
use super::shared::{LaneHandle, LaneNews};
use crate::n_port;
use crate::n_port::Rejects;

/// A further lane as the protocol of a loop, whose only port is [`FCOE`](crate::FCOE), with a link
/// for the [share](crate::share) of the lane.
pub struct FurtherLane<R = AllRules> {
    lane: InitiatorLane<R>,
    /// The number of the state that it has taken in.
    version: u64,
    is_confirmed: bool,
    /// The port's address in that state, and the one that the link has joined.
    own: Option<Mac>,
    joined: Option<Mac>,
    is_stopped: bool,
    rejects: Rejects,
}

impl FurtherLane {
    /// A lane that is not logged in.
    fn new(config: InitiatorConfig, handle: LaneHandle) -> Self {
        Self::with_rules(config, handle, AllRules)
    }
}

impl<R: Rules> FurtherLane<R> {
    /// A lane that is not logged in, with other rules than those of the product.
    pub fn with_rules(config: InitiatorConfig, handle: LaneHandle, rules: R) -> Self {
        Self {
            lane: InitiatorLane::new(config, handle, rules),
            version: 0,
            is_confirmed: true,
            own: None,
            joined: None,
            is_stopped: false,
            rejects: Rejects::default(),
        }
    }

    /// Takes the state of the session, if it is new. To be called in each turn of the loop; false
    /// if nothing has changed.
    pub fn attend(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let mut worked = self.take_state(now);
        if self.own != self.joined {
            let left = self.joined.map(Membership::Leave);
            let joined = self.own.map(Membership::Join);
            left.into_iter().chain(joined).for_each(|it| n_port::change(ports, it));
            self.joined = self.own;
        }
        // Frames of a login that has ended may wait for room in the interface.
        if !self.is_confirmed && !ports.holds_frames() {
            self.is_confirmed = true;
            self.lane.handle.confirm(self.version);
            worked = true;
        }
        worked
    }

    fn take_state(&mut self, now: Instant) -> bool {
        let Some((version, state)) = self.lane.handle.state(self.version) else { return false };
        (self.version, self.is_confirmed) = (version, false);
        (self.own, self.is_stopped) = (state.own.map(|(_, mac)| mac), state.is_stopped);
        self.lane.take(now, &state);
        self.tell();
        true
    }

    /// Takes a request, or gives it back if there is no room.
    ///
    /// # Errors
    /// The request, if there is no room for it now.
    pub fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        // The submitter may know a size of the disk that the lane does not know yet.
        self.take_state(now);
        self.lane.submit(now, job)
    }

    /// Takes the requests that have ended, in this order.
    pub fn take_ended(&mut self) -> impl Iterator<Item = Ended> {
        self.lane.requests.ended.drain(..)
    }

    fn tell(&mut self) {
        let told = std::mem::take(&mut self.lane.told);
        if told != LaneNews::default() {
            self.lane.handle.tell(told);
        }
    }

    fn handle_fcoe(&mut self, now: Instant, frame: &Received<'_>) -> Result<(), Reject> {
        let frame = n_port::parse(frame)?;
        frame.check_destination()?;
        self.lane.handle_frame(now, &frame);
        Ok(())
    }
}

impl<R: Rules> Protocol for FurtherLane<R> {
    fn handle_frame(&mut self, now: Instant, _: usize, frame: &Received<'_>) {
        if let Err(reject) = self.handle_fcoe(now, frame) {
            self.rejects.add(reject);
        }
        self.tell();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
        self.tell();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lane.poll_timeout()
    }

    fn frames(&mut self, _: usize) -> impl Frames<'_> {
        self.lane.frames()
    }
}

/// A further lane with its requests. The owner takes `done` after each round.
pub(super) struct LaneDriver {
    protocol: FurtherLane,
    counts: RequestCounts,
    /// Bytes of the disk, as they were told.
    size: Option<u64>,
    /// Finished requests.
    pub(super) done: Vec<Done>,
}

impl LaneDriver {
    pub(super) fn new(config: InitiatorConfig, handle: LaneHandle) -> Self {
        let counts = RequestCounts::new(now());
        Self { protocol: FurtherLane::new(config, handle), counts, size: None, done: Vec::new() }
    }

    /// Whether requests are executed.
    pub(super) fn is_ready(&self) -> bool {
        self.protocol.lane.is_ready()
    }

    /// Whether all requests fail, for good.
    pub(super) fn has_failed(&self) -> bool {
        self.protocol.lane.is_over()
    }

    /// Whether requests are in progress.
    pub(super) fn has_requests(&self) -> bool {
        self.protocol.lane.requests.count() > 0
    }

    /// The properties of the disk, once it is known.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        self.protocol.lane.disk.map(|disk| disk.geometry)
    }

    /// The size of the disk in bytes, if it is another than at the last call.
    pub(super) fn poll_resized(&mut self) -> Option<u64> {
        let size = self.geometry()?.size;
        let former = self.size.replace(size);
        (former != Some(size)).then_some(size)
    }

    /// Takes a request, or gives it back if there is no room.
    pub(super) fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        self.protocol.submit(now, job)
    }

    /// Reports the state of the lane.
    pub(super) fn report(&mut self, now: Instant, ports: &mut Ports) -> HostReport {
        let FurtherLane { lane, rejects, .. } = &self.protocol;
        report(now, lane, (ports, rejects), &mut self.counts)
    }
}

impl Service for LaneDriver {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.protocol
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.protocol.attend(now, ports)
    }

    /// Collects answers.
    fn work(&mut self, now: Instant) -> bool {
        take_ended(now, &mut self.protocol.lane, &mut self.counts, &mut self.done)
    }

    fn is_over(&self) -> bool {
        self.protocol.is_stopped && self.protocol.lane.requests.count() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tyche_fc::port::{Cause, Event};
    use tyche_fc::wire::Wwn;
    use tyche_scsi::Lun;

    use super::super::role::InitiatorRole;
    use super::super::shared::SessionShared;
    use super::*;
    use crate::lanes::COMMANDS;
    use crate::role::Role;

    const TARGET: Wwn = Wwn(0x2000_0000_0000_0001);
    const OTHER: Wwn = Wwn(0x2000_0000_0000_0002);

    fn config() -> InitiatorConfig {
        InitiatorConfig {
            target: TARGET,
            lun: Lun::ZERO,
            depth: 1,
            frames: 1,
            read_only: false,
            ctrl_loss_tmo: None,
            fast_io_fail_tmo: None,
            xids: COMMANDS,
            seed: 0,
        }
    }

    #[test]
    fn a_login_has_ended_when_all_lanes_have_noticed() {
        let (sender, woken) = channel();
        let shared = SessionShared::new(3, move |lane| sender.send(lane).unwrap());
        let mut first = InitiatorRole::new(config(), shared.handle(0));
        let mut lanes = [1, 2].map(|lane| FurtherLane::new(config(), shared.handle(lane)));
        let (now, mut ports) = (Instant(1), Ports::new());
        first.handle_login(now, Event::LoggedOut(OTHER, Cause::Gone));
        assert_eq!(first.poll_drained(), Some(OTHER), "the lanes know nothing of that one");
        for _ in 0..2 {
            first.handle_login(now, Event::LoggedOut(TARGET, Cause::Gone));
            assert_eq!(woken.try_iter().collect::<Vec<_>>(), [1, 2]);
            for lane in &mut lanes {
                assert_eq!(first.poll_drained(), None);
                assert!(lane.attend(now, &mut ports) && !lane.attend(now, &mut ports));
            }
            assert_eq!(woken.try_iter().collect::<Vec<_>>(), [0, 0]);
            assert!(first.listen(now) && !first.listen(now));
            assert_eq!(first.poll_drained(), Some(TARGET));
        }
    }

    #[test]
    fn a_session_ends_as_one() {
        let shared = SessionShared::new(2, |_| {});
        let mut lane = LaneDriver::new(config(), shared.handle(1));
        let (now, mut ports) = (Instant(1), Ports::new());
        assert!(!lane.handle_commands(now, &mut ports) && !lane.is_over());
        shared.end();
        assert!(lane.handle_commands(now, &mut ports) && lane.is_over());
    }
}
