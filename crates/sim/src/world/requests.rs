//! Drives the target: frames and time into the listeners, and out of them frames and requests,
//! which the disk executes.

use std::time::Duration;

use tyche_proto::{Action, ListenerEvent, Rules};
use tyche_wire::{ChannelId, Command, CommandFlags, Opcode, PAGE_LEN, SECTOR_LEN, Status, Times};

use super::{Event, World};
use crate::content::{Content, SECTOR, examine};
use crate::network::{Delivery, Station};
use crate::target::{CHANNELS_MAX, Job, Memory, Process};
use crate::trace::Happening;

/// Delay of a listener's alarm whose deadline has passed already.
const ALARM_DELAY: Duration = Duration::from_micros(1);

/// Mean time of a slow request, in ms: a drive that tries a bad sector again and again, for longer
/// than a channel may be silent.
const HICCUPS_MS: [u64; 4] = [20, 100, 500, 2000];

/// Mean time of a request that hangs: a drive, or a path to it, that is reset.
const HANG: Duration = Duration::from_secs(30);

impl<R: Rules> World<R> {
    pub(super) fn target_frame(&mut self, link: usize, frame: &Delivery) -> Result<(), String> {
        let now = self.now;
        let Some(process) = &mut self.process else { return Ok(()) };
        self.handled = Some(frame.cookie());
        let dropped = process.listeners[link].rejects().total();
        process.listeners[link].handle_frame(now, frame.head(), frame.payload());
        if process.listeners[link].rejects().total() == dropped {
            self.witness_frame(link, frame);
        }
        self.drive_target(frame.payload())
    }

    pub(super) fn target_alarm(&mut self) -> Result<(), String> {
        let now = self.now;
        if self.target_alarm.is_none_or(|alarm| alarm > now) {
            return Ok(());
        }
        self.target_alarm = None;
        for listener in self.process.iter_mut().flat_map(|process| &mut process.listeners) {
            listener.handle_timeout(now);
        }
        self.witness_silence();
        self.drive_target(&[])
    }

    /// Drains the listeners after an input. `payload`: of the frame, if the input was one.
    pub(super) fn drive_target(&mut self, payload: &[u8]) -> Result<(), String> {
        while self.drain_listeners(payload)? || self.transmit_target()? {}
        let Some(process) = &self.process else { return Ok(()) };
        let Some(deadline) = process.poll_timeout() else { return Ok(()) };
        let at = deadline.max(self.now + ALARM_DELAY);
        if self.target_alarm.is_none_or(|alarm| alarm > at) {
            self.target_alarm = Some(at);
            self.schedule.plan(at, Event::TargetAlarm);
        }
        Ok(())
    }

    /// Serves the events of the listeners; returns whether there were any.
    fn drain_listeners(&mut self, payload: &[u8]) -> Result<bool, String> {
        let mut asked = false;
        for link in 0..self.plan.target.links.len() {
            while let Some(event) =
                self.process.as_mut().and_then(|process| process.listeners[link].poll_event())
            {
                asked = true;
                self.target_event(link, event, payload)?;
            }
        }
        let Some(Process { listeners, registry, .. }) = &mut self.process else {
            return Ok(false);
        };
        for (link, listener) in listeners.iter_mut().enumerate() {
            if listener.has_requests() || registry.called_links().any(|called| called == link) {
                asked = true;
                listener.serve_requests(self.now, registry);
            }
        }
        while let Some((export, writer)) = registry.unkept() {
            let result = if self.state_full { Err("no space is left") } else { Ok(()) };
            registry.kept(export, writer, result);
            if result.is_ok() {
                let exported = &mut self.volumes[export].exported;
                let last = exported.last_writer.replace(writer);
                if !exported.wild {
                    self.others.witness.let_in(self.now, export, (writer, last))?;
                }
            }
        }
        Ok(asked)
    }

