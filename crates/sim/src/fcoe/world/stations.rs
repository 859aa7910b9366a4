//! Stations of all kinds: they have timers, take frames, and send some.

use tyche_proto::Instant;

use super::World;

/// A station, by its index among those of its kind.
#[derive(Clone, Copy)]
pub(super) enum StationRef {
    Target(usize),
    Initiator(usize),
    Forwarder,
}

impl World {
    /// The kind of a station, and its index.
    pub(super) fn place(&self, station: usize) -> StationRef {
        match station.checked_sub(self.targets.len()) {
            None => StationRef::Target(station),
            Some(index) if index < self.initiators.len() => StationRef::Initiator(index),
            Some(_) => StationRef::Forwarder,
        }
    }

    pub(super) fn timer(&self, station: usize) -> Option<Instant> {
        match self.place(station) {
            StationRef::Target(index) => {
                self.targets[index].running.as_ref()?.threads.poll_timeout()
            }
            StationRef::Initiator(index) => self.initiators[index].poll_timeout(),
            StationRef::Forwarder => self.forwarder.as_ref()?.poll_timeout(),
        }
    }

    /// Gives a frame to a station, if it takes it.
    pub(super) fn arrive(&mut self, to: usize, port: usize, frame: &[u8]) -> bool {
        match self.place(to) {
            StationRef::Forwarder => {
                let forwarder = self.forwarder.as_mut();
                forwarder.is_some_and(|it| it.arrive(self.now, frame))
            }
            StationRef::Target(index) => {
                let running = self.targets[index].running.as_mut();
                running.map(|running| running.threads.arrive(self.now, port, frame)).is_some()
            }
            StationRef::Initiator(index) => self.initiators[index].arrive(self.now, port, frame),
        }
    }

    pub(super) fn takes(&self, station: usize, port: usize, to: [u8; 6]) -> bool {
        match self.place(station) {
            StationRef::Target(index) => {
                self.targets[index].running.as_ref().is_some_and(|it| it.threads.takes(port, to))
            }
            StationRef::Initiator(index) => self.initiators[index].takes(port, to),
            StationRef::Forwarder => self.forwarder.as_ref().is_some_and(|it| it.takes(to)),
        }
    }

    /// Has a station do what there is to do.
    pub(super) fn settle(&mut self, station: usize) -> Result<(), String> {
        let frames = match self.place(station) {
            StationRef::Target(index) if self.twin_of(self.first_of(index)).is_some() => {
                return self.settle_twins(self.first_of(index));
            }
            StationRef::Target(index) => self.settle_target(index)?,
            StationRef::Initiator(index) => self.settle_initiator(index)?,
            StationRef::Forwarder => {
                self.forwarder.as_mut().map(|it| it.settle(self.now)).unwrap_or_default()
            }
        };
        for (port, frame) in frames {
            self.send(station, port, &frame)?;
        }
        Ok(())
    }
}
