//! Incidents besides faults of single frames: the draw of an incident, and of the time of the next
//! one of its kind.

use std::time::Duration;

use tyche_engine::RateLimit;
use tyche_proto::Rules;
use tyche_wire::SECTOR_LEN;

use super::exports::Volume;
use super::freezer::Part;
use super::{Event, World};
use crate::network::Station;
use crate::plan::draw_limit;
use crate::trace::Happening;

/// An incident, or a consequence of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incident {
    TargetCrash,
    Unanswered,
    TargetRestart,
    TargetFreeze,
    HostFreeze,
    DiskStall,
    Rot,
    Snapshot,
    /// The target's machine is restored from the snapshot.
    Restore,
    StateFull,
    StateFree,
    HostCrash,
    DaemonDeath,
    Disconnect,
    OneWay,
    Flap,
    /// The segment is cut again, that many times from now on.
    Again(usize, u32),
    Blackout,
    MtuDrop,
    Rebind,
    /// The segment is repaired.
    Repair(usize),
    Relink,
    /// A link of a host is put back.
    Plug(usize, usize),
    Resize,
    Evict,
    /// An evicted host is let in again.
    LetIn(usize),
    Remove,
    /// A removed export is added again.
    AddAgain(usize),
    Unlink,
    /// A removed link of the target is added again.
    LinkBack(usize),
    Rotate,
    Relimit,
}

impl Incident {
    const RECURRING: [Self; 23] = [
        Self::TargetCrash,
        Self::Unanswered,
        Self::TargetFreeze,
        Self::HostFreeze,
        Self::DiskStall,
        Self::Rot,
        Self::Snapshot,
        Self::StateFull,
        Self::HostCrash,
        Self::DaemonDeath,
        Self::Disconnect,
        Self::OneWay,
        Self::Flap,
        Self::Blackout,
        Self::MtuDrop,
        Self::Relink,
        Self::Resize,
        Self::Rebind,
        Self::Evict,
        Self::Remove,
        Self::Unlink,
        Self::Rotate,
        Self::Relimit,
    ];
}

impl<R: Rules> World<R> {
    pub(super) fn plan_incidents(&mut self) {
        for incident in Incident::RECURRING {
            self.plan_next(incident);
        }
    }

    fn plan_next(&mut self, incident: Incident) {
        let (plan, promises) = (&self.plan.incidents, self.plan.promises);
        let mean = match incident {
            Incident::TargetCrash => plan.target_crash,
            Incident::Unanswered => plan.unanswered,
            Incident::TargetFreeze => plan.target_freeze,
            Incident::HostFreeze => plan.host_freeze,
            Incident::DiskStall => plan.disk_stall,
            Incident::Rot => plan.rot,
            Incident::Snapshot => plan.restore.filter(|_| promises.generations),
            Incident::StateFull => plan.state_full.filter(|_| promises.writers),
            Incident::HostCrash => plan.host_crash,
            Incident::DaemonDeath => plan.daemon_death,
            Incident::Disconnect => plan.disconnect,
            Incident::OneWay => plan.one_way,
            Incident::Flap => plan.flap,
            Incident::Blackout => plan.blackout,
            Incident::MtuDrop => plan.mtu_drop,
            Incident::Relink => plan.relink,
            Incident::Resize => plan.resize,
            Incident::Rebind => plan.rebind,
            Incident::Evict => plan.evict,
            Incident::Remove => plan.remove,
            Incident::Unlink => plan.unlink,
            Incident::Rotate => plan.rotate,
            Incident::Relimit => plan.relimit,
            Incident::TargetRestart
            | Incident::Restore
            | Incident::StateFree
            | Incident::Again(..)
            | Incident::Repair(_)
            | Incident::LetIn(_)
            | Incident::AddAgain(_)
            | Incident::LinkBack(_)
            | Incident::Plug(..) => None,
        };
        if let Some(mean) = mean {
            let delay = self.random.around(mean);
            self.plan_in(delay, Event::Incident(incident));
        }
    }

