//! Drives the target: frames and time into its links, and out of them frames, and requests, which
//! the disk executes.

use std::time::Duration;

use tyche_block::{Completion, Errno};
use tyche_native::operation;
use tyche_proto::{Operation, Rules};
use tyche_wire::{ChannelId, CommandFlags, Entry, Header, Kind, Opcode, SECTOR_LEN, Tag};

use super::{Event, World, entries};
use crate::content::{Content, SECTOR, examine};
use crate::network::{Delivery, Station};
use crate::store::Submitted;
use crate::target::{CHANNELS_MAX, Job, Record, data};
use crate::trace::Happening;

/// Delay of a link's alarm whose deadline has passed already.
const ALARM_DELAY: Duration = Duration::from_micros(1);

/// Mean time of a slow request, in ms: a drive that tries a bad sector again and again, for longer
/// than a channel may be silent.
const HICCUPS_MS: [u64; 4] = [20, 100, 500, 2000];

/// Content of the memory for a read before it.
const STALE: u8 = 0xee;

/// Mean time of a request that hangs: a drive, or a path to it, that is reset.
const HANG: Duration = Duration::from_secs(30);

impl<R: Rules> World<R> {
    pub(super) fn target_frame(&mut self, link: usize, frame: &Delivery) -> Result<(), String> {
        let now = self.now;
        let Some(process) = &mut self.process else { return Ok(()) };
        if process.handle_frame(now, link, frame) {
            self.unseal(frame)?;
            self.witness_frame(link, frame);
            self.drain_channels(link)?;
            self.note_cookie(link, frame);
        }
        self.drain_channels(link)?;
        self.drain_requests(link)?;
        if frame.more {
            return Ok(());
        }
        self.drive_target()
    }

    pub(super) fn target_alarm(&mut self) -> Result<(), String> {
        let now = self.now;
        if self.target_alarm.is_none_or(|alarm| alarm > now) {
            return Ok(());
        }
        self.target_alarm = None;
        for link in 0..self.plan.target.links.len() {
            let Some(process) = &mut self.process else { return Ok(()) };
            process.handle_timeout(now, link);
            self.drain_channels(link)?;
            self.drain_requests(link)?;
        }
        self.drive_target()
    }

    /// Drains the links after an input.
    pub(super) fn drive_target(&mut self) -> Result<(), String> {
        // Channels were closed by an alarm, or when it last transmitted: if the interface takes no
        // long frames any more.
        self.witness_silence();
        let mut worked = true;
        while worked {
            worked = false;
            for link in 0..self.plan.target.links.len() {
                let Some(process) = &mut self.process else { return Ok(()) };
                worked |= process.work(self.now, link);
                self.drain_channels(link)?;
                self.drain_requests(link)?;
                self.drain_records()?;
                worked |= self.transmit_target(link)?;
            }
        }
        self.check_evictions()?;
        self.check_removals()?;
        let Some(process) = &self.process else { return Ok(()) };
        let Some(deadline) = process.poll_timeout() else { return Ok(()) };
        let at = deadline.max(self.now + ALARM_DELAY);
        if self.target_alarm.is_none_or(|alarm| alarm > at) {
            self.target_alarm = Some(at);
            self.schedule.plan(at, Event::TargetAlarm);
        }
        Ok(())
    }

