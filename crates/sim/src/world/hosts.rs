//! Drives the hosts: frames and time into the queues, and out of them frames, answers and notices.

use std::collections::BTreeSet;
use std::time::Duration;

use tyche_block::Completion;
use tyche_proto::{ChannelChoice, Failure, Instant, OpId, Operation, Rules, StageSample, Writer};
use tyche_remote::Notice;
use tyche_wire::{Entry, Header, Mac, Opcode, Reason, Tag};

use super::exports::Volume;
use super::seals::is_sealed;
use super::strangers::{reads_all, reads_first};
use super::{Event, World, entries};
use crate::host::{Host, Pending, Running, uuid};
use crate::network::{Delivery, Station};
use crate::plan::HostPlan;
use crate::queues::{Answered, QueueEvent};
use crate::trace::Happening;

/// Delay of a session's alarm whose deadline has passed already.
const ALARM_DELAY: Duration = Duration::from_micros(1);

impl<R: Rules> World<R> {
    pub(super) fn start(&mut self, index: usize) -> Result<(), String> {
        if self.hosts[index].running.is_some() {
            return Ok(());
        }
        self.sessions += 1;
        let left = self.hosts[index].left.take();
        let former = left.as_ref().map(|left| left.former);
        let key = self.plan.keyed.then(|| self.rotation.lasting());
        self.hosts[index].start(self.now, self.sessions, former, &self.network, key);
        let (host, session) = (self.hosts[index].uuid(), uuid(2, self.sessions));
        self.others.witness.begin(self.now, host, session);
        let event = format!("begins session {}", self.sessions);
        self.note(Happening::Host { host: index, event });
        self.begin_anew();
        if let Some(left) = left {
            self.reissue(index, left)?;
        }
        self.drive_host(index)
    }

    pub(super) fn host_frame(
        &mut self,
        index: usize,
        link: usize,
        frame: &Delivery,
    ) -> Result<(), String> {
        let now = self.now;
        let resets_living = self.resets_living(frame);
        let Some(host) = self.hosts.get_mut(index) else { return Ok(()) };
        let reads_first = host.reads_first;
        let Some(running) = &mut host.running else { return Ok(()) };
        let other = if reads_first { reads_all(frame) } else { None };
        let frame = other.as_ref().map_or(frame, |(other, _)| other);
        if resets_living {
            // Channels that have been silent for too long are not the frame's doing.
            running.session.handle_timeout(now);
        }
        let counts = other.is_some() || resets_living;
        let channels = if counts { running.live_channels() } else { Vec::new() };
        let is_taken = running.session.handle_frame(now, link, frame);
        if resets_living && running.live_channels().len() < channels.len() {
            return Err("a channel is reset that the target has".into());
        }
        let is_ending = running.session.is_ending();
        // Anybody may say that an attempt is accepted: it is if the session takes that.
        if let Some((_, attempt)) = &other
            && running.live_channels().iter().any(|it| !channels.contains(it))
        {
            host.writes |= host.attempts.get(attempt) == Some(&true);
        }
        if is_taken && !is_ending {
            self.unseal(frame)?;
        }
        if !frame.more {
            self.drive_host(index)?;
        }
        if frame.is_accept() {
            self.network.release_late(now, frame.to, None);
            self.plan_deliveries()?;
        }
        Ok(())
    }

    pub(super) fn host_alarm(&mut self, index: usize) -> Result<(), String> {
        let (now, host) = (self.now, &mut self.hosts[index]);
        if host.alarm.is_none_or(|alarm| alarm > now) {
            return Ok(());
        }
        host.alarm = None;
        if let Some(running) = &mut host.running {
            running.session.handle_timeout(now);
        }
        self.drive_host(index)
    }

    /// Drains the session of a host after an input.
    pub(super) fn drive_host(&mut self, index: usize) -> Result<(), String> {
        let now = self.now;
        loop {
            while let Some((queue, told)) =
                self.hosts[index].running.as_mut().and_then(|running| running.session.poll(now))
            {
                match told {
                    QueueEvent::Done(op, answer) => self.answered(index, op, &answer)?,
                    QueueEvent::Notice(Notice::ResumeState(_)) => self.hosts[index].keep(now),
                    QueueEvent::Notice(notice) => self.notified((index, queue), notice)?,
                }
            }
            self.bury(index)?;
            if !self.submit_drawn(index)? {
                break;
            }
        }
        self.transmit_host(index)?;
        self.arm_host(index);
        Ok(())
    }