    pub(super) fn incident(&mut self, incident: Incident) -> Result<(), String> {
        match incident {
            Incident::TargetRestart => {
                self.move_target_perhaps();
                return self.restart_target();
            }
            Incident::StateFree => self.set_state_full(false),
            Incident::Repair(segment) => self.repair(segment),
            Incident::Plug(host, link) => self.add_link_to(host, link)?,
            Incident::AddAgain(export) => self.add_export_again(export)?,
            Incident::LinkBack(link) => self.link_back(link)?,
            _ if self.calm => {}
            Incident::Again(segment, times) => self.flap(segment, times)?,
            Incident::TargetCrash => {
                let lossy = self.random.chance(0.5);
                self.crash_target(lossy);
                self.plan_restart();
            }
            Incident::Unanswered => self.dies_unanswered = true,
            Incident::TargetFreeze => self.freeze(Part::Station(Station::Target)),
            Incident::HostFreeze => {
                let host = self.draw_host();
                self.freeze(Part::Station(Station::Host(host)));
            }
            Incident::DiskStall => self.freeze(Part::Disk),
            Incident::Rot => self.rot(),
            Incident::Snapshot => {
                self.take_snapshot();
                let pause = Duration::from_millis(self.random.pick(&[20, 300, 2000]));
                self.plan_in(pause, Event::Incident(Incident::Restore));
            }
            Incident::Restore => self.restore_target(),
            Incident::StateFull => {
                self.set_state_full(true);
                let pause = Duration::from_millis(self.random.pick(&[50, 1000]));
                self.plan_in(pause, Event::Incident(Incident::StateFree));
            }
            Incident::HostCrash => {
                let host = self.draw_host();
                self.crash_host(host);
                let pause = Duration::from_millis(self.random.pick(&[0, 5, 100, 1000]));
                self.plan_in(pause, Event::Start(host));
            }
            Incident::DaemonDeath => {
                let host = self.draw_host();
                self.kill_daemon(host);
                let pause = Duration::from_millis(self.random.pick(&[0, 5, 100, 1000]));
                self.plan_in(pause, Event::Start(host));
            }
            Incident::Disconnect => {
                let host = self.draw_host();
                self.disconnect_host(host)?;
            }
            Incident::OneWay | Incident::Flap | Incident::Blackout | Incident::MtuDrop => {
                self.outage(incident)?;
            }
            Incident::Relink => self.relink()?,
            Incident::Rebind => self.rebind(),
            Incident::Resize => self.resize_randomly()?,
            Incident::Evict => {
                let host = self.draw_host();
                self.evict(host)?;
            }
            Incident::LetIn(host) => self.let_in(host),
            Incident::Remove => self.remove_randomly()?,
            Incident::Unlink => self.unlink_randomly()?,
            Incident::Rotate => self.rotate()?,
            Incident::Relimit => self.relimit()?,
        }
        self.plan_next(incident);
        Ok(())
    }

    fn draw_host(&mut self) -> usize {
        self.random.below(self.hosts.len() as u64) as usize
    }

    fn freeze(&mut self, part: Part) {
        let time = Duration::from_millis(self.random.pick(&[20, 200, 700, 2500]));
        self.freeze_part(part, time);
    }

    /// Changes a sector. Neither side can notice: it is not data that the network has damaged,
    /// which must not be read. To the checker it is a write without a writer.
    fn rot(&mut self) {
        let sector = self.random.below(self.plan.disk.size / SECTOR_LEN);
        let Volume { history, disk, .. } = &mut self.volumes[0];
        let stamp = history.rot(sector);
        disk.spoil(sector, stamp);
        self.report.rotten += 1;
        self.note(Happening::Incident(format!("sector {sector} rots, to stamp {stamp}")));
    }

    /// Changes the limits of the exports, or lifts them.
    fn relimit(&mut self) -> Result<(), String> {
        let is_lifted = self.random.chance(0.3);
        let limit = draw_limit(&mut self.random);
        let limit = if is_lifted { RateLimit::default() } else { limit };
        let Some(process) = &mut self.process else { return Ok(()) };
        process.set_limit(limit);
        self.report.limit_changes += 1;
        self.note(Happening::Incident(format!("exports have other limits: {limit:?}")));
        self.drive_target()
    }

    fn resize_randomly(&mut self) -> Result<(), String> {
        let full = self.plan.disk.size;
        let size = self.random.pick(&[full / 2, full / 4 * 3, full]);
        self.resize_disk(size)
    }

    pub(super) fn resize_disk(&mut self, size: u64) -> Result<(), String> {
        self.note(Happening::Incident(format!("the disk has {size} bytes now")));
        self.volumes[0].disk.resize(size);
        let Some(process) = &mut self.process else { return Ok(()) };
        process.resize(0, size);
        self.drive_target()
    }
}
