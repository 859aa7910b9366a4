//! Admission: whether a Connect is granted, has to wait, or is refused. PROTOCOL.md, "Sessions,
//! takeover and reconnect".

use arrayvec::ArrayVec;
use tyche_wire::{CREDIT_MIN, Connect, ConnectFlags, Cookie, Mac, Name, Reason, Text};

use crate::rules::{Rule, Rules};
use crate::target_end::access::{Access, Identity, Proven};
use crate::target_end::contest::{Contest, Contested};
use crate::target_end::export::{ChannelRef, Export, ExportKey, Member, SessionInfo, Writer};
use crate::target_end::pool::Room;
use crate::target_end::registry::Registry;
use crate::target_end::requests::Amounts;
use crate::time::Instant;

/// Sessions of one host on an export at once.
const SESSIONS_PER_HOST_MAX: usize = 16;
/// Channels of a session at once.
const CHANNELS_PER_SESSION_MAX: usize = 256;

/// The least pages of a channel: those of the longest request.
const DAMQ_PAGES_MIN: u32 = 256;
/// Where hosts are known by their keys, those without one have this part of the memory.
const STRANGERS_PART: u64 = 4;

/// The verdict on a Connect.
#[derive(Debug)]
pub(crate) enum Admission {
    /// A channel is opened.
    Granted(Grant),
    /// Other channels have to be closed first, or asked for a sign of life. The host repeats its
    /// Connect.
    Wait,
    /// The writer has to be recorded on stable storage first.
    Keep,
    /// Older than what the registry knows, or in contradiction to it: not answered.
    Stale,
    /// Refused, with the reason.
    Refused(Reason, Box<Text<128>>),
}

/// The parameters of a new channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) export: ExportKey,
    pub(crate) writer: bool,
    pub(crate) queue_size: u16,
    pub(crate) damq_pages: u32,
    /// Pages of it that the host may use at once.
    pub(crate) credit: u32,
}

/// The result of a check: an error ends admission.
type Verdict = Result<(), Admission>;

fn refused(reason: Reason) -> Admission {
    Admission::Refused(reason, Box::new(Text::EMPTY))
}

fn names(session: &SessionInfo) -> Box<Text<128>> {
    Box::new(Text::truncated(&format!("{} ({})", session.host_name, session.host.uuid())))
}

/// A Connect with the time at which its ticket was issued.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) connect: &'a Connect,
    pub(crate) issued: Instant,
    /// The host, if it has proved who it is.
    pub(crate) host: Option<Proven>,
    /// Whether the host may write to the `damq` by itself: all of it is locked then.
    pub(crate) places: bool,
    /// The name that this target must have; empty if it was not named by a name.
    pub(crate) target_name: Name,
    /// The name that the export must have; empty if it was named by its UUID alone.
    pub(crate) export_name: Name,
}

impl Request<'_> {
    fn wants_to_write(&self) -> bool {
        !self.connect.flags.contains(ConnectFlags::READ_ONLY)
    }

    /// The identity of the host: by its key if it has proved one, else what it claims.
    pub(crate) fn identity(&self) -> Identity {
        let claimed = self.connect.host;
        self.host.map_or(Identity::Claimed(claimed), |host| host.identity(claimed))
    }

    /// The host's name: the one that the target has for it, else what it says.
    pub(crate) fn host_name(&self) -> Name {
        self.host.and_then(|host| host.name).unwrap_or(self.connect.host_name)
    }

    fn resumes(&self) -> bool {
        self.connect.flags.contains(ConnectFlags::RESUME)
    }

    fn writer(&self) -> Writer {
        let Connect { session, device, .. } = *self.connect;
        Writer { session, device, host: Some(self.identity()) }
    }

    /// Whether that is a session of this host.
    fn is_of(&self, session: &SessionInfo) -> bool {
        session.host == self.identity()
    }

    /// Whether that is the session that asks.
    fn is_of_session(&self, session: &SessionInfo) -> bool {
        self.is_of(session) && session.session == self.connect.session
    }
}

impl Writer {
    /// Whether that host may have written.
    fn may_be(&self, host: Identity) -> bool {
        self.host.is_none_or(|own| own == host)
    }
}

