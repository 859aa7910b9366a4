//! The forger, and frames that come late: sends copies of earlier frames, and frames that are made
//! up. The plan's module lists those that are forged, and those that are not.

use std::time::Duration;

use tyche_proto::{Instant, Rules};
use tyche_wire::{Body, Checksums, Connect, Control, HEAD_LEN, Header, Kind, Mac, SealedConnect};

use super::forgeries::Forgery;
use super::{Event, World};
use crate::network::{Port, Station};
use crate::random::{Random, mix};
use crate::trace::Happening;

/// Frames of a former life.
const FORMER_FRAMES: u64 = 24;
/// Limits of the time that frames of a former life, and held ones, are on their way.
const LATE_US: u64 = 2_000_000;
const HELD_US: u64 = 6_000_000;

impl<R: Rules> World<R> {
    /// Delays this Connect if all of its attempt are to be delayed for long; returns whether they
    /// are.
    pub(super) fn hold(
        &mut self,
        from: Port,
        frame: &[u8],
        header: &Header,
    ) -> Result<bool, String> {
        let held = self.plan.strangers.held;
        let connects = matches!(header.kind, Kind::Connect | Kind::SealedConnect);
        if !connects || held == 0.0 || self.calm {
            return Ok(false);
        }
        let Ok(Body::Control(pdu)) = Body::parse(header, &frame[HEAD_LEN..], &Checksums) else {
            return Ok(false);
        };
        let attempt = match pdu.decode() {
            Control::Connect(Connect { attempt, .. }) => attempt,
            Control::SealedConnect(SealedConnect { attempt, .. }) => attempt,
            _ => return Ok(false),
        };
        if !Random::new(mix(attempt ^ self.plan.seed)).chance(held) {
            return Ok(false);
        }
        self.report.held += 1;
        let late = Duration::from_micros(self.others.random.below(HELD_US));
        let segment = self.network.segment(from);
        self.network.inject(self.now + late, segment, frame);
        self.plan_deliveries()?;
        Ok(true)
    }

    /// Sends frames from before anew when the target or a host begins a new life.
    pub(super) fn begin_anew(&mut self) {
        if !self.plan.strangers.former_lives || self.calm {
            return;
        }
        let before = self.now;
        for _ in 0..FORMER_FRAMES {
            let late = Duration::from_micros(self.others.random.below(LATE_US));
            self.plan_in(late, Event::Former { before });
        }
    }

    /// Sends a frame from before again, on its segment.
    pub(super) fn repeat_former(&mut self, before: Instant) -> Result<(), String> {
        if self.calm {
            return Ok(());
        }
        let others = &mut self.others;
        let Some(found) = others.recorder.draw(&mut others.random, before) else { return Ok(()) };
        let (segment, frame) = (found.segment, found.frame.to_vec());
        self.report.repeated += 1;
        self.inject("late", segment, &frame)
    }

    fn inject(&mut self, what: &str, segment: usize, frame: &[u8]) -> Result<(), String> {
        let head: &[u8; HEAD_LEN] = frame.first_chunk().expect("a head");
        let (source, destination) = (Mac::source(head), Mac::destination(head));
        let header = Header::parse(head);
        if let Ok(header) = &header {
            self.witness_question(Station::Stranger, frame, header);
        }
        let header = header.map(|header| header.to_string()).unwrap_or_default();
        let what = format!("{what} on segment {segment}, {source} to {destination}: {header}");
        self.note(Happening::Incident(what));
        self.network.inject(self.now, segment, frame);
        self.plan_deliveries()
    }

    /// Has the forger send a frame.
    pub(super) fn forge(&mut self) -> Result<(), String> {
        let Some(plan) = self.plan.strangers.forger.clone() else { return Ok(()) };
        if self.calm {
            return Ok(());
        }
        let pause = self.others.random.around(plan.pause);
        self.plan_in(pause, Event::Forge);
        let kinds = match plan.repeats_only {
            true => &Forgery::REPEATS[..],
            false if self.plan.requires_keys() => &Forgery::OF_KEYED,
            false => &Forgery::ALL,
        };
        let forgery = self.others.random.pick(kinds);
        let Some((segment, frame)) = self.compose(forgery) else { return Ok(()) };
        if plan.segment.is_some_and(|own| own != segment) {
            return Ok(());
        }
        match forgery {
            Forgery::Repeat | Forgery::RepeatElsewhere => self.report.repeated += 1,
            _ => self.report.forged += 1,
        }
        self.inject(&format!("{forgery:?}"), segment, &frame)
    }

    /// Takes note of a forged Disconnect that the target takes. The target then believes that its
    /// host knows all the answers, and remembers none: requests in progress may be executed again,
    /// as after a restart.
    pub(super) fn believe_farewell(&mut self, link: usize, header: &Header) {
        let name = (header.cookie.0, header.packet.0);
        if header.kind != Kind::Disconnect || !self.others.recorder.farewells.remove(&name) {
            return;
        }
        let Some(process) = &mut self.process else { return };
        let Some(owner) = process.owner(link, header.channel) else { return };
        let session = owner.session;
        process.forget(session);
        let Some(channel) = process.channels.get(&(link, header.channel)) else { return };
        self.volumes[channel.export].history.forget_outcomes();
    }
}