    fn target_event(
        &mut self,
        link: usize,
        event: ListenerEvent,
        payload: &[u8],
    ) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        match event {
            ListenerEvent::Opened { channel, export, boot, damq_pages, queue_size, .. } => {
                let most = &self.plan.target;
                if damq_pages > most.damq_pages_max || queue_size > most.queue_size_max {
                    return Err(format!("a channel has {queue_size} slots, {damq_pages} pages"));
                }
                let len = self.plan.target.damq_pages_max as usize * PAGE_LEN;
                let pages = self.pages.pop().unwrap_or_else(|| vec![0; len].into());
                let memory = Memory::new((pages, damq_pages), queue_size, export, boot);
                if process.memory.insert((link, channel), memory).is_some() {
                    return Err(format!("channel {} of link {link} opened twice", channel.0));
                }
                self.report.channels += 1;
                self.check_takeover(link, channel)?;
                let port = self.network.port(Station::Target, link);
                self.network.release_late(self.now, port, Some(channel.0));
                self.plan_deliveries()
            }
            ListenerEvent::Closed { channel } => {
                let memory = process.memory.remove(&(link, channel));
                let memory = memory.ok_or("a channel closed that was not open")?;
                self.pages.push(memory.into_pages());
                Ok(())
            }
            ListenerEvent::Action { channel, action } => {
                let memory = process.memory.get_mut(&(link, channel));
                let memory = memory.ok_or("an action of no channel")?;
                match action {
                    Action::Release { slot } => memory.release(slot),
                    Action::Claim { slot, page, len } => memory.claim(slot, page, len),
                    Action::Place { slot, offset, len, source } => {
                        let (offset, source) = (offset as usize, source as usize);
                        let data = payload.get(source..source + len as usize);
                        let place = memory.data(slot).get_mut(offset..offset + len as usize);
                        let (data, place) = data.zip(place).ok_or("a place that is none")?;
                        place.copy_from_slice(data);
                        Ok(())
                    }
                    Action::Execute { command } => self.execute(link, channel, command),
                }
            }
        }
    }

    /// Checks that no request of others is under way when a session is admitted for writing.
    fn check_takeover(&self, link: usize, channel: ChannelId) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        let owner = process.owner(link, channel).filter(|owner| owner.writer);
        let Some(owner) = owner else { return Ok(()) };
        let export = process.memory[&(link, channel)].export;
        if self.volumes[export].exported.shared {
            return Ok(());
        }
        let others = |job: &&Job| {
            let other = job.export == export && job.session != owner.session;
            other && job.command.opcode.modifies()
        };
        match process.jobs.values().find(others) {
            Some(job) => Err(format!("a takeover was granted while {:?} is executed", job.command)),
            None => Ok(()),
        }
    }

    /// Has the disk begin a request, or refuses it.
    fn execute(&mut self, link: usize, channel: ChannelId, command: Command) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let owner = process.owner(link, channel);
        let owner = owner.ok_or("a request of a channel that belongs to no session")?;
        let session = owner.session;
        if command.opcode.modifies() && !owner.writer {
            return Err(format!("{command:?} is executed for a session that may only read"));
        }
        let memory = process.memory.get_mut(&(link, channel)).ok_or("a request of no channel")?;
        if let (Some(breaker), Some(cookie)) = (&self.breaker, self.handled)
            && breaker.forbids(cookie, command.tag)
        {
            return Err(format!("{command:?} is executed, and its frame had to be dropped"));
        }
        memory.use_slot(command.tag)?;
        let mut stamp = 0;
        if command.opcode.modifies() {
            let sent =
                self.handled.and_then(|cookie| self.sent.get(&(cookie.0, command.tag.to_bits())));
            stamp =
                *sent.ok_or_else(|| format!("{command:?} is executed, which no host has sent"))?;
        }
        if command.opcode == Opcode::Write {
            check_data(&command, stamp, memory.data(command.tag.slot))?;
        }
        let export = memory.export;
        let disk = &self.volumes[export].disk;
        let refused = (!disk.takes(&command)).then_some(Status::Invalid);
        self.jobs += 1;
        let id = self.jobs;
        let progress = disk.begin(&command, stamp);
        let begun = self.now;
        let job = Job { link, channel, session, export, command, begun, progress, stamp };
        process.jobs.insert(id, job);
        self.note(Happening::Execute { link, channel: channel.0, command, stamp });
        if let Some(status) = refused {
            return self.end_job(id, status);
        }
        self.check_begin(id)?;
        self.check_load()?;
        let plan = self.volumes[export].disk.plan();
        let hiccup = self.random.chance(plan.hiccups);
        let mean = if hiccup {
            Duration::from_millis(self.random.pick(&HICCUPS_MS))
        } else {
            plan.latency
        };
        let hang = !self.calm && self.random.hits(plan.hangs);
        self.report.hangs += u64::from(hang);
        let time = self.random.around(if hang { HANG } else { mean });
        if self.random.chance(0.5) {
            self.plan_in(time / 2, Event::DiskMid(id));
        }
        self.plan_in(time, Event::DiskDone(id));
        Ok(())
    }

    /// Checks that no request is executed whose host knows its end, nor twice, nor for another host
    /// than the one that writes.
    fn check_begin(&mut self, id: u64) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let modifies = process.jobs[&id].command.opcode.modifies();
        let again = modifies && process.is_repeated(id);
        let Job { command, session, stamp, export, .. } = &process.jobs[&id];
        let volume = &mut self.volumes[*export];
        if volume.history.is_acknowledged(*stamp) {
            return Err(format!("{command:?} is executed, but was answered before"));
        }
        if again && self.plan.promises.outcomes && !volume.history.is_repeatable(*stamp) {
            return Err(format!("{command:?} of stamp {stamp} is executed twice"));
        }
        if !modifies {
            return Ok(());
        }
        let sessions = process.registry.sessions(*export).iter();
        let mut writers = sessions.filter(|session| session.writer);
        if !volume.exported.shared && writers.any(|writer| writer.session != *session) {
            return Err(format!("{command:?} is executed while another session writes"));
        }
        let noted = volume.note_writer(*session);
        noted.map_err(|why| format!("{command:?} is executed {why}"))
    }

    /// Checks that a channel has no more requests at the disk than it has slots.
    fn check_load(&self) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        let slots = usize::from(self.plan.target.queue_size_max) * process.memory.len();
        if process.memory.len() > CHANNELS_MAX || process.jobs.len() > slots {
            let (jobs, channels) = (process.jobs.len(), process.memory.len());
            return Err(format!("{jobs} requests of {channels} channels are at the disk"));
        }
        Ok(())
    }

    /// Executes a part of a request on the disk.
    pub(super) fn disk_mid(&mut self, id: u64) {
        let Some(process) = &mut self.process else { return };
        let Some(job) = process.jobs.get_mut(&id) else { return };
        let Some(memory) = process.memory.get_mut(&(job.link, job.channel)) else { return };
        let data = memory.data(job.command.tag.slot);
        self.volumes[job.export].disk.advance(&job.command, &mut job.progress, data);
    }

    /// Ends a request at the disk, unless the process has died meanwhile.
    pub(super) fn disk_done(&mut self, id: u64) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let Some(job) = process.jobs.get_mut(&id) else { return Ok(()) };
        let memory = process.memory.get_mut(&(job.link, job.channel));
        let memory = memory.ok_or("a channel closed with requests at the disk")?;
        let (outdated, export) =
            (memory.boot != self.volumes[job.export].exported.boot(), job.export);
        let data = memory.data(job.command.tag.slot);
        let disk = &mut self.volumes[job.export].disk;
        if !self.calm && self.random.chance(disk.plan().errors) {
            self.report.disk_errors += 1;
            disk.advance(&job.command, &mut job.progress, data);
            self.end_job(id, Status::Io)?;
        } else {
            if job.command.opcode == Opcode::Read {
                disk.read(&job.command, data);
            }
            let progress = std::mem::take(&mut job.progress);
            let mut status = disk.finish(&job.command, progress, data, !self.calm);
            // Its host does not know of a loss that another host has been told of.
            let is_outdated = self.plan.target.renews && outdated;
            if is_outdated && is_durable(&job.command) {
                status = Status::Io;
            }
            self.report.sync_errors += u64::from(status != Status::Success);
            let modifies = job.command.opcode.modifies();
            self.renew_generation(export);
            if self.dies_unanswered && modifies {
                self.report.unanswered += 1;
                return self.die_unanswered(id);
            }
            self.end_job(id, status)?;
        }
        self.drive_target(&[])
    }

    fn end_job(&mut self, id: u64, status: Status) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let Some(job) = process.jobs.remove(&id) else { return Ok(()) };
        let Job { link, channel, command, begun, .. } = job;
        let store_ns = u32::try_from(self.now.since(begun).as_nanos()).unwrap_or(u32::MAX);
        let times = Times { store_ns, ..Times::ZERO };
        process.listeners[link].note_times(self.now, channel, command.tag, times);
        let keeps_pages = process.listeners[link].complete(channel, command.tag, status);
        if !keeps_pages
            && let Some(memory) = process.memory.get_mut(&(link, channel))
            && command.opcode.has_data()
        {
            memory.release(command.tag.slot)?;
        }
        let slot = command.tag.slot;
        self.note(Happening::Executed { link, channel: channel.0, slot, status });
        Ok(())
    }

    /// Sends the frames of the listeners; returns whether there were any.
    fn transmit_target(&mut self) -> Result<bool, String> {
        let mut sent = false;
        for link in 0..self.plan.target.links.len() {
            let port = self.network.port(Station::Target, link);
            let source = self.network.mac(port);
            loop {
                let Some(Process { listeners, memory, .. }) = &mut self.process else {
                    return Ok(false);
                };
                if !listeners[link].poll_transmit(self.now, &mut self.out) {
                    break;
                }
                sent = true;
                let channel = self.out.channel;
                if let Some(memory) = channel.and_then(|it| memory.get_mut(&(link, it))) {
                    memory.note_answers(self.out.content.entries());
                }
                let mut data = Vec::new();
                for part in &self.out.parts {
                    let channel = channel.ok_or("data of no channel")?;
                    let memory = memory.get_mut(&(link, channel)).ok_or("data of no channel")?;
                    let (first, len) = (part.offset as usize, part.len as usize);
                    let bytes = memory.data(part.request as u16).get(first..first + len);
                    data.extend_from_slice(bytes.ok_or("data of a slot that has none")?);
                }
                let frame = self.out.to_bytes(source, &data);
                self.send(port, frame)?;
            }
        }
        Ok(sent)
    }
}

/// Whether the success of a request promises that completed writes last.
fn is_durable(command: &Command) -> bool {
    command.opcode == Opcode::Flush || command.flags.contains(CommandFlags::FUA)
}

/// Checks that a write is executed with its own data, and with all of them.
fn check_data(command: &Command, stamp: u64, data: &[u8]) -> Result<(), String> {
    if data.len() != command.len as usize {
        return Err(format!("{command:?} is executed with {} bytes", data.len()));
    }
    for (sector, bytes) in (command.offset / SECTOR_LEN..).zip(data.chunks_exact(SECTOR)) {
        let found = examine(bytes, sector);
        if found != Content::Stamp(stamp) {
            return Err(format!("{command:?} of stamp {stamp} is executed with {found:?}"));
        }
    }
    Ok(())
}