impl Registry {
    /// Decides on a Connect.
    pub(crate) fn admit<R: Rules>(&mut self, now: Instant, request: Request<'_>) -> Admission {
        match self.try_admit::<R>(now, request) {
            Ok(grant) => Admission::Granted(grant),
            Err(admission) => admission,
        }
    }

    fn try_admit<R: Rules>(
        &mut self,
        now: Instant,
        request: Request<'_>,
    ) -> Result<Grant, Admission> {
        let Request { connect, export_name, .. } = request;
        self.check_access(request.host)?;
        self.check_target(request.target_name)?;
        let known = |export: &Export| {
            !export.is_removed
                && export.config.uuid == connect.export
                && (export_name.is_empty() || export.config.name == export_name)
                && export.allowed.shows(connect.host)
        };
        let (key, export) = self
            .exports
            .iter_mut()
            .find(|(_, export)| known(export))
            .ok_or(refused(Reason::UnknownExport))?;
        export.check_allowed(request.identity(), &self.access)?;
        export.check_online()?;
        let mut writer = request.wants_to_write();
        if writer && export.config.geometry.read_only {
            // Others have asked whether it is: those with a key trust no Offer.
            if request.host.is_none() {
                return Err(refused(Reason::ReadOnly));
            }
            writer = false;
        }
        let guarded = writer && !export.config.shared;
        export.check_session(request)?;
        export.check_followed::<R>(request, guarded)?;
        let displaced = export.displaced_by::<R>(now, request, guarded);
        self.call(key, displaced)?;
        let export = &mut self.exports[key];
        export.check_room(request)?;
        let (damq_pages, credit) = self.room(now, request)?;
        let export = &mut self.exports[key];
        if guarded && R::keeps(Rule::KeepWriter) {
            export.check_kept(request)?;
        }
        Ok(Grant {
            export: key,
            writer,
            queue_size: connect.queue_size.min(self.config.queue_size_max),
            damq_pages,
            credit,
        })
    }

    /// The pages of the `damq` of a new channel, and those of them that its host may use at once:
    /// the least, or all of them if it writes there by itself. Where hosts are known by their keys,
    /// those without one have a quarter of the memory together.
    fn room(&mut self, now: Instant, request: Request<'_>) -> Result<(u32, u32), Admission> {
        let most = request.connect.damq_pages.min(self.config.damq_pages_max);
        if request.host.is_none()
            && self.knows_hosts()
            && self.pool.of_strangers() >= self.config.memory_pages / STRANGERS_PART
        {
            return Err(refused(Reason::NoResources));
        }
        let fixed = most.min(u32::try_from(self.pool.room_for_good()).unwrap_or(u32::MAX));
        let (most, credit) = if request.places {
            (fixed.max(DAMQ_PAGES_MIN), fixed.max(DAMQ_PAGES_MIN))
        } else {
            (most.max(DAMQ_PAGES_MIN), CREDIT_MIN)
        };
        match self.pool.room(now, credit) {
            Room::Free => Ok((most, credit)),
            Room::Soon => Err(Admission::Wait),
            Room::None => Err(refused(Reason::NoResources)),
        }
    }

    /// Records a channel that was opened as granted.
    pub(crate) fn opened<R: Rules>(
        &mut self,
        request: Request<'_>,
        grant: Grant,
        channel: ChannelRef,
        (host, cookie): (Mac, Cookie),
    ) {
        let Request { connect, issued, .. } = request;
        let Connect { session, device, channel: index, cookie: host_cookie, .. } = *connect;
        let (lived_at, stalled_at) = (None, None);
        let member = Member {
            channel,
            host,
            index,
            host_cookie,
            cookie,
            issued,
            lived_at,
            stalled_at,
            is_fenced: false,
        };
        self.pool.open(channel, request.identity(), grant.credit);
        let export = &mut self.exports[grant.export];
        if grant.writer && !R::keeps(Rule::KeepWriter) && !export.config.shared {
            // A build without the rule records the writer later, if at all.
            let writer = request.writer();
            (export.last_writer, export.writer_since) = (Some(writer), issued);
            export.writer_to_persist = Some((writer, issued));
        }
        let known = export.sessions.iter_mut().find(|known| request.is_of_session(known));
        if let Some(session) = known {
            session.writer |= grant.writer && R::keeps(Rule::NoteHolder);
            session.channels.push(member);
            // Any of its channels may show the sign of life, also the new one.
            if session.contest.is_some() {
                self.ask(channel);
            }
            return;
        }
        export.takeovers.note(request.identity(), connect, issued);
        let come = SessionInfo {
            session,
            device,
            host: request.identity(),
            host_name: request.host_name(),
            key: request.host.map(|it| it.key),
            writer: grant.writer,
            since: issued,
            channels: vec![member],
            amounts: Amounts::default(),
            is_displaced: false,
            contest: None,
        };
        self.visits.note(come.visit(export.config.name, member.host, false));
        export.sessions.push(come);
    }

