//! The exports of a target and the sessions on them: one registry for all links of the target.
//!
//! It decides on admission. One host at a time writes an export, unless the export is shared. A
//! host that returns displaces its own former sessions. A session that was not connected while
//! another one wrote is refused. PROTOCOL.md, "Sessions, takeover and reconnect".

use arrayvec::ArrayVec;
use slotmap::SlotMap;
use tyche_wire::{
    ChannelId, Discover, ExportInfo, Fate, Fence, Name, Outcome, TAGS_MAX, Text, Uuid,
};

use crate::channel::batching::BatchPolicy;
use crate::rules::{Rule, Rules};
use crate::target_end::access::{Access, Allowed, HostId, Identity};
use crate::target_end::export::{
    ChannelRef, Closed, Export, ExportConfig, ExportKey, ExportTaken, Member, RenameRefused,
    SessionInfo, Writer,
};
use crate::target_end::pool::Pool;
use crate::target_end::requests::{Amounts, CreditNews, Outcomes};
use crate::target_end::visits::{Visit, Visits};
use crate::time::Instant;

/// Configuration of a target.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Identity of the target, the same after a restart.
    pub uuid: Uuid,
    /// Its name, for people.
    pub name: Name,
    /// Slots of a channel at most.
    pub queue_size_max: u16,
    /// Pages of a channel's `damq` at most; at least 256.
    pub damq_pages_max: u32,
    /// Pages of memory for the data and the upkeep of all channels together.
    pub memory_pages: u64,
    /// How answers share frames.
    pub batch: BatchPolicy,
}

/// The answer to a fence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FenceAnswer {
    /// The channel is not closed yet. The host asks again.
    Wait,
    /// The channel is closed; the outcomes of the requests.
    Closed(Box<ArrayVec<Outcome, TAGS_MAX>>),
    /// The channel is the asker itself, or an open channel of another session.
    Refused,
}

/// The state that all links of a target share: its exports, their sessions, and who may connect.
/// Listeners need it for handshakes, fences and the end of channels, but not for requests.
pub struct Registry {
    pub(crate) config: TargetConfig,
    pub(crate) exports: SlotMap<ExportKey, Export>,
    pub(crate) access: Access,
    /// Channels that their links have to close.
    closing: Vec<ChannelRef>,
    /// Channels that their links have to ask for a sign of life.
    asking: Vec<ChannelRef>,
    pub(crate) pool: Pool,
    pub(crate) visits: Visits,
}

impl Registry {
    /// A target without exports.
    pub fn new(config: TargetConfig) -> Self {
        assert!(config.damq_pages_max >= 256, "a request of 1 MiB needs 256 pages");
        let access = Access::default();
        let pool = Pool::new(config.memory_pages);
        let (closing, asking, visits) = (Vec::new(), Vec::new(), Visits::default());
        Self { config, exports: SlotMap::with_key(), access, closing, asking, pool, visits }
    }

    /// Adds an export.
    ///
    /// # Errors
    /// If another has its name or its UUID, also one that is removed and not erased yet: requests
    /// of it may be with the same disk.
    pub fn add_export(
        &mut self,
        now: Instant,
        config: ExportConfig,
    ) -> Result<ExportKey, ExportTaken> {
        let ExportConfig { name, uuid, .. } = config;
        for Export { config: other, .. } in self.exports.values() {
            if other.name == name {
                return Err(ExportTaken::Name(name));
            }
            if other.uuid == uuid {
                return Err(ExportTaken::Uuid(uuid));
            }
        }
        Ok(self.exports.insert(Export::new(now, config)))
    }

