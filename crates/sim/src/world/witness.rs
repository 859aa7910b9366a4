//! Rules for sessions: admission for writing, and the reasons for which a session ends.
//!
//! - A session that has ended is not admitted after a session that began later: late or repeated
//!   frames of the former displace nothing of the other. Nor is a session admitted after the life
//!   of a ticket.
//! - A living session that the target has just heard is not displaced by another of a host with
//!   the same UUID, unless it is the same device that goes on.
//! - A session is refused only by the target, and fails only for a reason that exists.
//!
//! And one for channels: an end of a link says that the network is congested once at most for each
//! frame that the network has marked.
//!
//! And one for discovery over UDP: the target answers with no more bytes than it was asked with.
//!
//! And one for silent targets: they answer only questions of hosts that know their key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_proto::{Failure, Instant, Rules, SessionInfo, Writer};
use tyche_remote::Notice;
use tyche_wire::{Body, Checksums, Control, Flags, HEAD_LEN, Header, Kind, Reason, Uuid};

use super::World;
use crate::host::uuid;
use crate::link::Carrier;
use crate::network::{Delivery, Port, Station};

/// Life of a ticket.
const TICKET_LIFE: Duration = Duration::from_secs(5);
/// Time that a session has to show that it lives, if another one of its host wants to displace it.
const SIGN_OF_LIFE: Duration = Duration::from_millis(200);

/// The record of a session.
#[derive(Clone, Copy, Debug)]
struct Life {
    host: Uuid,
    began: Instant,
    ended: Option<Instant>,
}

/// The checker of sessions, of congestion marks, and of answers outside of channels. It records
/// what both ends send and take, and compares admissions, refusals and failures with that.
#[derive(Default)]
pub(super) struct Witness {
    lives: BTreeMap<Uuid, Life>,
    /// Time at which the target last took a frame, of the sessions that have channels there, if
    /// that matters.
    heard: BTreeMap<Uuid, Instant>,
    /// Time at which the latest session began that was admitted for writing, by export.
    newest: BTreeMap<usize, Instant>,
    /// Attempts that the target has refused, and all that it has answered to hosts with keys.
    refused: BTreeSet<u64>,
    /// Nonces of the questions of hosts that know the target's key.
    friendly: BTreeSet<u64>,
    /// Bytes of the longest Discover, by nonce.
    asked: BTreeMap<u64, usize>,
    /// The marked frames that have arrived at each port, less the frames that told of them.
    marks: BTreeMap<Port, u64>,
    /// Two hosts have the same UUID.
    has_clones: bool,
}

impl Witness {
    pub(super) fn new(has_clones: bool) -> Self {
        Self { has_clones, ..Self::default() }
    }

    /// Records that a host begins a session.
    pub(super) fn begin(&mut self, now: Instant, host: Uuid, session: Uuid) {
        self.lives.insert(session, Life { host, began: now, ended: None });
    }

    /// Records that nothing more is sent for a session.
    pub(super) fn end(&mut self, now: Instant, session: u64) {
        if let Some(life) = self.lives.get_mut(&uuid(2, session)) {
            life.ended.get_or_insert(now);
        }
    }

    /// Checks a session that the target is about to admit for writing; `last`: the one admitted
    /// before.
    pub(super) fn let_in(
        &mut self,
        now: Instant,
        export: usize,
        (writer, last): (Writer, Option<Writer>),
    ) -> Result<(), String> {
        let life = self.lives.get(&writer.session);
        let life = *life.ok_or_else(|| format!("{writer:?} is let in, and nobody is that"))?;
        let number = writer.session.as_u128() as u64;
        if let Some(ended) = life.ended {
            let since = now.since(ended);
            if since > TICKET_LIFE {
                return Err(format!("session {number} is let in, {since:?} after its end"));
            }
            if self.newest.get(&export).is_some_and(|&newest| ended <= newest) {
                let what = "is let in, and ended before another began that has been let in";
                return Err(format!("session {number} {what}"));
            }
        }
        let newest = self.newest.entry(export).or_insert(life.began);
        *newest = life.began.max(*newest);
        let Some(last) = last.filter(|last| last.device != writer.device) else { return Ok(()) };
        let displaced = self.lives.get(&last.session).filter(|it| it.ended.is_none());
        let Some(displaced) = displaced else { return Ok(()) };
        let lately = self.heard.get(&last.session).map(|&heard| now.since(heard));
        if displaced.host != life.host || lately.is_none_or(|lately| lately >= SIGN_OF_LIFE) {
            return Ok(());
        }
        let former = last.session.as_u128() as u64;
        Err(format!("session {number} takes the place of {former}, which was heard {lately:?} ago"))
    }