    /// Checks whether the target lets the host in at all.
    pub(crate) fn check_access(&self, host: Option<Proven>) -> Verdict {
        match host {
            None if self.access().required => Err(refused(Reason::KeyRequired)),
            Some(Proven { key, name: None }) => {
                let detail = format!("the target does not know the key {key}");
                Err(Admission::Refused(Reason::Denied, Box::new(Text::truncated(&detail))))
            }
            _ => Ok(()),
        }
    }

    /// Checks that this is the target that the host has named: another one may have the same key.
    fn check_target(&self, wanted: Name) -> Verdict {
        let own = self.target().name;
        if wanted.is_empty() || wanted == own {
            return Ok(());
        }
        let detail = Text::truncated(&format!("this is target `{own}`"));
        Err(Admission::Refused(Reason::OtherTarget, Box::new(detail)))
    }

    /// Passes closings and questions for a sign of life on to the links of the channels.
    fn call(&mut self, export: ExportKey, displaced: Result<Displaced, Admission>) -> Verdict {
        match displaced? {
            Displaced::None => Ok(()),
            Displaced::Close(channels) => {
                channels.into_iter().for_each(|channel| self.displace(channel));
                Err(Admission::Wait)
            }
            Displaced::Ask(session) => {
                let channels = self.exports[export].sessions[session].channels.iter();
                let channels: ArrayVec<_, CHANNELS_PER_SESSION_MAX> =
                    channels.map(|member| member.channel).collect();
                channels.into_iter().for_each(|channel| self.ask(channel));
                Err(Admission::Wait)
            }
        }
    }
}

/// The channels that a Connect displaces.
enum Displaced {
    None,
    Close(Vec<ChannelRef>),
    /// None yet: the session of that index is asked for a sign of life first.
    Ask(usize),
}

impl Export {
    /// Checks whether the export has its disk.
    fn check_online(&self) -> Verdict {
        match &self.offline {
            None => Ok(()),
            Some(why) => Err(Admission::Refused(Reason::Offline, Box::new(*why))),
        }
    }

    /// Checks whether the host is among those that may have the export.
    fn check_allowed(&self, host: Identity, access: &Access) -> Verdict {
        access.check(&host, &self.allowed).map_err(|reason| match reason {
            Reason::Denied => {
                let detail = format!("{} may not have {}", host.host_id(), self.config.name);
                Admission::Refused(reason, Box::new(Text::truncated(&detail)))
            }
            reason => refused(reason),
        })
    }

    /// Checks that a known session has the same device as before, and that no other of its channels
    /// has the cookie.
    fn check_session(&self, request: Request<'_>) -> Verdict {
        let connect = request.connect;
        let mut sessions = self.sessions.iter();
        let Some(session) = sessions.find(|it| request.is_of_session(it)) else { return Ok(()) };
        let fits = session.device == connect.device;
        let reuses = |member: &Member| {
            member.host_cookie == connect.cookie && member.index != connect.channel
        };
        if fits && !session.channels.iter().any(reuses) { Ok(()) } else { Err(Admission::Stale) }
    }