    fn notified(&mut self, (index, queue): (usize, usize), notice: Notice) -> Result<(), String> {
        let host = &mut self.hosts[index];
        let Some(running) = &mut host.running else { return Ok(()) };
        running.connected |= matches!(notice, Notice::Connected(_));
        if matches!(notice, Notice::Joined(..)) {
            let Volume { history, exported, .. } = &mut self.volumes[host.plan.export];
            let generation = running.session.export_of(queue).map(|export| export.generation);
            if generation == Some(exported.generation()) {
                history.learn(running.number, queue);
            }
        }
        if let Notice::NextKey(said) = &notice {
            host.target_key = Some(said.next);
        }
        if notice == Notice::CacheLost {
            self.volumes[host.plan.export].history.learn_loss(running.number);
        }
        if notice == Notice::Failed(Failure::Rejected(Reason::SessionLost)) {
            let export = host.plan.export;
            check_lost(running, self.volumes[export].exported.last_writer)?;
            self.report.shut_out += 1;
        }
        if notice == Notice::Resumed {
            let number = running.number;
            let failed = self.volumes[host.plan.export].history.resume(number, queue);
            failed.into_iter().try_for_each(|stamp| self.check_not_executing(stamp))?;
        }
        self.check_notice((index, queue), &notice)?;
        self.report.note(&notice);
        self.note(Happening::Host { host: index, event: format!("{notice:?}") });
        self.log.push((index, notice));
        Ok(())
    }

    fn answered(&mut self, index: usize, op: OpId, answer: &Answered) -> Result<(), String> {
        let now = self.now;
        let Completion { result, ref buffer, .. } = answer.done.completion;
        let host = &mut self.hosts[index];
        let Some(running) = &mut host.running else { return Ok(()) };
        let pending = running.pending.remove(&op).ok_or("an operation was answered twice")?;
        let is_over = running.session.is_over_for(op);
        // Nobody has asked the target for its outcome. It may be one that the host's last session
        // has sent, and that is beyond the end of the disk now.
        let is_unknown = is_over || !answer.was_taken;
        // No flush succeeds once another queue has failed.
        let is_flush = pending.operation.opcode == Opcode::Flush;
        let is_unknown = is_unknown || (is_flush && running.session.is_ending());
        let fails_fast = answer.was_taken && running.session.fails_fast_for(op);
        if fails_fast && !is_unknown && result.is_err() {
            self.volumes[host.plan.export].history.fail_early(running.number, op)?;
        } else if is_unknown && result.is_err() {
            self.volumes[host.plan.export].history.abandon(running.number, op)?;
        } else {
            let len = pending.operation.len as usize;
            let data = buffer.as_ref().map_or(&[][..], |buffer| &buffer[..len]);
            let Volume { history, disk, .. } = &mut self.volumes[host.plan.export];
            let done = history.complete(running.number, op, result, data, disk)?;
            self.check_not_executing(done.stamp)?;
        }
        if result.is_ok() {
            check_stages(answer.stage_sample, now)?;
        }
        let age = pending.age(now);
        if !is_over {
            check_age(&pending, now, self.report.outages(), self.plan.stall_max)?;
        }
        self.report.slowest = self.report.slowest.max(age);
        self.report.completed(result.is_ok());
        self.answers.push((index, result));
        self.note(Happening::Answer { host: index, op: op.0, result });
        let host = &mut self.hosts[index];
        let fails_fast = host.running.as_ref().is_some_and(|it| it.session.fails_fast());
        let think = if fails_fast { REFUSED } else { host.plan.think };
        if !think.is_zero() {
            let think = host.random.around(think);
            host.thinking_until = now + think;
            self.plan_in(think, Event::Thought(index));
        }
        Ok(())
    }

    /// Checks that a write whose end its host knows is not under way any more.
    fn check_not_executing(&self, stamp: u64) -> Result<(), String> {
        let jobs = self.process.iter().flat_map(|process| process.jobs.values());
        match jobs.into_iter().find(|job| stamp != 0 && job.stamp == stamp) {
            Some(job) => Err(format!("{:?} is answered while it is executed", job.operation)),
            None => Ok(()),
        }
    }

    /// Removes a session that is over; the host may begin another.
    fn bury(&mut self, index: usize) -> Result<(), String> {
        let host = &mut self.hosts[index];
        let Some(running) = host.running.take_if(|running| running.session.is_over()) else {
            return Ok(());
        };
        if !running.pending.is_empty() {
            return Err(format!("a session ended with {} unanswered", running.pending.len()));
        }
        self.end_session(index, &running);
        let pause = Duration::from_millis(self.hosts[index].random.between(1, 1000));
        if self.hosts[index].plan.busy && !self.calm {
            self.plan_in(pause, Event::Start(index));
        }
        Ok(())
    }