    /// Records the death of the target, and with it of its channels.
    pub(super) fn lose_target(&mut self) {
        self.heard.clear();
    }
}

impl<R: Rules> World<R> {
    /// Records a question that is sent to the target.
    pub(super) fn witness_question(&mut self, from: Station, frame: &[u8], header: &Header) {
        if !matches!(header.kind, Kind::Discover | Kind::Hello) {
            return;
        }
        let Ok(Body::Control(pdu)) = Body::parse(header, &frame[HEAD_LEN..], &Checksums) else {
            return;
        };
        let witness = &mut self.others.witness;
        let nonce = match pdu.decode() {
            Control::Discover(discover) => {
                let longest = witness.asked.entry(discover.nonce).or_default();
                *longest = frame.len().max(*longest);
                discover.nonce
            }
            Control::Hello(hello) => hello.nonce,
            _ => return,
        };
        if matches!(from, Station::Host(_)) {
            witness.friendly.insert(nonce);
        }
    }

    /// Checks that a silent target may send an answer.
    fn check_silence(&self, control: &Control) -> Result<(), String> {
        let is_asked_for = match control {
            Control::Offer(offer) => self.others.witness.friendly.contains(&offer.nonce),
            Control::Hello(hello) => self.others.witness.friendly.contains(&hello.nonce),
            Control::Reject(_) | Control::Reset(_) => false,
            _ => true,
        };
        if !self.plan.target.silent || is_asked_for {
            return Ok(());
        }
        Err(format!("a silent target says {:?}", control.kind()))
    }