    /// Checks that no other session has written since this session, or the former session of its
    /// device, was connected; and that no other host writes now.
    fn check_followed<R: Rules>(&self, request: Request<'_>, guarded: bool) -> Verdict {
        let (connect, host) = (request.connect, request.identity());
        let is_late =
            request.issued < self.since || self.takeovers.is_late(host, connect, request.issued);
        if R::keeps(Rule::CheckOrder) && is_late {
            return Err(Admission::Stale);
        }
        if R::keeps(Rule::CloseFormer) && self.is_outlived(request) {
            return Err(refused(Reason::SessionLost));
        }
        if !guarded {
            return Ok(());
        }
        // An unknown last writer may mean that nobody has written, or that the target has lost its
        // record. So a session that resumes is refused then.
        let last = self.last_writer;
        let own = last.filter(|last| last.may_be(host));
        let lost = if request.resumes() {
            own.is_none_or(|last| last.session != connect.session)
        } else {
            connect.device != connect.session
                && own.is_none_or(|last| last.device != connect.device)
        };
        if lost && R::keeps(Rule::RefuseFollowed) {
            return Err(refused(Reason::SessionLost));
        }
        let is_older = last
            .is_some_and(|last| last.session != connect.session || !last.may_be(host))
            && request.issued < self.writer_since;
        if is_older && R::keeps(Rule::CheckOrder) {
            return Err(Admission::Stale);
        }
        let holder = self.sessions.iter().find(|it| it.writer && !request.is_of(it));
        holder.map_or(Ok(()), |holder| Err(Admission::Refused(Reason::Held, names(holder))))
    }

    /// Whether another session has taken over the device, and is connected.
    fn is_outlived(&self, request: Request<'_>) -> bool {
        let connect = request.connect;
        let mut devices = self.sessions.iter().filter(|other| request.is_of(other));
        request.resumes()
            && devices.any(|it| it.device == connect.device && it.session != connect.session)
    }

    /// The channels that a Connect displaces: the one of the same session with the same index; all
    /// of the device's former sessions; and, if the session is to write, all of another writing
    /// session of the host that shows no sign of life. None of them may be newer than the Connect.
    fn displaced_by<R: Rules>(
        &mut self,
        now: Instant,
        request: Request<'_>,
        guarded: bool,
    ) -> Result<Displaced, Admission> {
        let connect = request.connect;
        let mut closed = Vec::new();
        for (index, session) in self.sessions.iter_mut().enumerate() {
            if !request.is_of(session) {
                continue;
            }
            let same = session.session == connect.session;
            let former = session.device == connect.device;
            let rival = !former && session.writer && guarded;
            if !(same || rival || (former && R::keeps(Rule::CloseFormer))) {
                continue;
            }
            let in_the_way = |it: &&Member| !same || it.index == connect.channel;
            let channels = session.channels.iter().filter(in_the_way);
            if channels.clone().any(|it| it.issued > request.issued) && R::keeps(Rule::CheckOrder) {
                return Err(Admission::Stale);
            }
            if rival && R::keeps(Rule::ProbeHolder) && !session.channels.is_empty() {
                match Contest::ask(&mut session.contest, now) {
                    Contested::Lives => {
                        return Err(Admission::Refused(Reason::Cloned, names(session)));
                    }
                    Contested::Asked => return Ok(Displaced::Ask(index)),
                    Contested::Silent => {}
                }
            }
            session.is_displaced |= !same;
            let channels = session.channels.iter().filter(in_the_way);
            closed.extend(channels.map(|it| it.channel));
        }
        Ok(if closed.is_empty() { Displaced::None } else { Displaced::Close(closed) })
    }

    fn check_room(&self, request: Request<'_>) -> Verdict {
        let of_host = self.sessions.iter().filter(|session| request.is_of(session));
        let room = match of_host.clone().find(|session| request.is_of_session(session)) {
            Some(session) => session.channels.len() < CHANNELS_PER_SESSION_MAX,
            None => of_host.count() < SESSIONS_PER_HOST_MAX,
        };
        if room { Ok(()) } else { Err(refused(Reason::NoResources)) }
    }

    /// Checks that the writer is recorded on stable storage: the next run of the target must refuse
    /// an earlier writer, too.
    fn check_kept(&mut self, request: Request<'_>) -> Verdict {
        let writer = request.writer();
        if self.last_writer == Some(writer) {
            return Ok(());
        }
        if let Some((failed, detail)) = self.not_persisted.take()
            && failed == writer
        {
            return Err(Admission::Refused(Reason::NoState, Box::new(detail)));
        }
        self.writer_to_persist = Some((writer, request.issued));
        Err(Admission::Keep)
    }
}

#[cfg(test)]
mod tests;