    /// Removes a session from the knowledge of its host and of the checker.
    pub(super) fn end_session(&mut self, host: usize, running: &Running<R>) {
        self.others.witness.end(self.now, running.number);
        self.past_stats += running.session.stats();
        let history = &mut self.volumes[self.hosts[host].plan.export].history;
        self.report.vanished += history.vanish(running.number) as u64;
    }

    /// Submits the next operation of a host; returns whether there was one.
    fn submit_drawn(&mut self, index: usize) -> Result<bool, String> {
        let host = &mut self.hosts[index];
        let Some(running) = &host.running else { return Ok(false) };
        let idle = !host.plan.busy || host.thinking_until > self.now || !running.connected;
        if idle
            || running.session.is_ending()
            || running.closing
            || self.calm
            || self.allowance == 0
        {
            return Ok(false);
        }
        if running.session.operations() >= host.plan.depth as usize {
            return Ok(false);
        }
        let Some(export) = running.session.export() else { return Ok(false) };
        let (size, block) = (export.geometry.size, u64::from(export.geometry.block_size));
        let operation = host.draw(size, block);
        self.allowance -= 1;
        self.submit(index, operation)?;
        Ok(true)
    }

    /// Submits an operation of a host's session and remembers it.
    pub(super) fn submit(&mut self, index: usize, operation: Operation) -> Result<OpId, String> {
        let now = self.now;
        let host = &mut self.hosts[index];
        let running = host.running.as_mut().ok_or("the host has no session")?;
        let history = &mut self.volumes[host.plan.export].history;
        let Operation { opcode, flags, offset, len } = operation;
        let stamp = if opcode.modifies() { history.stamp() } else { 0 };
        let op = running.session.submit(now, operation, stamp);
        history.submit(running.number, op, (opcode, flags), (offset, len), stamp)?;
        let outages = self.report.outages();
        // Round robin gives a link its turn however much it has to send.
        let is_behind_others = host.plan.choice == ChannelChoice::RoundRobin;
        let others = running.pending.values().filter(|_| is_behind_others);
        let behind = others.map(|it| u64::from(it.operation.len)).sum::<u64>() + u64::from(len);
        let pending = Pending { operation, stamp, submitted: now, outages, behind };
        running.pending.insert(op, pending);
        self.report.operations += 1;
        self.note(Happening::Submit { host: index, op: op.0, opcode, offset, len, stamp });
        Ok(op)
    }

    /// Submits an operation that the host was ordered to.
    pub(crate) fn submit_now(&mut self, index: usize, operation: Operation) -> Result<(), String> {
        self.submit(index, operation)?;
        self.drive_host(index)
    }

    fn transmit_host(&mut self, index: usize) -> Result<(), String> {
        let now = self.now;
        let Some(running) = &mut self.hosts[index].running else { return Ok(()) };
        let (network, station) = (&self.network, Station::Host(index));
        let taken = |link| network.frame_len_taken(network.port(station, link));
        for (queue, link, mut train) in running.session.transmit(now, taken) {
            let from = self.network.port(station, link);
            for frame in &mut train {
                self.look_at((index, queue), frame)?;
            }
            self.send_train(from, train)?;
        }
        Ok(())
    }

    /// Takes note of the requests in a frame that a queue of a host sends.
    fn look_at(
        &mut self,
        (index, queue): (usize, usize),
        frame: &mut Vec<u8>,
    ) -> Result<(), String> {
        let Host { running, reads_first: is_other, writes, attempts, .. } = &mut self.hosts[index];
        let Some(running) = running else { return Ok(()) };
        if *is_other {
            let is_lost = running.session.lost_since().is_some();
            *frame = reads_first(std::mem::take(frame), *writes, is_lost, attempts);
        }
        let header = Header::parse(frame.first_chunk().expect("a head"));
        let header = header.map_err(|reject| format!("sent a bad frame: {reject}"))?;
        let mut note = |tag: Tag, op| {
            let pending = running.pending.get(&op).ok_or("a command of no operation")?;
            if pending.operation.opcode.modifies() {
                self.sent.insert((header.cookie.0, tag.to_bits()), pending.stamp);
            }
            Ok(())
        };
        if is_sealed(&header, frame) {
            // What it carries is not seen: any of these.
            let mut carried = running.session.carried(queue, header.cookie);
            return carried.try_for_each(|(tag, op)| note(tag, op));
        }
        for entry in entries(&header, frame) {
            let Entry::Command(command) = entry else { continue };
            if !command.opcode.modifies() {
                continue;
            }
            let op = running.session.locate(queue, header.cookie, command.tag.slot);
            note(command.tag, op.ok_or("a command of a slot that carries nothing")?)?;
        }
        Ok(())
    }