    /// Records a frame outside of channels that the target sends, and checks its length.
    pub(super) fn witness_answer(
        &mut self,
        from: Port,
        frame: &[u8],
        header: &Header,
    ) -> Result<(), String> {
        if header.kind.on_channel() {
            return Ok(());
        }
        let Ok(Body::Control(pdu)) = Body::parse(header, &frame[HEAD_LEN..], &Checksums) else {
            return Ok(());
        };
        let control = pdu.decode();
        self.check_silence(&control)?;
        let witness = &mut self.others.witness;
        match control {
            Control::Reject(rejection) => {
                witness.refused.insert(rejection.attempt);
            }
            // What it says is not seen.
            Control::SealedAnswer(answer) => {
                witness.refused.insert(answer.attempt);
            }
            Control::Offer(offer) if self.network.carrier(from) != Carrier::Ethernet => {
                let (asked, len) = (witness.asked.get(&offer.nonce).copied(), frame.len());
                if asked.is_none_or(|asked| len > asked) {
                    return Err(format!("an Offer of {len} bytes for {asked:?} bytes"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Records that a marked frame arrives.
    pub(super) fn witness_mark(&mut self, delivery: &Delivery) {
        if delivery.is_congested {
            *self.others.witness.marks.entry(delivery.to).or_default() += 1;
        }
    }

    /// Checks that a frame that tells of congestion has a cause of its own.
    pub(super) fn witness_marked(&mut self, from: Port, header: &Header) -> Result<(), String> {
        if !header.flags.contains(Flags::CONGESTED) {
            return Ok(());
        }
        match self.others.witness.marks.get_mut(&from).filter(|marks| **marks > 0) {
            Some(marks) => *marks -= 1,
            None => {
                let place = self.network.place(from);
                return Err(format!("{place} tells of congestion, and no mark is left to tell of"));
            }
        }
        Ok(())
    }

    /// Checks that a notice of a queue has its cause.
    pub(super) fn check_notice(
        &mut self,
        (index, queue): (usize, usize),
        notice: &Notice,
    ) -> Result<(), String> {
        match notice {
            Notice::Rejected(rejection) => self.check_refused(rejection.attempt, rejection.reason),
            Notice::Failed(Failure::Rejected(Reason::Denied)) if self.evictions.explain(index) => {
                Ok(())
            }
            Notice::Failed(Failure::ExportRemoved | Failure::Rejected(Reason::UnknownExport))
                if self.removals.explain(self.hosts[index].plan.export) =>
            {
                Ok(())
            }
            Notice::Failed(failure) => check_failure(*failure),
            Notice::Joined(..) => self.note_generation(index, queue),
            // An Offer, which may be anybody's, does not decide on that.
            Notice::Connected(export) if self.plan.keyed => {
                let reads = self.hosts[index].plan.read_only;
                if reads == export.geometry.read_only {
                    return Ok(());
                }
                Err(format!(
                    "host {index} may write: {}, is to: {}",
                    !export.geometry.read_only, !reads
                ))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the target has refused the attempt of a session that reports it.
    fn check_refused(&self, attempt: u64, reason: Reason) -> Result<(), String> {
        if self.others.witness.refused.contains(&attempt) {
            return Ok(());
        }
        Err(format!("a session was refused for {reason}, but not by the target"))
    }

    /// Records the generation of an export that a queue has been told; it must have existed.
    fn note_generation(&mut self, index: usize, queue: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[index].running else { return Ok(()) };
        let export = running.session.export_of(queue);
        let Some(generation) = export.map(|export| export.generation) else { return Ok(()) };
        let exported = self.volumes[self.hosts[index].plan.export].exported;
        let (content, cache) = generation.as_u64_pair();
        if content > exported.content || cache > exported.cache {
            return Err(format!("host {index} believes in {generation}, which never was"));
        }
        let number = running.number;
        let host = &mut self.hosts[index];
        let before = host.generations.insert(queue, generation).or(host.generation);
        host.generation = Some(generation);
        if before.is_some_and(|before| before != generation) {
            self.volumes[self.hosts[index].plan.export].history.tell(number);
        }
        Ok(())
    }

    /// Records that the target has taken a frame without error: its session lives.
    pub(super) fn witness_frame(&mut self, link: usize, frame: &Delivery) {
        let matters = self.others.witness.has_clones || self.plan.strangers.forger.is_some();
        let Some(header) = Header::parse(frame.head()).ok().filter(|_| matters) else { return };
        self.believe_farewell(link, &header);
        let watched = header.kind.on_channel() && self.others.witness.has_clones;
        let Some(process) = self.process.as_ref().filter(|_| watched) else { return };
        let Some(owner) = process.owner(link, header.channel) else { return };
        let session = owner.session;
        let now = self.now;
        if header.kind == Kind::Disconnect {
            return self.witness_silence();
        }
        self.others.witness.heard.insert(session, now);
    }

    /// Forgets the sessions whose last channel may have been closed by itself.
    pub(super) fn witness_silence(&mut self) {
        let witness = &mut self.others.witness;
        let Some(process) = self.process.as_ref().filter(|_| !witness.heard.is_empty()) else {
            return;
        };
        let open = |link: usize, channel| {
            let mut channels =
                process.listeners().nth(link).into_iter().flat_map(|it| it.channels());
            channels.any(|report| report.channel == channel)
        };
        let lives = |info: &SessionInfo| {
            info.channels().any(|(channel, _)| open(channel.link, channel.channel))
        };
        let registry = process.registry();
        let exports = 0..self.volumes.len();
        let sessions = exports.flat_map(|export| registry.sessions(process.key(export)));
        let living = sessions.filter(|info| lives(info));
        let living: BTreeSet<_> = living.map(|info| info.session).collect();
        witness.heard.retain(|session, _| living.contains(session));
    }
}

/// Checks the reason of a failure: the target is always there, and always the same.
fn check_failure(failure: Failure) -> Result<(), String> {
    match failure {
        Failure::TargetLost | Failure::NoProgress | Failure::WritesLost => Ok(()),
        Failure::Rejected(Reason::SessionLost | Reason::Held | Reason::NoResources) => Ok(()),
        Failure::Rejected(Reason::Cloned | Reason::NoState) => Ok(()),
        other => Err(format!("a session ended without a reason: {other}")),
    }
}
