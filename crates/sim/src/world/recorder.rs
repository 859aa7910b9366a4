//! The recorder: frames and channels that a listener on the segments hears of. Copies and forgeries
//! are made of its records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tyche_proto::{Instant, Rules};
use tyche_wire::{Body, Checksums, Control, Cookie, HEAD_LEN, Header, Kind, Mac};

use super::World;
use crate::network::{Port, Station};
use crate::random::Random;

/// Limit of recorded frames, of channels and outside of them.
const RECORDED_MAX: usize = 256;
/// One of this many frames of channels is recorded.
const RECORDED_OF: u64 = 16;

/// A frame that was on a segment.
pub(super) struct Recorded {
    pub(super) at: Instant,
    pub(super) segment: usize,
    pub(super) kind: Kind,
    pub(super) frame: Box<[u8]>,
}

impl Recorded {
    pub(super) fn head(&self) -> &[u8; HEAD_LEN] {
        self.frame.first_chunk().expect("frames are at least a head long")
    }

    fn control(&self) -> Option<Control> {
        let header = Header::parse(self.head()).ok()?;
        match Body::parse(&header, &self.frame[HEAD_LEN..], &Checksums) {
            Ok(Body::Control(pdu)) => Some(pdu.decode()),
            _ => None,
        }
    }
}

/// One direction of a channel, as known from its frames.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub(super) segment: usize,
    pub(super) to_target: bool,
    pub(super) source: Mac,
    pub(super) destination: Mac,
    /// Header of the newest frame.
    pub(super) header: Header,
}

/// The knowledge of a listener on the segments.
#[derive(Default)]
pub(super) struct Recorder {
    frames: VecDeque<Recorded>,
    controls: VecDeque<Recorded>,
    flows: BTreeMap<u64, Flow>,
    /// Forged Disconnects that have not arrived.
    pub(super) farewells: BTreeSet<(u64, u64)>,
}

impl Recorder {
    fn push(list: &mut VecDeque<Recorded>, recorded: Recorded) {
        if list.len() == RECORDED_MAX {
            list.pop_front();
        }
        list.push_back(recorded);
    }

    /// Draws a frame that was sent before; half of the draws are among those outside of channels.
    pub(super) fn draw(&self, random: &mut Random, before: Instant) -> Option<&Recorded> {
        let lists = [&self.frames, &self.controls];
        let list = lists[usize::from(random.chance(0.5))];
        let old = list.partition_point(|it| it.at <= before);
        (old > 0).then(|| &list[random.below(old as u64) as usize])
    }

    /// Draws a frame of that kind, with its body.
    pub(super) fn control(&self, random: &mut Random, kind: Kind) -> Option<(&Recorded, Control)> {
        let found: Vec<_> = self.controls.iter().filter(|it| it.kind == kind).collect();
        let found = (!found.is_empty()).then(|| random.pick(&found))?;
        Some((found, found.control()?))
    }

    /// The direction of a channel whose frames have this cookie.
    pub(super) fn flow_to(&self, cookie: Cookie) -> Option<Flow> {
        self.flows.get(&cookie.0).copied()
    }

    pub(super) fn flow(&self, random: &mut Random) -> Option<Flow> {
        let index = (!self.flows.is_empty()).then(|| random.below(self.flows.len() as u64))?;
        self.flows.values().nth(index as usize).copied()
    }
}

impl<R: Rules> World<R> {
    /// Records a frame that is sent, as anybody on the segments hears it.
    pub(super) fn overhear(&mut self, from: Port, frame: &[u8], header: Header) {
        let strangers = &self.plan.strangers;
        let segment = self.network.segment(from);
        let forger = strangers.forger.as_ref();
        let hears = forger.is_some_and(|it| it.segment.is_none_or(|it| it == segment));
        // What is forged for hosts and targets with keys would harm those without.
        let station = self.network.place(from).station;
        let is_clear = matches!(station, Station::Stranger | Station::Guest);
        if self.calm || !(hears || strangers.former_lives) || self.plan.requires_keys() && is_clear
        {
            return;
        }
        let others = &mut self.others;
        let recorded =
            || Recorded { at: self.now, segment, kind: header.kind, frame: frame.into() };
        if !header.kind.on_channel() {
            return Recorder::push(&mut others.recorder.controls, recorded());
        }
        let head = frame.first_chunk().expect("a head");
        let (source, destination) = (Mac::source(head), Mac::destination(head));
        if matches!(station, Station::Target | Station::Host(_)) {
            let to_target = station != Station::Target;
            let flow = Flow { segment, to_target, source, destination, header };
            others.recorder.flows.insert(header.cookie.0, flow);
        }
        if matches!(header.kind, Kind::Fence | Kind::Fenced | Kind::Disconnect) {
            Recorder::push(&mut others.recorder.controls, recorded());
        } else if others.random.below(RECORDED_OF) == 0 {
            Recorder::push(&mut others.recorder.frames, recorded());
        }
    }
}