    fn arm_host(&mut self, index: usize) {
        let (now, host) = (self.now, &mut self.hosts[index]);
        let Some(running) = &host.running else { return };
        let Some(deadline) = running.session.poll_timeout() else { return };
        let at = deadline.max(now + ALARM_DELAY);
        if host.alarm.is_none_or(|alarm| alarm > at) {
            host.alarm = Some(at);
            self.schedule.plan(at, Event::HostAlarm(index));
        }
    }

    /// Adds a host that acts on orders only; returns its index.
    pub(crate) fn add_host(&mut self, mut plan: HostPlan) -> Result<usize, String> {
        let index = self.hosts.len();
        if plan.links.is_empty() {
            plan.links = self.plan.target.links.clone();
            plan.links.sort_by_key(|link| link.segment);
            plan.links.dedup_by_key(|link| link.segment);
        }
        self.network.plug(index, &plan.links);
        let random = self.random.fork();
        self.hosts.push(Host::new(index, plan, random));
        self.hosts[index].target = self.wanted_target();
        self.start(index)?;
        Ok(index)
    }

    /// A link of a host that could be live and is not, or a link of the target that the host
    /// could use and does not; by station.
    pub(crate) fn idle_link(&self) -> Option<(Station, usize)> {
        self.hosts.iter().enumerate().find_map(|(index, host)| {
            // A host that only reads while another writes has no channels for writing.
            let running = host.running.as_ref().filter(|it| !it.closing && !host.reads_first)?;
            let live: Vec<_> = running.session.paths().filter(|(_, path)| path.live).collect();
            let pairs = self.network.pairs(index);
            pairs.iter().find_map(|&(link, (other, mac))| {
                if !live.iter().any(|(used, _)| *used == link) {
                    return Some((Station::Host(index), link));
                }
                let is_used = live.iter().any(|(_, path)| path.peer == mac);
                (!is_used).then_some((Station::Target, other))
            })
        })
    }

    /// Whether a channel of a host's link is live.
    pub fn is_link_live(&self, host: usize, link: usize) -> bool {
        let running = self.hosts[host].running.as_ref();
        running.is_some_and(|running| running.paths(link).any(|path| path.live))
    }

    /// The addresses of the target that a host has live channels to.
    pub fn peers(&self, host: usize) -> BTreeSet<Mac> {
        let running = self.hosts[host].running.as_ref();
        let paths = running.into_iter().flat_map(|running| running.session.paths());
        paths.filter(|(_, path)| path.live).map(|(_, path)| path.peer).collect()
    }

    /// The time at which the host's session lost its target.
    pub fn lost_since(&self, host: usize) -> Option<Instant> {
        self.hosts[host].running.as_ref().and_then(|running| running.session.lost_since())
    }
}

/// Checks the refusal of a session: another was admitted for writing since it was, or, if it takes
/// the place of another, another device was.
fn check_lost<R: Rules>(running: &Running<R>, last: Option<Writer>) -> Result<(), String> {
    let config = running.session.config();
    let is_first = last.is_some_and(|last| {
        let device = config.resumes.is_some() && last.device == config.device;
        last.session == config.session || device
    });
    if is_first {
        return Err(format!("session {} was shut out, but nobody followed it", running.number));
    }
    Ok(())
}

/// Pause of a host whose operations fail at once.
const REFUSED: Duration = Duration::from_millis(5);

/// The rate in bytes per second that an operation has at least beside others: that of a path of
/// 10 ms that loses frames, with a window of two.
const RATE_MIN: u64 = 128 << 10;

/// Checks that an operation took no longer than its outages and its data allow; `outages`: their
/// number so far.
fn check_age(
    pending: &Pending,
    now: Instant,
    outages: u64,
    stall_max: Option<Duration>,
) -> Result<(), String> {
    let met = (outages - pending.outages).max(1) as u32;
    let age = pending.age(now);
    let Operation { opcode, offset, len, .. } = pending.operation;
    let moved = Duration::from_millis(pending.behind * 1000 / RATE_MIN);
    if stall_max.is_none_or(|limit| age <= limit * met + moved) {
        return Ok(());
    }
    Err(format!("{opcode:?} {offset}+{len} took {age:?} for {met} outages though a link was whole"))
}

/// Checks that the target had a request for no longer than its host was waiting for it.
fn check_stages(stage_sample: Option<StageSample>, now: Instant) -> Result<(), String> {
    let Some(StageSample { issued_at, sent_at, target }) = stage_sample else { return Ok(()) };
    let at_target =
        Duration::from_nanos(u64::from(target.store_ns) + u64::from(target.transmit_ns));
    if issued_at <= sent_at && sent_at + at_target <= now {
        return Ok(());
    }
    Err(format!("times of a request: {issued_at:?}, {sent_at:?}, {target:?}, {now:?}"))
}
