//! An export of a target, and the sessions on it.

use std::collections::VecDeque;
use std::time::Duration;

use slotmap::new_key_type;
use tyche_crypto::PublicKey;
use tyche_wire::{ChannelId, Cookie, ExportInfo, Geometry, Mac, Name, Text, Uuid};

use crate::target_end::access::{Allowed, Identity};
use crate::target_end::contest::Contest;
use crate::target_end::requests::{Amounts, Outcomes};
use crate::target_end::takeovers::Takeovers;
use crate::target_end::visits::Visit;
use crate::time::Instant;

/// Closed channels of an export whose outcomes are kept for fences. Fewer: outcomes are forgotten
/// sooner, and requests of a lost channel may be executed twice.
const CLOSED_MAX: usize = 256;

/// How long a sign of life of a channel allows to give up a stalled channel of the same session.
const LIFE_COUNTS: Duration = Duration::from_millis(200);

new_key_type! {
    /// Key of an export at its target, for as long as the target runs. An export that is added
    /// later has another key, also if it has the name and the disk of one that was removed.
    pub struct ExportKey;
}

/// One export.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// Its name, unique at the target.
    pub name: Name,
    /// Its identity, the same as long as it is the same disk.
    pub uuid: Uuid,
    /// Generation of the export: completed writes survive without a flush while it stays the same.
    pub generation: Uuid,
    /// The disk.
    pub geometry: Geometry,
    /// Several hosts may write at once.
    pub shared: bool,
}

/// A session that was admitted for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The session.
    pub session: Uuid,
    /// The device that it serves.
    pub device: Uuid,
    /// Its host. `None` in a record of a release that did not keep it: any.
    pub host: Option<Identity>,
}

/// A channel of the target, among all its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelRef {
    /// Index of its listener: [`ListenerConfig::link`](crate::ListenerConfig::link).
    pub link: usize,
    /// Index of the channel at that listener.
    pub channel: ChannelId,
}

/// A session on an export.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The session.
    pub session: Uuid,
    /// The device that it serves.
    pub device: Uuid,
    /// Its host.
    pub host: Identity,
    /// The host's name; that which the target has for it, if it has proved who it is.
    pub host_name: Name,
    /// The key with which it has proved that.
    pub key: Option<PublicKey>,
    /// Whether it may write.
    pub writer: bool,
    /// When it came.
    pub since: Instant,
    pub(crate) channels: Vec<Member>,
    /// Its amounts on channels that are closed.
    pub(crate) amounts: Amounts,
    /// Whether another session of its host takes its place.
    pub(crate) is_displaced: bool,
    /// Whether another session of the same host wants to displace it, and its signs of life.
    pub(crate) contest: Option<Contest>,
}

/// A channel of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) channel: ChannelRef,
    pub(crate) host: Mac,
    /// The host's index of the channel, and the cookie of frames to the host.
    pub(crate) index: ChannelId,
    pub(crate) host_cookie: Cookie,
    /// The cookie of frames to the target.
    pub(crate) cookie: Cookie,
    /// When the ticket of its Connect was issued.
    pub(crate) issued: Instant,
    /// When it last showed a sign of life that it was asked for.
    pub(crate) lived_at: Option<Instant>,
    /// When its link last reported that its frames are not acknowledged.
    pub(crate) stalled_at: Option<Instant>,
    /// Whether a fence has come for it.
    pub(crate) is_fenced: bool,
}

impl Member {
    /// Whether it has shown a sign of life lately, and is not stalled.
    pub(crate) fn is_fine(&self, now: Instant) -> bool {
        let lately = |at: Option<Instant>| at.is_some_and(|at| now.since(at) < LIFE_COUNTS);
        lately(self.lived_at) && !lately(self.stalled_at)
    }
}

