//! Incidents: partitions, interfaces that go down, deaths and returns, disks that grow.

use std::time::Duration;

use tyche_fcoe::fc::port;
use tyche_proto::Instant;

use super::stations::StationRef;
use super::{Event, World};
use crate::fcoe::air::Cut;
use crate::fcoe::plan::{MTUS, SIZE_MAX, Segments};

impl World {
    /// Puts the targets on segments of their own, if the plan says so.
    pub(super) fn split(&mut self) {
        let Some(Segments { moved, joined }) = self.plan.segments else { return };
        self.cut(&[(0, 1), (1, 0)], joined, false);
        let (moved, joined) = (self.now + moved, self.now + joined);
        self.part_initiators(1, moved);
        self.schedule.plan(moved, Event::Move { joined });
    }

    /// Has the initiators on another segment than a target, until then.
    pub(super) fn part_initiators(&mut self, target: usize, until: Instant) {
        let initiators = self.targets.len()..self.epochs.len();
        let pairs: Vec<_> = initiators.flat_map(|it| [(target, it), (it, target)]).collect();
        self.cut(&pairs, until.since(self.now), false);
    }

    /// Plans the next incident.
    pub(super) fn plan_incident(&mut self) {
        let mean = self.plan.incidents;
        if !mean.is_zero() {
            let at = self.now + self.random.around(mean);
            self.schedule.plan(at, Event::Incident);
        }
    }

    /// Often has the first unit attention of a login lost.
    pub(super) fn be_unlucky(&mut self, target: usize, event: &port::Event) {
        let port::Event::LoggedIn(login) = event else { return };
        let initiator = self.initiators.iter().position(|it| it.config.wwpn == login.wwpn);
        let has_incidents = !self.plan.incidents.is_zero() && !self.is_calm;
        if let Some(initiator) = initiator.filter(|_| has_incidents)
            && self.random.chance(0.3)
        {
            self.air.unlucky.insert((target, self.targets.len() + initiator));
        }
    }

    /// The interface of a station goes down for a moment, and often again.
    pub(super) fn flap(&mut self, station: usize, left: u32) -> Result<(), String> {
        match self.place(station) {
            StationRef::Target(index) => {
                let Some(running) = &self.targets[index].running else { return Ok(()) };
                running.threads.lose_carrier();
            }
            StationRef::Initiator(index) if self.initiators[index].station.is_none() => {
                return Ok(());
            }
            StationRef::Initiator(index) => self.initiators[index].lose_carrier(),
            StationRef::Forwarder => {}
        }
        if left > 0 && !self.is_calm {
            let at = self.now + Duration::from_millis(150);
            self.schedule.plan(at, Event::Flap { station, left: left - 1 });
        }
        self.settle(station)
    }

    /// Lets something happen.
    pub(super) fn incident(&mut self) -> Result<(), String> {
        let station = self.random.below(self.epochs.len() as u64) as usize;
        let other = self.random.below(self.epochs.len() as u64) as usize;
        let long = self.random.pick(&[50, 500, 3000, 25_000]);
        let time = Duration::from_millis(self.random.between(long / 2, long));
        if self.forwarder.is_some() && self.random.chance(0.3) {
            return self.disturb_fabric(time);
        }
        // On segments of their own, it is the meeting of targets that is looked for.
        let kinds = if self.plan.segments.is_some() { 7 } else { 8 };
        match self.random.below(kinds) {
            0 => self.cut(&[(station, other), (other, station)], time, false),
            1 => self.cut(&[(station, other)], time, false),
            2 => self.cut(&[(station, other)], Duration::from_secs(25), true),
            3 => {
                self.trace(format!("station {station} flaps"));
                let left = self.random.below(4) as u32;
                return self.flap(station, left);
            }
            4 => self.kill_target(time),
            5 => self.kill_initiator(time),
            6 => self.resize(),
            _ => self.set_mtu(station),
        }
        Ok(())
    }

    /// The forwarder dies, or ends all logins.
    fn disturb_fabric(&mut self, time: Duration) -> Result<(), String> {
        let station = self.epochs.len() - 1;
        let Some(forwarder) = &mut self.forwarder else { return Ok(()) };
        if self.random.chance(0.5) {
            forwarder.clear();
            self.report.links_cleared += 1;
            self.trace("the forwarder clears all links".into());
        } else if forwarder.die() {
            self.report.forwarder_crashes += 1;
            self.trace(format!("the forwarder dies for {time:?}"));
            self.schedule.plan(self.now + time, Event::Start { station });
        }
        self.settle(station)
    }

    fn cut(&mut self, pairs: &[(usize, usize)], time: Duration, fip_only: bool) {
        self.report.cuts += 1;
        self.trace(format!("{pairs:?} are cut for {time:?}"));
        let now = self.now;
        self.air.cuts.retain(|cut| cut.until > now);
        let until = now + time;
        let cuts = pairs.iter().map(|&(from, to)| Cut { from, to, until, fip_only });
        self.air.cuts.extend(cuts);
    }

    fn kill_target(&mut self, time: Duration) {
        let index = self.random.below(self.targets.len() as u64) as usize;
        let index = self.first_of(index);
        if self.targets[index].running.is_none() {
            return;
        }
        let twin = self.twin_of(index);
        for station in twin.into_iter().chain([index]) {
            self.resets.retain(|it| !it.is_at(station));
            self.epochs[station] += 1;
        }
        if let Some(twin) = twin {
            self.targets[twin].die(&mut self.units);
        }
        let with_cache = self.random.chance(0.6);
        self.trace(format!("target {index} dies for {time:?}, cache lost: {with_cache}"));
        self.report.target_crashes += 1;
        self.report.caches_lost += u64::from(with_cache);
        self.targets[index].die(&mut self.units);
        self.forget_removals(&self.targets[index].units.clone());
        for unit in &mut self.units[self.targets[index].units.clone()] {
            unit.forget_writer();
            if with_cache {
                unit.lose_cache();
            }
            unit.history.lose_target(with_cache);
        }
        self.schedule.plan(self.now + time, Event::Start { station: index });
    }

    fn kill_initiator(&mut self, time: Duration) {
        let index = self.random.below(self.initiators.len() as u64) as usize;
        if self.stop_initiator(index) {
            self.trace(format!("initiator {index} dies for {time:?}"));
            let station = self.targets.len() + index;
            self.schedule.plan(self.now + time, Event::Start { station });
        }
    }

    /// The MTU of an interface is changed under its sessions.
    fn set_mtu(&mut self, station: usize) {
        let mtu = self.random.pick(&MTUS);
        self.report.narrowed += 1;
        self.trace(format!("station {station} has an MTU of {mtu} now"));
        match self.place(station) {
            StationRef::Target(index) => self.targets[index].set_mtu(mtu),
            StationRef::Initiator(index) => self.initiators[index].set_mtu(mtu),
            StationRef::Forwarder => {}
        }
    }

    fn resize(&mut self) {
        let index = self.random.below(self.units.len() as u64) as usize;
        let size = (self.units[index].disk.size() * 2).min(SIZE_MAX);
        self.units[index].disk.resize(size);
        self.trace(format!("disk {index} has {size} bytes now"));
        for target in self.targets.iter_mut().filter(|it| it.units.contains(&index)) {
            target.resized(index, size);
        }
    }
}
