//! The ports of a loop, and the protocol whose frames they carry.
//!
//! Nothing here knows a protocol: it is told of frames, faults and timers, and asked for frames.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use tyche_link::{HEAD, Mac};
use tyche_proto::Instant;

use crate::clock;
use crate::port::{Fault, Port};

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The first bytes, from the destination address on.
    pub head: &'a [u8; HEAD],
    /// The rest.
    pub payload: &'a [u8],
    /// How long it waited in the kernel; zero if unknown.
    pub waited: Duration,
}

/// A state machine that receives and sends frames, without a clock or a system call.
///
/// All of `now` are times of the machine's monotonic clock. A *port* is an index of [`Ports`].
pub trait Protocol {
    /// A frame has come by a port.
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &Received<'_>);

    /// A port does not work as before.
    fn handle_fault(&mut self, now: Instant, port: usize, fault: Fault) {
        let _ = (now, port, fault);
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    fn handle_timeout(&mut self, now: Instant);

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The frames that are to go out by a port now.
    fn frames(&mut self, port: usize) -> impl Frames<'_>;

    /// Whether it measures times: then each frame is handled and composed at its own time, instead
    /// of that of the round, and the links say how long frames have [waited](Received::waited).
    fn is_timed(&self) -> bool {
        false
    }
}

/// Frames to be sent, one after the other. Their data stay where they are, for `'d`.
pub trait Frames<'d> {
    /// Composes the next frame; `None` if there is none to send now.
    fn compose(&mut self, now: Instant) -> Option<Composed>;

    /// Writes the composed frame: gives `push` its front, the pieces of its data, and what follows
    /// them. `source` is the address of the interface.
    fn write(&mut self, source: Mac, push: impl FnOnce(&[u8], &[&'d [u8]], &[u8]));
}

/// How a composed frame is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Composed {
    /// It asks whether its length gets through: it is sent in a system call of its own, if the
    /// interface takes frames of that length at all.
    pub probes: bool,
    /// From now on only received frames with these bytes at that offset matter:
    /// [`Link::narrow`](tyche_link::Link::narrow).
    pub narrows: Option<(usize, [u8; 4])>,
}

/// See the module. A port that is removed leaves a gap, so that the others keep their indices.
#[derive(Default)]
pub struct Ports {
    ports: Vec<Option<Port>>,
    timed: bool,
}

impl Ports {
    /// No port.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a port with an index that is free.
    pub fn insert(&mut self, index: usize, mut port: Port) {
        if self.timed {
            port.stamp_arrivals(true);
        }
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        assert!(self.ports[index].is_none(), "two ports {index}");
        self.ports[index] = Some(port);
    }

    /// Removes a port.
    pub fn remove(&mut self, index: usize) {
        self.ports[index] = None;
    }

    /// The ports with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Port)> {
        self.ports.iter().enumerate().filter_map(|(index, port)| Some((index, port.as_ref()?)))
    }

    /// The ports with their indices, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Port)> {
        self.ports.iter_mut().enumerate().filter_map(|(index, port)| Some((index, port.as_mut()?)))
    }

    /// Gives the protocol the frames that have come, the faults of ports, and the timer that is
    /// due. False if no frame has come.
    pub fn receive(&mut self, now: Instant, protocol: &mut impl Protocol) -> bool {
        self.stamp_arrivals(protocol.is_timed());
        let (timed, mut frames) = (self.timed, 0);
        for (index, port) in self.iter_mut() {
            frames += port.receive(now);
            let now = if timed { clock::now() } else { now };
            port.hand_over(timed, |frame| protocol.handle_frame(now, index, &frame));
            if let Some(fault) = port.take_fault() {
                protocol.handle_fault(now, index, fault);
            }
        }
        if protocol.poll_timeout().is_some_and(|at| at <= now) {
            protocol.handle_timeout(now);
        }
        frames > 0
    }

    fn stamp_arrivals(&mut self, on: bool) {
        if on != self.timed {
            self.timed = on;
            self.iter_mut().for_each(|(_, port)| port.stamp_arrivals(on));
        }
    }

    /// Sends the protocol's frames by all ports; false if there were none.
    pub fn transmit(&mut self, now: Instant, protocol: &mut impl Protocol) -> bool {
        let (timed, mut frames) = (self.timed, 0);
        for (index, port) in self.iter_mut() {
            let time = || if timed { clock::now() } else { now };
            frames += port.transmit(time, &mut protocol.frames(index));
            if let Some(fault) = port.take_fault() {
                protocol.handle_fault(now, index, fault);
            }
        }
        frames > 0
    }

    /// Waits until a frame has come, one of `others` is readable, or `deadline` has come.
    pub fn wait<'a>(
        &'a self,
        others: impl IntoIterator<Item = BorrowedFd<'a>>,
        deadline: Option<Instant>,
    ) {
        let retries = self.iter().filter_map(|(_, port)| port.poll_timeout());
        let deadline = retries.chain(deadline).min();
        let sources = self.iter().filter_map(|(_, port)| port.wait_fd()).chain(others);
        tyche_wake::sleep(sources, deadline.map(|deadline| deadline.since(clock::now())));
    }
}
