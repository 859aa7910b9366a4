//! What happens besides single frames: crashes, partitions, and the operator's doing.

use std::time::Duration;

use tyche_proto::Rules;
use tyche_wire::{ETHERNET_LEN, Event as ExportEvent};

use super::{Event, World};
use crate::network::TARGET;
use crate::target::Process;
use crate::trace::Happening;

/// What an incident is, or the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incident {
    TargetCrash,
    TargetRestart,
    HostCrash,
    Disconnect,
    Partition,
    Flap,
    MtuDrop,
    /// The link is what it was.
    Repair(usize),
    Resize,
}

impl Incident {
    const RECURRING: [Self; 7] = [
        Self::TargetCrash,
        Self::HostCrash,
        Self::Disconnect,
        Self::Partition,
        Self::Flap,
        Self::MtuDrop,
        Self::Resize,
    ];
}

impl<R: Rules> World<R> {
    pub(super) fn plan_incidents(&mut self) {
        for incident in Incident::RECURRING {
            self.plan_next(incident);
        }
    }

    fn plan_next(&mut self, incident: Incident) {
        let plan = &self.plan.incidents;
        let mean = match incident {
            Incident::TargetCrash => plan.target_crash,
            Incident::HostCrash => plan.host_crash,
            Incident::Disconnect => plan.disconnect,
            Incident::Partition => plan.partition,
            Incident::Flap => plan.flap,
            Incident::MtuDrop => plan.mtu_drop,
            Incident::Resize => plan.resize,
            Incident::TargetRestart | Incident::Repair(_) => None,
        };
        if let Some(mean) = mean {
            let delay = self.random.around(mean);
            self.plan_in(delay, Event::Incident(incident));
        }
    }

    pub(super) fn incident(&mut self, incident: Incident) -> Result<(), String> {
        match incident {
            Incident::TargetRestart => return self.restart_target(),
            Incident::Repair(link) => {
                self.repair(link);
                return Ok(());
            }
            _ if self.calm => return Ok(()),
            _ => {}
        }
        let link = self.random.below(self.network.links() as u64) as usize;
        match incident {
            Incident::TargetCrash => {
                let lossy = self.random.chance(0.5);
                self.crash_target(lossy);
                let pause = Duration::from_millis(self.random.pick(&[0, 1, 50, 400, 1500]));
                self.plan_in(pause, Event::Incident(Incident::TargetRestart));
            }
            Incident::HostCrash => {
                let host = self.random.below(self.hosts.len() as u64) as usize;
                self.crash_host(host);
                let pause = Duration::from_millis(self.random.pick(&[0, 5, 100, 1000]));
                self.plan_in(pause, Event::Start(host));
            }
            Incident::Disconnect => {
                let host = self.random.below(self.hosts.len() as u64) as usize;
                self.disconnect_host(host)?;
            }
            Incident::Partition => {
                let ports = self.hosts.len() as u64;
                let port = self.random.between(u64::from(TARGET), ports) as u8;
                self.note(Happening::Incident(format!("link {link}: port {port} is mute")));
                self.network.set_mute(link, Some(port));
                self.plan_repair(link);
            }
            Incident::Flap => {
                self.note(Happening::Incident(format!("link {link} is down")));
                self.network.set_down(link, true);
                self.plan_repair(link);
            }
            Incident::MtuDrop => {
                self.note(Happening::Incident(format!("link {link} drops long frames")));
                self.network.set_frame_len_passed(link, Some(ETHERNET_LEN + 1500));
                self.plan_repair(link);
            }
            Incident::Resize => self.resize_randomly()?,
            Incident::TargetRestart | Incident::Repair(_) => {}
        }
        self.plan_next(incident);
        Ok(())
    }

    fn plan_repair(&mut self, link: usize) {
        let pause = Duration::from_millis(self.random.pick(&[1, 20, 200, 1500]));
        self.plan_in(pause, Event::Incident(Incident::Repair(link)));
    }

    fn repair(&mut self, link: usize) {
        self.note(Happening::Incident(format!("link {link} is repaired")));
        self.network.set_down(link, false);
        self.network.set_mute(link, None);
        self.network.set_frame_len_passed(link, None);
    }

    /// The target's process dies. What its disk was doing is done in part, and over before
    /// another process may open the disk; a cache is lost if the machine goes down with it.
    pub(super) fn crash_target(&mut self, lossy: bool) {
        let Some(process) = self.process.take() else { return };
        let Process { listeners, registry, mut memory, jobs } = process;
        self.exported.last_writer = registry.last_writer(0);
        for mut job in jobs.into_values() {
            if let Some(memory) = memory.get_mut(&(job.link, job.channel)) {
                let data = memory.data(job.command.tag.slot);
                self.disk.advance(&job.command, &mut job.progress, data);
            }
        }
        for listener in &listeners {
            self.past_stats += listener.stats();
        }
        let lossy = lossy && self.exported.write_cache;
        if lossy {
            self.disk.lose_cache();
            self.history.lose_cache();
            self.exported.boot += 1;
            self.report.caches_lost += 1;
        }
        self.target_alarm = None;
        self.network.run += 1;
        self.report.target_crashes += 1;
        let loss = if lossy { ", and its disk's cache is lost" } else { "" };
        self.note(Happening::Incident(format!("the target dies{loss}")));
    }

    pub(super) fn restart_target(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        self.note(Happening::Incident("the target is back".into()));
        self.exported.size = self.disk.size();
        let Self { plan, exported, random, .. } = self;
        self.process = Some(Process::new(&plan.target, &plan.links, *exported, random));
        self.drive_target(&[])
    }

    fn resize_randomly(&mut self) -> Result<(), String> {
        let full = self.plan.disk.size;
        let size = self.random.pick(&[full / 2, full / 4 * 3, full]);
        self.resize_disk(size)
    }

    pub(super) fn resize_disk(&mut self, size: u64) -> Result<(), String> {
        self.note(Happening::Incident(format!("the disk has {size} bytes now")));
        self.disk.resize(size);
        let Some(process) = &mut self.process else { return Ok(()) };
        process.registry.resize(0, size);
        for listener in &mut process.listeners {
            listener.notify(0, ExportEvent::Resized(size));
        }
        self.drive_target(&[])
    }
}
