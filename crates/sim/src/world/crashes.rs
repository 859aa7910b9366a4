//! Deaths of the target and of hosts, and their return.

use std::time::Duration;

use tyche_proto::{Loss, Rules};

use super::exports::Volume;
use super::incidents::Incident;
use super::{Event, World, begin};
use crate::content::Content;
use crate::host::{Left, Running};
use crate::target::{Job, data};
use crate::trace::Happening;

impl<R: Rules> World<R> {
    /// Kills a host, and with it the content of its memory.
    pub(super) fn crash_host(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let (running, left) = (host.running.take(), host.left.take());
        if running.is_none() && left.is_none() {
            return;
        }
        self.note(Happening::Incident(format!("host {index} dies")));
        self.report.host_crashes += 1;
        if let Some(running) = running {
            self.end_session(index, &running);
        }
        if let Some(left) = left {
            let export = self.hosts[index].plan.export;
            let vanished = self.volumes[export].history.vanish(left.session);
            self.report.vanished += vanished as u64;
        }
    }

    /// Kills the program that serves a host's device; the device, and the requests submitted to it,
    /// are left to another. If there was no device yet, nothing is left.
    pub(super) fn kill_daemon(&mut self, index: usize) {
        let (now, host) = (self.now, &mut self.hosts[index]);
        let served = |running: &mut Running<R>| running.connected && !running.closing;
        let Some(running) = host.running.take_if(served) else { return };
        let former = host.find_kept(now).expect("what has to be kept comes before connected");
        let pending = running.pending.into_iter().collect();
        host.left = Some(Left { session: running.number, former, pending });
        self.others.witness.end(self.now, running.number);
        self.past_stats += running.session.stats();
        self.report.daemon_deaths += 1;
        self.note(Happening::Incident(format!("the program of host {index} dies")));
    }

    /// Gives a host's new session all operations that its predecessor has not answered, in any
    /// order.
    pub(super) fn reissue(&mut self, index: usize, left: Left) -> Result<(), String> {
        let Left { session, mut pending, .. } = left;
        let (now, host) = (self.now, &mut self.hosts[index]);
        let running = host.running.as_mut().ok_or("nobody is there to issue anything again")?;
        let history = &mut self.volumes[host.plan.export].history;
        history.succeed(session, running.number);
        while !pending.is_empty() {
            let next = host.random.below(pending.len() as u64) as usize;
            let (former, pending) = pending.swap_remove(next);
            let op = running.session.submit(now, pending.operation, pending.stamp);
            history.reissue((session, former), (running.number, op))?;
            running.pending.insert(op, pending);
            self.report.reissued += 1;
        }
        Ok(())
    }

    /// Ends the session of a host.
    pub(super) fn disconnect_host(&mut self, index: usize) -> Result<(), String> {
        let now = self.now;
        let Some(running) = &mut self.hosts[index].running else { return Ok(()) };
        running.closing = true;
        running.session.disconnect(now);
        self.note(Happening::Incident(format!("host {index} disconnects")));
        self.drive_host(index)
    }

    /// Kills the target's process. Requests at its disk are executed in part, and are over before
    /// another process may open the disk; a cache is lost if the machine goes down with it.
    pub(super) fn crash_target(&mut self, lossy: bool) {
        let Some(process) = self.process.take() else { return };
        self.past_stats += process.stats();
        self.others.witness.lose_target();
        self.removals.forget();
        self.unlinks.forget();
        let mut torn = Vec::new();
        for Job { export, operation, mut buffer, mut progress, .. } in process.jobs.into_values() {
            let disk = &mut self.volumes[export].disk;
            disk.advance(&operation, &mut progress, data(&mut buffer, &operation));
            let left = progress.left().filter(|_| lossy && disk.tears());
            torn.extend(left.map(|(sector, content)| (export, sector, content)));
        }
        let mut is_lost = false;
        for (export, volume) in self.volumes.iter_mut().enumerate() {
            let lossy = lossy && volume.disk.plan().write_cache;
            volume.history.lose_target(lossy);
            if lossy {
                let sectors = volume.disk.lose_cache().into_iter();
                torn.extend(sectors.map(|sector| (export, sector, volume.disk.seen(sector))));
                volume.exported.renew(Loss::Cache);
            }
            is_lost |= lossy;
        }
        self.report.caches_lost += u64::from(is_lost);
        self.tear(torn);
        self.target_alarm = None;
        self.dies_unanswered = false;
        self.report.target_crashes += 1;
        let loss = if is_lost { ", and its disk's cache is lost" } else { "" };
        self.note(Happening::Incident(format!("the target dies{loss}")));
    }

    /// Tears sectors that were being written when the machine went down: they hold neither the new
    /// data nor the old.
    fn tear(&mut self, torn: Vec<(usize, u64, Content)>) {
        for (export, sector, content) in torn {
            let Volume { history, disk, .. } = &mut self.volumes[export];
            let Some(stamp) = history.tear(sector, content) else { continue };
            disk.spoil(sector, stamp);
            self.report.torn += 1;
            self.note(Happening::Incident(format!("sector {sector} is torn, to stamp {stamp}")));
        }
    }

    pub(super) fn restart_target(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        self.note(Happening::Incident("the target is back".into()));
        self.begin_anew();
        let Self { now, plan, volumes, network, random, rotation, .. } = self;
        let mut process = begin(*now, (plan, *rotation), volumes, network, random);
        process.set_state_full(self.state_full);
        self.process = Some(process);
        self.deny_all_evicted();
        self.drive_target()
    }

    /// Kills the target with a request that the disk has executed and that is not answered.
    pub(super) fn die_unanswered(&mut self, job: u64) -> Result<(), String> {
        if let Some(process) = &mut self.process {
            process.jobs.remove(&job);
        }
        let lossy = self.random.chance(0.3);
        self.crash_target(lossy);
        self.plan_restart();
        Ok(())
    }

    pub(super) fn plan_restart(&mut self) {
        let pause = Duration::from_millis(self.random.pick(&[0, 1, 50, 400, 1500]));
        self.plan_in(pause, Event::Incident(Incident::TargetRestart));
    }

    /// Starts the target by itself; it may have moved meanwhile.
    pub(super) fn move_target_perhaps(&mut self) {
        if self.process.is_none() && self.random.chance(self.plan.incidents.moves) {
            let elsewhere = self.random.chance(0.5);
            self.move_target_away(elsewhere);
        }
    }

    /// Gives the target's links other addresses, and if `elsewhere` other places.
    pub(super) fn move_target_away(&mut self, elsewhere: bool) {
        self.network.move_target(elsewhere);
        self.report.moves += 1;
        let place = if elsewhere { ", and is plugged in elsewhere" } else { "" };
        self.note(Happening::Incident(format!("the target gets other addresses{place}")));
    }
}
