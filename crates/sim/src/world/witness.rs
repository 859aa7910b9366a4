//! What sessions may come to: who is let in for writing, and why a session ends.
//!
//! - Who has ended is not let in once a session that began later was: what is late of the former,
//!   and what somebody repeats of it, takes nothing from the other. Nor is anybody let in later
//!   than a ticket is good for.
//! - A living session that the target has just heard is not displaced by another of a host with
//!   the same UUID, unless it is the same device that goes on.
//! - A session is refused only by the target, and gets no other reasons to end than there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_proto::{Failure, Instant, Rules, SessionEvent, SessionInfo, Writer};
use tyche_wire::{Body, Checksums, Control, HEAD_LEN, Header, Kind, Reason, Uuid};

use super::World;
use crate::host::uuid;
use crate::network::Delivery;

/// How long a ticket is good for.
const TICKET_LIFE: Duration = Duration::from_secs(5);
/// How long a session that another of its host wants to displace has to show that it lives.
const SIGN_OF_LIFE: Duration = Duration::from_millis(200);

/// What is known of a session.
#[derive(Clone, Copy, Debug)]
struct Life {
    host: Uuid,
    began: Instant,
    ended: Option<Instant>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Witness {
    lives: BTreeMap<Uuid, Life>,
    /// When the target last took a frame of those that have channels there, if that matters.
    heard: BTreeMap<Uuid, Instant>,
    /// When the latest session began that was let in for writing, by export.
    newest: BTreeMap<usize, Instant>,
    /// Attempts that the target has refused.
    refused: BTreeSet<u64>,
    /// Two hosts have the same UUID.
    has_clones: bool,
}

impl Witness {
    pub(super) fn new(has_clones: bool) -> Self {
        Self { has_clones, ..Self::default() }
    }

    /// A host begins a session.
    pub(super) fn begin(&mut self, now: Instant, host: Uuid, session: Uuid) {
        self.lives.insert(session, Life { host, began: now, ended: None });
    }

    /// Nothing more is sent for a session.
    pub(super) fn end(&mut self, now: Instant, session: u64) {
        if let Some(life) = self.lives.get_mut(&uuid(2, session)) {
            life.ended.get_or_insert(now);
        }
    }

    /// The target is about to let a session in for writing; `last`: who was let in before.
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

    /// The target has died, and its channels with it.
    pub(super) fn lose_target(&mut self) {
        self.heard.clear();
    }
}

impl<R: Rules> World<R> {
    /// The target sends a frame of no channel.
    pub(super) fn witness_answer(&mut self, frame: &[u8], header: &Header) {
        if header.kind != Kind::Reject {
            return;
        }
        if let Ok(Body::Control(pdu)) = Body::parse(header, &frame[HEAD_LEN..], &Checksums)
            && let Control::Reject(rejection) = pdu.decode()
        {
            self.others.witness.refused.insert(rejection.attempt);
        }
    }

    /// What happened to a session has its cause.
    pub(super) fn check_event(&mut self, index: usize, event: &SessionEvent) -> Result<(), String> {
        match event {
            SessionEvent::Rejected(rejection) => {
                self.check_refused(rejection.attempt, rejection.reason)
            }
            SessionEvent::Failed(failure) => check_failure(*failure),
            SessionEvent::Joined(..) => self.note_generation(index),
            _ => Ok(()),
        }
    }

    /// A session says that it was refused.
    fn check_refused(&self, attempt: u64, reason: Reason) -> Result<(), String> {
        if self.others.witness.refused.contains(&attempt) {
            return Ok(());
        }
        Err(format!("a session was refused for {reason}, but not by the target"))
    }

    /// A session is told a generation of what is served; it believes in none that never was.
    fn note_generation(&mut self, index: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[index].running else { return Ok(()) };
        let Some(boot) = running.session.export().map(|export| export.boot) else { return Ok(()) };
        let exported = self.volumes[self.hosts[index].plan.export].exported;
        let (content, cache) = boot.as_u64_pair();
        if content > exported.content || cache > exported.cache {
            return Err(format!("host {index} believes in {boot}, which never was"));
        }
        let number = running.number;
        let before = self.hosts[index].boot.replace(boot);
        if before.is_some_and(|before| before != boot) {
            self.volumes[self.hosts[index].plan.export].history.tell(number);
        }
        Ok(())
    }

    /// The target has taken a frame with nothing wrong: its session lives.
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

    /// Channels may have been closed by themselves: whose last one it was does not live there.
    pub(super) fn witness_silence(&mut self) {
        let witness = &mut self.others.witness;
        let Some(process) = self.process.as_ref().filter(|_| !witness.heard.is_empty()) else {
            return;
        };
        let open = |link: usize, channel| {
            process.listeners[link].channels().any(|report| report.channel == channel)
        };
        let lives = |info: &SessionInfo| {
            info.channels().any(|(channel, _)| open(channel.link, channel.channel))
        };
        let sessions = (0..self.volumes.len()).flat_map(|it| process.registry.sessions(it));
        let living = sessions.filter(|info| lives(info));
        let living: BTreeSet<_> = living.map(|info| info.session).collect();
        witness.heard.retain(|session, _| living.contains(session));
    }
}

/// The target is always there, and always the same.
fn check_failure(failure: Failure) -> Result<(), String> {
    match failure {
        Failure::TargetLost | Failure::NoProgress | Failure::WritesLost => Ok(()),
        Failure::Rejected(Reason::SessionLost | Reason::Held | Reason::NoResources) => Ok(()),
        Failure::Rejected(Reason::Cloned | Reason::NoState) => Ok(()),
        other => Err(format!("a session ended without a reason: {other}")),
    }
}
