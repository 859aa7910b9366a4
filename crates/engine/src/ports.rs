//! The ports of a loop.
//!
//! They are independent of the protocol, which gets frames, faults and timers, and is asked for
//! frames.

use std::os::fd::BorrowedFd;

use tyche_time::Instant;

use crate::clock::Clock;
use crate::port::Port;
use crate::protocol::Protocol;

/// The ports of a loop, by index: they receive for a protocol and transmit what it composes. A port
/// that is removed leaves a gap, so that the others keep their indices.
#[derive(Default)]
pub struct Ports {
    ports: Vec<Option<Port>>,
    timed: bool,
    clock: Clock,
}

impl Ports {
    /// No port.
    pub fn new() -> Self {
        Self::default()
    }

    /// No port, and another clock than the system's.
    pub fn with_clock(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
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

    /// Whether frames wait for room in an interface.
    pub fn holds_frames(&self) -> bool {
        self.retry_at().is_some()
    }

    /// The ports with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Port)> {
        self.ports.iter().enumerate().filter_map(|(index, port)| Some((index, port.as_ref()?)))
    }

    /// The ports with their indices, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Port)> {
        numbered(&mut self.ports)
    }

    /// Gives the protocol received frames, faults of ports, and its timer if due. False if no frame
    /// was received.
    pub fn receive(&mut self, now: Instant, protocol: &mut impl Protocol) -> bool {
        self.stamp_arrivals(protocol.is_timed());
        let Self { ports, timed, clock } = self;
        let (timed, mut frames) = (*timed, 0);
        for (index, port) in numbered(ports) {
            if let Some(longest) = port.grow(now) {
                protocol.handle_frame_len_max(index, longest);
            }
            frames += port.receive(now);
            let now = if timed { clock.now() } else { now };
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
        let Self { ports, timed, clock } = self;
        let (timed, mut frames) = (*timed, 0);
        for (index, port) in numbered(ports) {
            let time = || if timed { clock.now() } else { now };
            frames += port.transmit(time, &mut protocol.frames(index));
            if let Some(fault) = port.take_fault() {
                protocol.handle_fault(now, index, fault);
            }
        }
        frames > 0
    }

    /// When to call [`receive`](Self::receive) for interfaces that are down, or
    /// [`transmit`](Self::transmit) for those without room for more frames, to try them again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let retries = self.retry_at().into_iter();
        self.iter().filter_map(|(_, port)| port.poll_timeout()).chain(retries).min()
    }

    /// When the first interface without room for more frames is tried again.
    fn retry_at(&self) -> Option<Instant> {
        self.iter().filter_map(|(_, port)| port.retry_at()).min()
    }

    /// Waits until a frame arrives, one of `others` is readable, or `deadline` has passed.
    pub fn wait<'a>(
        &'a self,
        others: impl IntoIterator<Item = BorrowedFd<'a>>,
        deadline: Option<Instant>,
    ) {
        let deadline = self.due(deadline);
        let sources = self.wait_fds().chain(others);
        tyche_wake::sleep(sources, deadline.map(|deadline| deadline.since(self.clock.now())));
    }

    /// The descriptors that are readable when a frame has arrived.
    pub(crate) fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.iter().filter_map(|(_, port)| port.wait_fd())
    }

    /// When there is something to do at the latest, for a protocol with this timer.
    pub(crate) fn due(&self, timer: Option<Instant>) -> Option<Instant> {
        // The kernel does not report all that happens to an interface.
        let looks = self.iter().map(|(_, port)| port.look_at());
        let due = self.poll_timeout().into_iter().chain(timer).chain(looks).min();
        // A frame that is due can't leave before there is room: no reason to stay awake.
        self.retry_at().or(due)
    }
}

/// The ports with their indices, to be changed.
fn numbered(ports: &mut [Option<Port>]) -> impl Iterator<Item = (usize, &mut Port)> {
    ports.iter_mut().enumerate().filter_map(|(index, port)| Some((index, port.as_mut()?)))
}