impl SessionInfo {
    /// The session's channels, with the addresses that they lead to.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelRef, Mac)> {
        self.channels.iter().map(|member| (member.channel, member.host))
    }

    /// Its coming to an export, or its end, by a channel that leads to that address.
    pub(crate) fn visit(&self, export: Name, from: Mac, is_over: bool) -> Visit {
        let &Self { session, host, host_name, key, writer, since, amounts, is_displaced, .. } =
            self;
        let (host, left_out) = (host.uuid(), 0);
        Visit {
            export,
            session,
            host,
            host_name,
            key,
            writer,
            from,
            since,
            is_over,
            is_displaced,
            amounts,
            left_out,
        }
    }

    pub(crate) fn has(&self, channel: ChannelRef) -> bool {
        self.channels.iter().any(|member| member.channel == channel)
    }
}

/// A closed channel without requests at the disk.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) host: Identity,
    pub(crate) session: Uuid,
    pub(crate) channel: ChannelId,
    pub(crate) cookie: Cookie,
    pub(crate) outcomes: Outcomes,
}

/// Reasons why an export is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportTaken {
    /// Another export has the name, or one that is being removed.
    Name(Name),
    /// Another export has the UUID, or one that is being removed.
    Uuid(Uuid),
}

impl std::fmt::Display for ExportTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "there is an export `{name}`"),
            Self::Uuid(uuid) => write!(f, "there is an export with the UUID {uuid}"),
        }?;
        f.write_str(": remove it first, and wait until its requests are done")
    }
}

impl std::error::Error for ExportTaken {}

/// Why an export can't get another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenameRefused {
    /// There is no such export.
    Unknown,
    /// Another export has the name, or one that is being removed.
    Taken(ExportTaken),
    /// These hosts have it connected, and know it by its name.
    InUse(Vec<String>),
    /// Its disk is missing, for this reason.
    Offline(String),
}

/// An export in the registry, with its sessions.
pub(crate) struct Export {
    pub(crate) config: ExportConfig,
    /// When it was added. Tickets of before are for another export of that name, if any.
    pub(crate) since: Instant,
    /// It is neither offered nor found, and is erased when its last channel is.
    pub(crate) is_removed: bool,
    pub(crate) sessions: Vec<SessionInfo>,
    /// The last session that was admitted for writing, as recorded on stable storage.
    pub(crate) last_writer: Option<Writer>,
    /// When the ticket of the last writer's first channel in this run was issued.
    pub(crate) writer_since: Instant,
    /// A session that is to be recorded as the last writer, with the time of its ticket.
    pub(crate) writer_to_persist: Option<(Writer, Instant)>,
    /// A session that could not be recorded, and why.
    pub(crate) not_persisted: Option<(Writer, Text<128>)>,
    /// Closed channels whose outcomes a fence may ask for.
    closed: VecDeque<Closed>,
    /// Why its disk is missing, if it is: no session is admitted.
    pub(crate) offline: Option<Text<128>>,
    pub(crate) allowed: Allowed,
    pub(crate) takeovers: Takeovers,
}

impl Export {
    /// An export without sessions, for all hosts.
    pub(crate) fn new(now: Instant, config: ExportConfig) -> Self {
        Self {
            config,
            since: now,
            is_removed: false,
            sessions: Vec::new(),
            last_writer: None,
            writer_since: Instant(0),
            writer_to_persist: None,
            not_persisted: None,
            closed: VecDeque::new(),
            offline: None,
            allowed: Allowed::default(),
            takeovers: Takeovers::default(),
        }
    }

    /// The export, as hosts find it.
    pub(crate) fn info(&self) -> ExportInfo {
        let ExportConfig { name, uuid, geometry, shared, .. } = self.config;
        let held = self.sessions.iter().any(|session| session.writer);
        ExportInfo { name, uuid, geometry, held, shared }
    }

    /// Keeps the outcomes of a closed channel.
    pub(crate) fn keep_outcomes(&mut self, closed: Closed) {
        if self.closed.len() == CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back(closed);
    }

    /// The closed channel of a session that had this cookie, if its outcomes are known.
    pub(crate) fn closed(
        &self,
        (host, session): (Identity, Uuid),
        (cookie, channel): (Cookie, ChannelId),
    ) -> Option<&Closed> {
        let is_it = |it: &&Closed| {
            (it.host, it.session, it.cookie, it.channel) == (host, session, cookie, channel)
        };
        self.closed.iter().find(is_it)
    }
}