    /// Checks that an export can get another name: no host has it connected, and its disk is there.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check_rename(&self, key: ExportKey, name: Name) -> Result<(), RenameRefused> {
        let mut others = self.exports.iter().filter(|(other, _)| *other != key);
        let export = self.exports.get(key).filter(|export| !export.is_removed);
        let export = export.ok_or(RenameRefused::Unknown)?;
        if others.any(|(_, other)| other.config.name == name) {
            return Err(RenameRefused::Taken(ExportTaken::Name(name)));
        }
        if let Some(why) = &export.offline {
            return Err(RenameRefused::Offline(why.as_str().to_owned()));
        }
        if !export.sessions.is_empty() {
            let hosts = export.sessions.iter().map(|session| session.host_name.to_string());
            return Err(RenameRefused::InUse(hosts.collect()));
        }
        Ok(())
    }

    /// Gives an export another name, which [can be](Self::check_rename). It stays the same disk.
    /// Tickets of before do not open it.
    pub fn rename(&mut self, now: Instant, key: ExportKey, name: Name) {
        if let Some(export) = self.exports.get_mut(key) {
            (export.config.name, export.since) = (name, now);
        }
    }

    /// Removes an export: it is neither offered nor found any more, its hosts are told, and its
    /// channels are closed. Returns its sessions, which end. The export is gone when it is
    /// [erased](Self::erase_export).
    pub fn remove_export(&mut self, key: ExportKey) -> Vec<SessionInfo> {
        let Some(export) = self.exports.get_mut(key) else { return Vec::new() };
        export.is_removed = true;
        let sessions = export.sessions.clone();
        let channels = sessions.iter().flat_map(SessionInfo::channels);
        channels.for_each(|(channel, _)| self.displace(channel));
        sessions
    }

    /// Erases an export that was removed, if no channel of it is open, and no request of it is with
    /// its disk. Returns whether there is no such export any more.
    pub fn erase_export<R: Rules>(&mut self, key: ExportKey) -> bool {
        let Some(export) = self.exports.get(key) else { return true };
        let is_drained = export.sessions.is_empty() || !R::keeps(Rule::DrainBeforeRemoved);
        let is_over = export.is_removed && is_drained;
        if is_over {
            self.exports.remove(key);
        }
        is_over
    }

    /// Whether an export was removed.
    pub(crate) fn is_removed(&self, key: ExportKey) -> bool {
        self.exports.get(key).is_none_or(|export| export.is_removed)
    }

    /// The exports that were not removed.
    fn served(&self) -> impl Iterator<Item = (ExportKey, &Export)> {
        self.exports.iter().filter(|(_, export)| !export.is_removed)
    }

    /// Takes an export that has no session offline: its disk is missing, for the reason given.
    /// Hosts find it, and are refused with that reason.
    ///
    /// # Panics
    /// If it has a session, or there is no such export.
    pub fn take_offline(&mut self, key: ExportKey, why: &str) {
        let export = &mut self.exports[key];
        assert!(export.sessions.is_empty(), "an export in use has its disk");
        export.offline = Some(Text::truncated(why));
    }

    /// Brings an export online with its disk, and the last writer of that.
    ///
    /// # Panics
    /// If it was not offline, or there is no such export.
    pub fn bring_online(&mut self, key: ExportKey, config: ExportConfig, writer: Option<Writer>) {
        let export = &mut self.exports[key];
        assert!(export.offline.is_some(), "only an export without a disk gets one");
        (export.config, export.last_writer, export.offline) = (config, writer, None);
    }

    /// Why the disk of an export is missing; `None` if it is there.
    pub fn why_offline(&self, key: ExportKey) -> Option<&str> {
        self.exports.get(key)?.offline.as_ref().map(Text::as_str)
    }

    /// The hosts that may connect.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Changes who may connect, and which hosts may have these exports. Sessions that would not be
    /// let in now are closed; returns them.
    pub fn set_access(
        &mut self,
        access: Access,
        allowed: impl IntoIterator<Item = (ExportKey, Allowed)>,
    ) -> Vec<SessionInfo> {
        self.access = access;
        for (key, allowed) in allowed {
            if let Some(export) = self.exports.get_mut(key) {
                export.allowed = allowed;
            }
        }
        let keys: Vec<_> = self.exports.keys().collect();
        keys.into_iter().flat_map(|key| self.close_denied(key)).collect()
    }

    /// Changes which hosts may have an export. Sessions that would not be let in now are closed;
    /// returns them.
    pub fn set_allowed(&mut self, key: ExportKey, allowed: Allowed) -> Vec<SessionInfo> {
        let Some(export) = self.exports.get_mut(key) else { return Vec::new() };
        export.allowed = allowed;
        self.close_denied(key)
    }

    /// Whether nothing of a host is left at an export: no channel is open there, and no request is
    /// with the disk, of any session that may be the host's. That is each one that has proved to be
    /// the host or says so, and each one that would not be let in now, whoever it is: what is being
    /// closed because a host is denied may be that host without its key, or under the name or the
    /// key that it had before. While the export is offline nobody knows: a former process of the
    /// target may have its disk, and requests of the host there.
    pub fn is_drained<R: Rules>(&self, export: ExportKey, host: HostId) -> bool {
        let Some(Export { sessions, offline, .. }) = self.exports.get(export) else { return true };
        let is_left = |it: &SessionInfo| it.host.may_be(host) || !self.lets_in(export, it);
        let is_unknown = offline.is_some() || sessions.iter().any(is_left);
        !R::keeps(Rule::DrainBeforeEvicted) || !is_unknown
    }

    /// Whether a session on an export would be let in now.
    fn lets_in(&self, export: ExportKey, session: &SessionInfo) -> bool {
        let allowed = &self.exports[export].allowed;
        let host = session.key.map(|key| self.access.identify(key));
        let same = host.is_none_or(|host| host.identity(session.host.uuid()) == session.host);
        let is_allowed = self.access.check(&session.host, allowed).is_ok();
        let is_shown = allowed.shows(session.host.uuid());
        same && self.check_access(host).is_ok() && is_allowed && is_shown
    }

    /// Has the sessions on an export closed that would not be let in now; returns them.
    fn close_denied(&mut self, key: ExportKey) -> Vec<SessionInfo> {
        let sessions = self.exports[key].sessions.iter();
        let denied: Vec<_> = sessions.filter(|it| !self.lets_in(key, it)).cloned().collect();
        let channels = denied.iter().flat_map(SessionInfo::channels);
        channels.for_each(|(channel, _)| self.displace(channel));
        denied
    }

    /// The target.
    pub fn target(&self) -> &TargetConfig {
        &self.config
    }

    /// The exports, with their keys.
    pub fn exports(&self) -> impl Iterator<Item = (ExportKey, &ExportConfig)> {
        self.served().map(|(key, export)| (key, &export.config))
    }

    /// The export of that key.
    ///
    /// # Panics
    /// If there is no such export.
    pub fn export(&self, key: ExportKey) -> &ExportConfig {
        &self.exports[key].config
    }

    /// Changes the size of an export.
    pub fn resize(&mut self, key: ExportKey, size: u64) {
        if let Some(export) = self.exports.get_mut(key) {
            export.config.geometry.size = size;
        }
    }

    /// The last session that was admitted for writing. The owner keeps it over restarts, so that
    /// the next process also refuses sessions that were not connected while this one wrote.
    pub fn last_writer(&self, key: ExportKey) -> Option<Writer> {
        self.exports.get(key)?.last_writer
    }

    /// Changes the [`generation`](ExportConfig::generation) that hosts are told from now on.
    pub fn renew(&mut self, key: ExportKey, generation: Uuid) {
        if let Some(export) = self.exports.get_mut(key) {
            export.config.generation = generation;
        }
    }

    /// Restores the [`last_writer`](Self::last_writer) of the process before.
    pub fn restore_last_writer(&mut self, key: ExportKey, writer: Option<Writer>) {
        if let Some(export) = self.exports.get_mut(key) {
            export.last_writer = writer;
        }
    }

    /// The writer that is to be recorded on stable storage next, with its export. It is admitted
    /// only after [`writer_persisted`](Self::writer_persisted) reports success.
    pub fn writer_to_persist(&self) -> Option<(ExportKey, Writer)> {
        self.served().find_map(|(key, export)| Some((key, export.writer_to_persist?.0)))
    }

    /// Reports whether a writer was recorded. If not, it is refused with that reason.
    pub fn writer_persisted(&mut self, key: ExportKey, writer: Writer, result: Result<(), &str>) {
        let Some(export) = self.exports.get_mut(key) else { return };
        let Some((_, issued)) =
            export.writer_to_persist.take_if(|(writer_to_persist, _)| *writer_to_persist == writer)
        else {
            return;
        };
        match result {
            Ok(()) => (export.last_writer, export.writer_since) = (Some(writer), issued),
            Err(reason) => export.not_persisted = Some((writer, Text::truncated(reason))),
        }
    }

    /// The next session that has come or gone, for the log.
    pub fn poll_visit(&mut self) -> Option<Visit> {
        self.visits.poll()
    }

    /// The sessions on the export of that key.
    pub fn sessions(&self, key: ExportKey) -> &[SessionInfo] {
        self.exports.get(key).map_or(&[], |export| &export.sessions)
    }

    /// The exports that match a Discover and that its host may see.
    pub(crate) fn offered(&self, discover: &Discover) -> impl Iterator<Item = ExportInfo> {
        let Discover { host, uuid, name, .. } = *discover;
        self.served()
            .map(|(_, export)| export)
            .filter(move |export| export.allowed.shows(host))
            .filter(move |export| name.is_empty() || export.config.name == name)
            .filter(move |export| uuid.is_nil() || export.config.uuid == uuid)
            .map(Export::info)
    }

    /// The channels of `link` that are to be closed, because they are displaced or fenced.
    pub(crate) fn take_closing(&mut self, link: usize) -> ArrayVec<ChannelId, 16> {
        take(&mut self.closing, link)
    }

    /// The channels of `link` that are to be asked for a sign of life.
    pub(crate) fn take_asking(&mut self, link: usize) -> ArrayVec<ChannelId, 16> {
        take(&mut self.asking, link)
    }

    /// The links whose channels are to be closed or asked, or their hosts told how many pages they
    /// may use: the owner calls [`Listener::serve_requests`](crate::Listener::serve_requests) on
    /// each.
    pub fn called_links(&self) -> impl Iterator<Item = usize> {
        let called = self.closing.iter().chain(&self.asking).map(|channel| channel.link);
        called.chain(self.pool.called_links())
    }

    pub(crate) fn ask(&mut self, channel: ChannelRef) {
        if !self.asking.contains(&channel) {
            self.asking.push(channel);
        }
    }

    fn session_of(&mut self, channel: ChannelRef) -> Option<&mut SessionInfo> {
        let mut sessions = self.exports.values_mut().flat_map(|export| &mut export.sessions);
        sessions.find(|session| session.has(channel))
    }

    /// A channel that was asked has shown a sign of life.
    pub(crate) fn lives(&mut self, heard_at: Instant, channel: ChannelRef) {
        let Some(session) = self.session_of(channel) else { return };
        let members = session.channels.iter_mut();
        members.filter(|it| it.channel == channel).for_each(|it| it.lived_at = Some(heard_at));
        if let Some(contest) = session.contest.as_mut() {
            contest.note_life(heard_at);
        }
    }

    /// Notes that a channel is stalled: its frames to the host are not acknowledged. Returns
    /// whether to give it up, because another channel of the session is fine. The other channels
    /// are asked for a sign of life.
    pub(crate) fn report_stall(&mut self, now: Instant, channel: ChannelRef) -> bool {
        let Some(session) = self.session_of(channel) else { return false };
        let (mut others, mut is_other_fine) = (Vec::new(), false);
        for member in &mut session.channels {
            if member.channel == channel {
                member.stalled_at = Some(now);
            } else {
                is_other_fine |= member.is_fine(now);
                others.push(member.channel);
            }
        }
        others.into_iter().for_each(|other| self.ask(other));
        is_other_fine
    }

    pub(crate) fn displace(&mut self, channel: ChannelRef) {
        if !self.closing.contains(&channel) {
            self.closing.push(channel);
        }
    }

    /// Closes a channel that its session has lost. `asker`: the channel that the fence has come on.
    pub(crate) fn fence<R: Rules>(&mut self, asker: ChannelRef, fence: &Fence) -> FenceAnswer {
        let mut exports = self.exports.values();
        let session =
            |export: &'_ Export| export.sessions.iter().position(|session| session.has(asker));
        let Some((export, index)) = exports.find_map(|it| Some((it, session(it)?))) else {
            return FenceAnswer::Wait;
        };
        let session = &export.sessions[index];
        let named = |cookie, channel| (cookie, channel) == (fence.cookie, fence.channel);
        let mut open = session.channels.iter();
        if let Some(member) = open.find(|it| named(it.cookie, it.channel.channel)) {
            let channel = member.channel;
            if channel == asker {
                return FenceAnswer::Refused;
            }
            // A fence without requests needs no outcomes kept.
            if !fence.tags.is_empty() {
                self.note_fenced(channel);
            }
            if R::keeps(Rule::CloseBeforeFenced) {
                self.displace(channel);
            }
            let early = !R::keeps(Rule::CloseBeforeFenced) || !R::keeps(Rule::DrainBeforeFenced);
            let unknown = |&tag| Outcome { tag, fate: Fate::NotExecuted };
            let outcomes = || Box::new(fence.tags.iter().map(unknown).collect());
            return if early { FenceAnswer::Closed(outcomes()) } else { FenceAnswer::Wait };
        }
        let mut others = self.exports.values().flat_map(|export| &export.sessions);
        let is_named = |it: &Member| named(it.cookie, it.channel.channel);
        if others.any(|session| session.channels.iter().any(is_named)) {
            return FenceAnswer::Refused;
        }
        let own = (session.host, session.session);
        let closed = export.closed(own, (fence.cookie, fence.channel));
        let fate = |tag| closed.map_or(Fate::Unknown, |closed| closed.outcomes.fate(tag));
        let outcome = |&tag| Outcome { tag, fate: fate(tag) };
        FenceAnswer::Closed(Box::new(fence.tags.iter().map(outcome).collect()))
    }

    /// Takes news of a channel about the pages that its host uses. Strangers keep the least where
    /// hosts are known by their keys.
    pub(crate) fn credit(&mut self, now: Instant, channel: ChannelRef, news: CreditNews) {
        match news {
            CreditNews::Wants(_) if self.knows_hosts() && self.is_of_stranger(channel) => {}
            CreditNews::Wants(pages) => self.pool.ask(now, channel, pages),
            CreditNews::Settled(pages) => self.pool.settled(now, channel, pages),
            CreditNews::Rests => self.pool.rest(now, channel),
        }
    }

    /// Whether hosts are known by their keys.
    pub(crate) fn knows_hosts(&self) -> bool {
        !self.access.hosts.is_empty()
    }

    /// Whether a channel is of a host without a key.
    fn is_of_stranger(&self, channel: ChannelRef) -> bool {
        matches!(self.pool.host(channel), Some(Identity::Claimed(_)))
    }

    /// Notes that a session waits for the outcomes of a channel.
    fn note_fenced(&mut self, channel: ChannelRef) {
        if let Some(session) = self.session_of(channel) {
            let member = session.channels.iter_mut().find(|member| member.channel == channel);
            member.expect("it is the session's").is_fenced = true;
        }
    }

    /// Removes a closed channel, which has no requests at the disk, and has had that much done.
    /// `outcomes`: those of its requests, if its host may ask for them, and whether it has all the
    /// completions. These are kept only if it has asked already: they would displace those of
    /// others.
    pub(crate) fn closed(
        &mut self,
        export: ExportKey,
        channel: ChannelRef,
        amounts: Amounts,
        outcomes: Option<(Outcomes, bool)>,
    ) {
        self.pool.close(channel);
        let Some(export) = self.exports.get_mut(export) else { return };
        let mut sessions = export.sessions.iter_mut();
        let place = sessions.find_map(|session| {
            let at = session.channels.iter().position(|it| it.channel == channel)?;
            Some((session, at))
        });
        if let Some((session, at)) = place {
            let member = session.channels.swap_remove(at);
            session.amounts += amounts;
            if session.channels.is_empty() {
                self.visits.note(session.visit(export.config.name, member.host, true));
            }
            let (host, session, cookie) = (session.host, session.session, member.cookie);
            if let Some((outcomes, is_answered)) = outcomes
                && (!is_answered || member.is_fenced)
            {
                let channel = channel.channel;
                export.keep_outcomes(Closed { host, session, channel, cookie, outcomes });
            }
        }
        export.sessions.retain(|session| !session.channels.is_empty());
        self.closing.retain(|&closing| closing != channel);
        self.asking.retain(|&asked| asked != channel);
    }
}

/// Removes the channels of a link from a list, as many as fit, and returns them.
fn take(list: &mut Vec<ChannelRef>, link: usize) -> ArrayVec<ChannelId, 16> {
    let mut taken = ArrayVec::new();
    list.retain(|channel| {
        let mine = channel.link == link && !taken.is_full();
        if mine {
            taken.push(channel.channel);
        }
        !mine
    });
    taken
}