    /// Takes note of a link's channels that were opened or closed.
    fn drain_channels(&mut self, link: usize) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        for channel in process.note_channels(link)? {
            self.report.channels += 1;
            self.check_takeover(link, channel)?;
            let port = self.network.port(Station::Target, link);
            self.network.release_late(self.now, port, Some(channel.0));
            self.plan_deliveries()?;
        }
        Ok(())
    }

    /// Takes note of the cookie of a channel whose requests the target has taken.
    fn note_cookie(&mut self, link: usize, frame: &Delivery) {
        let Some(process) = &mut self.process else { return };
        let header = Header::parse(frame.head()).ok();
        let header = header.filter(|it| matches!(it.kind, Kind::Command | Kind::Data));
        let channel = header.and_then(|it| process.channels.get_mut(&(link, it.channel)));
        if let Some(channel) = channel {
            channel.cookie = Some(frame.cookie());
        }
    }

    /// Gives the disks the requests that a link has submitted. To be called before another link is
    /// driven: a store does not know its links.
    fn drain_requests(&mut self, link: usize) -> Result<(), String> {
        while let Some((export, channel, tag, submitted)) =
            self.process.as_mut().and_then(|process| process.take_request())
        {
            self.execute((link, channel), export, tag, submitted)?;
        }
        Ok(())
    }

    /// Takes note of what the target has stored.
    fn drain_records(&mut self) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        for record in process.take_records() {
            match record {
                Record::Writer(export, writer) => {
                    let exported = &mut self.volumes[export].exported;
                    let last = exported.last_writer.replace(writer);
                    if !exported.wild {
                        self.others.witness.let_in(self.now, export, (writer, last))?;
                    }
                }
                Record::Renewed(export, loss) => {
                    let exported = &mut self.volumes[export].exported;
                    exported.renew(loss);
                    self.report.renewals += 1;
                    let what = format!("generation {} of export {export}", exported.generation());
                    self.note(Happening::Incident(what));
                }
            }
        }
        Ok(())
    }

    /// Checks that no request of others is under way when a session is admitted for writing.
    fn check_takeover(&self, link: usize, channel: ChannelId) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        let owner = process.owner(link, channel).filter(|owner| owner.is_writer);
        let Some(owner) = owner else { return Ok(()) };
        let export = process.channels[&(link, channel)].export;
        if self.volumes[export].exported.shared {
            return Ok(());
        }
        let others = |job: &&Job| {
            let other = job.export == export && job.session != owner.session;
            other && job.operation.opcode.modifies()
        };
        match process.jobs.values().find(others) {
            Some(job) => {
                Err(format!("a takeover was granted while {:?} is executed", job.operation))
            }
            None => Ok(()),
        }
    }

    /// Has the disk begin a request.
    fn execute(
        &mut self,
        (link, channel): (usize, ChannelId),
        export: usize,
        tag: Tag,
        submitted: Submitted,
    ) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let Submitted { queue, token, request } = submitted;
        let (operation, mut buffer) = (operation(&request), request.buffer);
        let owner = process.owner(link, channel);
        let owner = owner.ok_or("a request of a channel that belongs to no session")?;
        let (session, host) = (owner.session, owner.host);
        if operation.opcode.modifies() && !owner.is_writer {
            return Err(format!("{operation:?} is executed for a session that may only read"));
        }
        let of_channel = process.channels.get_mut(&(link, channel));
        let of_channel = of_channel.ok_or("a request of no channel")?;
        if of_channel.export != export || tag.slot >= self.plan.target.queue_size_max {
            return Err(format!("{operation:?} in slot {} is for export {export}", tag.slot));
        }
        let cookie = of_channel.cookie;
        if let (Some(breaker), Some(cookie)) = (&self.breaker, cookie)
            && breaker.forbids(cookie, tag)
        {
            return Err(format!("{operation:?} is executed, and its frame had to be dropped"));
        }
        // Whether it was answered is not seen in sealed frames.
        if !self.plan.keyed {
            of_channel.use_slot(tag)?;
        }
        let mut stamp = 0;
        if operation.opcode.modifies() {
            let sent = cookie.and_then(|cookie| self.sent.get(&(cookie.0, tag.to_bits())));
            let unsent = || format!("{operation:?} is executed, which no host has sent");
            stamp = *sent.ok_or_else(unsent)?;
        }
        match operation.opcode {
            Opcode::Write => check_data(&operation, stamp, data(&mut buffer, &operation))?,
            _ => data(&mut buffer, &operation).fill(STALE),
        }
        let disk = &self.volumes[export].disk;
        self.jobs += 1;
        let id = self.jobs;
        let progress = disk.begin(&operation, stamp);
        let job = Job {
            link,
            channel,
            session,
            host,
            export,
            tag,
            operation,
            buffer,
            progress,
            stamp,
            queue,
            token,
        };
        process.jobs.insert(id, job);
        self.note(Happening::Execute { link, channel: channel.0, tag, operation, stamp });
        self.check_begin(id)?;
        self.check_not_evicted(export, host)?;
        self.check_not_removed(export)?;
        self.check_load()?;
        self.plan_end(id, export);
        Ok(())
    }

    /// Plans when the disk has done a request.
    fn plan_end(&mut self, id: u64, export: usize) {
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
    }

    /// Checks that no request is executed whose host knows its end, nor twice, nor for another host
    /// than the one that writes.
    fn check_begin(&mut self, id: u64) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let modifies = process.jobs[&id].operation.opcode.modifies();
        let again = modifies && process.is_repeated(id);
        let Job { operation, session, stamp, export, .. } = &process.jobs[&id];
        let volume = &mut self.volumes[*export];
        if volume.history.is_acknowledged(*stamp) {
            return Err(format!("{operation:?} is executed, but was answered before"));
        }
        if again && self.plan.promises.outcomes && !volume.history.is_repeatable(*stamp) {
            return Err(format!("{operation:?} of stamp {stamp} is executed twice"));
        }
        if !modifies {
            return Ok(());
        }
        let registry = process.registry();
        let sessions = registry.sessions(process.key(*export));
        let mut writers = sessions.iter().filter(|session| session.writer);
        if !volume.exported.shared && writers.any(|writer| writer.session != *session) {
            return Err(format!("{operation:?} is executed while another session writes"));
        }
        let noted = volume.note_writer(*session);
        noted.map_err(|why| format!("{operation:?} is executed {why}"))
    }

    /// Checks that a channel has no more requests at the disk than it has slots.
    fn check_load(&self) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        let slots = usize::from(self.plan.target.queue_size_max) * process.channels.len();
        let most = CHANNELS_MAX.max(2 * self.hosts.len());
        if process.channels.len() > most || process.jobs.len() > slots {
            let (jobs, channels) = (process.jobs.len(), process.channels.len());
            return Err(format!("{jobs} requests of {channels} channels are at the disk"));
        }
        Ok(())
    }

    /// Executes a part of a request on the disk.
    pub(super) fn disk_mid(&mut self, id: u64) {
        let Some(process) = &mut self.process else { return };
        let Some(job) = process.jobs.get_mut(&id) else { return };
        let Job { operation, buffer, progress, .. } = job;
        let data = data(buffer, operation);
        self.volumes[job.export].disk.advance(operation, progress, data);
    }

    /// Ends a request at the disk, unless the process has died meanwhile.
    pub(super) fn disk_done(&mut self, id: u64) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let Some(job) = process.jobs.get_mut(&id) else { return Ok(()) };
        let Job { export, operation, buffer, progress, .. } = job;
        let promises =
            operation.opcode == Opcode::Flush || operation.flags.contains(CommandFlags::FUA);
        let (export, data) = (*export, data(buffer, operation));
        let disk = &mut self.volumes[export].disk;
        let result = if !self.calm && self.random.chance(disk.plan().errors) {
            self.report.disk_errors += 1;
            disk.advance(operation, progress, data);
            Err(Errno::IO)
        } else {
            let told = match operation.opcode {
                Opcode::BlockStatus => disk.status(operation, data),
                Opcode::Read => {
                    disk.read(operation, data);
                    Ok(())
                }
                _ => Ok(()),
            };
            let ended = disk.finish(operation, std::mem::take(progress), data, !self.calm);
            let result = told.and(ended);
            self.report.sync_errors += u64::from(result.is_err());
            process.bus(export).set_losses(disk.losses());
            let modifies = process.jobs[&id].operation.opcode.modifies();
            if self.dies_unanswered && modifies && result.is_ok() {
                self.report.unanswered += 1;
                return self.die_unanswered(id);
            }
            result
        };
        if promises && result.is_err() {
            self.volumes[export].history.notice_loss();
        }
        self.end_job(id, result);
        self.drive_target()
    }

    fn end_job(&mut self, id: u64, result: Result<(), Errno>) {
        let Some(process) = &mut self.process else { return };
        let Some(job) = process.jobs.remove(&id) else { return };
        let Job { link, channel, export, tag, buffer, queue, token, .. } = job;
        process.bus(export).complete(queue, Completion { token, result, buffer });
        self.note(Happening::Executed { link, channel: channel.0, slot: tag.slot, result });
    }

    /// Sends the frames of a link; returns whether there were any.
    fn transmit_target(&mut self, link: usize) -> Result<bool, String> {
        let Some(process) = &mut self.process else { return Ok(false) };
        let port = self.network.port(Station::Target, link);
        let trains = process.transmit(self.now, link, self.network.frame_len_taken(port));
        let sent = !trains.is_empty();
        for train in trains {
            train.iter().for_each(|frame| self.note_answers(link, frame));
            self.send_train(port, train)?;
        }
        Ok(sent)
    }

    /// Takes note of the completions in a frame of the target.
    fn note_answers(&mut self, link: usize, frame: &[u8]) {
        let Some(process) = &mut self.process else { return };
        let head = frame.first_chunk().expect("frames are at least a head long");
        // A bad one is found when it is sent.
        let Ok(header) = Header::parse(head) else { return };
        let Some(channel) = process.channel_of(link, header.cookie) else { return };
        for entry in entries(&header, frame) {
            if let Entry::Completion(completion) = entry {
                channel.note_answer(completion.tag);
            }
        }
    }
}

/// Checks that a write is executed with its own data, and with all of them.
fn check_data(operation: &Operation, stamp: u64, data: &[u8]) -> Result<(), String> {
    if data.len() != operation.len as usize {
        return Err(format!("{operation:?} is executed with {} bytes", data.len()));
    }
    for (sector, bytes) in (operation.offset / SECTOR_LEN..).zip(data.chunks_exact(SECTOR)) {
        let found = examine(bytes, sector);
        if found != Content::Stamp(stamp) {
            return Err(format!("{operation:?} of stamp {stamp} is executed with {found:?}"));
        }
    }
    Ok(())
}
