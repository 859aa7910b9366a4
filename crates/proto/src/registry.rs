//! What a target exports, and who is connected to it: one registry for all links of the target.
//!
//! It decides who gets in. One host at a time writes an export unless it is shared on purpose; a
//! host that comes back takes over from its former self; a session that was away while another
//! host wrote does not get back in. PROTOCOL.md, "Sessions, takeover and reconnect".

use arrayvec::ArrayVec;
use tyche_wire::{
    AcceptFlags, ChannelId, Connect, ConnectFlags, Cookie, ExportFlags, ExportInfo, Fence, Mac,
    Name, Reason, Text, Uuid,
};

use crate::batching::BatchPolicy;
use crate::rules::Rules;

/// One export.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// Its name, unique at the target.
    pub name: Name,
    /// Its identity, the same as long as it is the same disk.
    pub uuid: Uuid,
    /// Identity of the time in which completed writes survive without a flush. Another one means
    /// that they may be lost.
    pub boot: Uuid,
    /// Bytes.
    pub size: u64,
    /// 512 or 4096.
    pub block_size: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Completed writes may be volatile until the next flush.
    pub write_cache: bool,
    /// Discard does something.
    pub discard: bool,
    /// Seeks take time: the data are on disks that turn.
    pub rotational: bool,
    /// Several hosts may write at once.
    pub shared: bool,
    /// The hosts that may connect; empty: all.
    pub hosts: Vec<Uuid>,
}

/// The target itself.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Identity of the target, the same after a restart.
    pub uuid: Uuid,
    /// Its name, for people.
    pub name: Name,
    /// Slots that a channel gets at most.
    pub queue_size_max: u16,
    /// Pages of a channel's `damq` at most; at least 256.
    pub damq_pages_max: u32,
    /// Channels that all sessions have at most.
    pub channels_max: usize,
    /// How answers share frames.
    pub batch: BatchPolicy,
}

/// A channel of the target, among all its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelRef {
    /// Index of the link.
    pub link: usize,
    /// Index of the channel on that link.
    pub channel: ChannelId,
}

/// Who was let in to write an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The session.
    pub session: Uuid,
    /// The device that it serves.
    pub device: Uuid,
}

/// Who is connected to an export.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The session.
    pub session: Uuid,
    /// The device that it serves.
    pub device: Uuid,
    /// Its host.
    pub host: Uuid,
    /// The host's name.
    pub host_name: Name,
    /// Whether it may write.
    pub writer: bool,
    channels: Vec<Member>,
}

/// A channel of a session.
#[derive(Clone, Copy, Debug)]
struct Member {
    channel: ChannelRef,
    host: Mac,
    /// The host's index of the channel.
    index: ChannelId,
    cookie: Cookie,
}

impl SessionInfo {
    /// The session's channels, with the addresses that they lead to.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelRef, Mac)> {
        self.channels.iter().map(|member| (member.channel, member.host))
    }
}

struct Export {
    config: ExportConfig,
    sessions: Vec<SessionInfo>,
    /// The last session that was let in for writing.
    last_writer: Option<Writer>,
}

/// The answer to a connect.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Let it in.
    Granted(Grant),
    /// Not yet: other channels have to be closed first. The host asks again.
    Wait,
    /// Never mind.
    Refused(Reason, Text<128>),
}

/// What a new channel gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) export: usize,
    pub(crate) writer: bool,
    pub(crate) queue_size: u16,
    pub(crate) damq_pages: u32,
}

/// See the module.
pub struct Registry {
    config: TargetConfig,
    exports: Vec<Export>,
    /// Channels that their links have to close.
    closing: Vec<ChannelRef>,
}

impl Registry {
    /// A target without exports.
    pub fn new(config: TargetConfig) -> Self {
        assert!(config.damq_pages_max >= 256, "a request of 1 MiB needs 256 pages");
        Self { config, exports: Vec::new(), closing: Vec::new() }
    }

    /// Adds an export; returns its index.
    pub fn add_export(&mut self, config: ExportConfig) -> usize {
        self.exports.push(Export { config, sessions: Vec::new(), last_writer: None });
        self.exports.len() - 1
    }

    /// The target.
    pub fn target(&self) -> &TargetConfig {
        &self.config
    }

    /// The exports, by index.
    pub fn exports(&self) -> impl ExactSizeIterator<Item = &ExportConfig> {
        self.exports.iter().map(|export| &export.config)
    }

    /// The export of that index.
    pub fn export(&self, index: usize) -> &ExportConfig {
        &self.exports[index].config
    }

    /// Changes the size of an export.
    pub fn resize(&mut self, index: usize, size: u64) {
        self.exports[index].config.size = size;
    }

    /// The last session that was let in for writing. It has to outlive the target's process: a
    /// session that was away while another wrote must be refused by the next process too.
    pub fn last_writer(&self, index: usize) -> Option<Writer> {
        self.exports[index].last_writer
    }

    /// From now on hosts are told another [`boot`](ExportConfig::boot).
    pub fn renew(&mut self, index: usize, boot: Uuid) {
        self.exports[index].config.boot = boot;
    }

    /// Says what [`last_writer`](Self::last_writer) said in the process before.
    pub fn restore_last_writer(&mut self, index: usize, writer: Option<Writer>) {
        self.exports[index].last_writer = writer;
    }

    /// Who is connected to the export of that index.
    pub fn sessions(&self, index: usize) -> &[SessionInfo] {
        &self.exports[index].sessions
    }

    /// What an offer to `host` says: the exports that it may see, or the one of that name.
    pub(crate) fn offered(&self, host: Uuid, name: &Name) -> impl Iterator<Item = ExportInfo> {
        self.exports
            .iter()
            .filter(move |export| export.admits(host))
            .filter(|export| name.is_empty() || export.config.name == *name)
            .map(Export::info)
    }

    /// The channels of `link` that must be closed so that others can get in.
    pub fn take_closing(&mut self, link: usize) -> ArrayVec<ChannelId, 16> {
        let mut taken = ArrayVec::new();
        self.closing.retain(|channel| {
            let mine = channel.link == link && !taken.is_full();
            if mine {
                taken.push(channel.channel);
            }
            !mine
        });
        taken
    }

    /// The links that have channels to close.
    pub fn closing_links(&self) -> impl Iterator<Item = usize> {
        self.closing.iter().map(|channel| channel.link)
    }

    /// Decides about a connect.
    pub(crate) fn admit<R: Rules>(&mut self, connect: &Connect) -> Admission {
        let refused = |reason| Admission::Refused(reason, Text::EMPTY);
        let named = |export: &Export| export.config.name == connect.export;
        let Some(index) = self.exports.iter().position(named) else {
            return refused(Reason::UnknownExport);
        };
        let channels = self.channels();
        let export = &self.exports[index];
        if !export.admits(connect.host) {
            return refused(Reason::Denied);
        }
        let writer = !connect.flags.contains(ConnectFlags::READ_ONLY) && !export.config.read_only;
        let guarded = writer && !export.config.shared;
        let outlived = R::CLOSE_FORMER && export.is_outlived(connect);
        if outlived || (guarded && export.was_followed(connect)) {
            return refused(Reason::SessionLost);
        }
        if let Some(holder) = export.holder(connect).filter(|_| guarded) {
            let detail = Text::truncated(&format!("{} ({})", holder.host_name, holder.host));
            return Admission::Refused(Reason::Held, detail);
        }
        let replaced = export.replaced_by::<R>(connect);
        if !replaced.is_empty() {
            for channel in replaced {
                self.displace(channel);
            }
            return Admission::Wait;
        }
        if channels >= self.config.channels_max {
            return refused(Reason::NoResources);
        }
        Admission::Granted(Grant {
            export: index,
            writer,
            queue_size: connect.queue_size.min(self.config.queue_size_max),
            damq_pages: connect.damq_pages.clamp(256, self.config.damq_pages_max),
        })
    }

    fn displace(&mut self, channel: ChannelRef) {
        if !self.closing.contains(&channel) {
            self.closing.push(channel);
        }
    }

    /// Has a channel closed that its session has given up; says whether it is closed, so that
    /// nothing of it will ever take effect any more.
    pub(crate) fn fence(&mut self, fence: &Fence) -> bool {
        let sessions = self.exports.iter().flat_map(|export| &export.sessions);
        let members = sessions
            .filter(|session| session.session == fence.session)
            .flat_map(|session| &session.channels);
        let fenced = |member: &&Member| {
            member.cookie == fence.cookie && member.channel.channel == fence.channel
        };
        match members.copied().find(|member| fenced(&member)) {
            Some(member) => {
                self.displace(member.channel);
                false
            }
            None => true,
        }
    }

    fn channels(&self) -> usize {
        let sessions = self.exports.iter().flat_map(|export| &export.sessions);
        sessions.map(|session| session.channels.len()).sum()
    }

    /// A channel was opened as granted.
    pub(crate) fn opened(
        &mut self,
        connect: &Connect,
        grant: Grant,
        channel: ChannelRef,
        (host, cookie): (Mac, Cookie),
    ) {
        let member = Member { channel, host, index: connect.channel, cookie };
        let export = &mut self.exports[grant.export];
        if grant.writer {
            let Connect { session, device, .. } = *connect;
            export.last_writer = Some(Writer { session, device });
        }
        let known = export.sessions.iter_mut().find(|known| known.session == connect.session);
        if let Some(session) = known {
            session.channels.push(member);
            return;
        }
        export.sessions.push(SessionInfo {
            session: connect.session,
            device: connect.device,
            host: connect.host,
            host_name: connect.host_name,
            writer: grant.writer,
            channels: vec![member],
        });
    }

    /// A channel is closed: none of its requests is with the disk any more.
    pub(crate) fn closed(&mut self, export: usize, channel: ChannelRef) {
        let sessions = &mut self.exports[export].sessions;
        for session in sessions.iter_mut() {
            session.channels.retain(|open| open.channel != channel);
        }
        sessions.retain(|session| !session.channels.is_empty());
        self.closing.retain(|&closing| closing != channel);
    }
}

impl Export {
    fn admits(&self, host: Uuid) -> bool {
        self.config.hosts.is_empty() || self.config.hosts.contains(&host)
    }

    /// Another host that writes.
    fn holder(&self, connect: &Connect) -> Option<&SessionInfo> {
        self.sessions.iter().find(|other| other.writer && other.host != connect.host)
    }

    /// Whether another has written since the session that connects, or the one whose place it
    /// takes, was connected.
    fn was_followed(&self, connect: &Connect) -> bool {
        let Some(last) = self.last_writer else { return false };
        if connect.flags.contains(ConnectFlags::RESUME) {
            last.session != connect.session
        } else {
            connect.device != connect.session && last.device != connect.device
        }
    }

    /// Whether the session has lost its device to another, which is connected.
    fn is_outlived(&self, connect: &Connect) -> bool {
        let mut devices = self.sessions.iter().filter(|other| other.host == connect.host);
        connect.flags.contains(ConnectFlags::RESUME)
            && devices.any(|it| it.device == connect.device && it.session != connect.session)
    }

    /// The channels that the connect's channel takes the place of: the same session's with the same
    /// index, all of the device's former sessions, and all of the host's if both want to write.
    fn replaced_by<R: Rules>(&self, connect: &Connect) -> Vec<ChannelRef> {
        let mut replaced = Vec::new();
        for session in self.sessions.iter().filter(|session| session.host == connect.host) {
            let same = session.session == connect.session;
            let gives_way = if session.device == connect.device {
                R::CLOSE_FORMER
            } else {
                session.writer
                    && !self.config.shared
                    && !connect.flags.contains(ConnectFlags::READ_ONLY)
            };
            let replaces = |member: &&Member| {
                if same { member.index == connect.channel } else { gives_way }
            };
            replaced.extend(session.channels.iter().filter(replaces).map(|it| it.channel));
        }
        replaced
    }

    fn info(&self) -> ExportInfo {
        let ExportConfig { name, uuid, size, block_size, .. } = self.config;
        let mut flags = ExportFlags::NONE;
        flags.set(ExportFlags::READ_ONLY, self.config.read_only);
        flags.set(ExportFlags::WRITE_CACHE, self.config.write_cache);
        flags.set(ExportFlags::SHARED, self.config.shared);
        flags.set(ExportFlags::HELD, self.sessions.iter().any(|session| session.writer));
        ExportInfo { name, uuid, size, block_size, flags }
    }
}

impl ExportConfig {
    /// What an accept says about the export to a session that may or may not write.
    pub(crate) fn accept_flags(&self, writer: bool, checksum: bool, stages: bool) -> AcceptFlags {
        let mut flags = AcceptFlags::NONE;
        flags.set(AcceptFlags::READ_ONLY, !writer);
        flags.set(AcceptFlags::CHECKSUM, checksum);
        flags.set(AcceptFlags::STAGES, stages);
        flags.set(AcceptFlags::WRITE_CACHE, self.write_cache);
        flags.set(AcceptFlags::DISCARD, self.discard);
        flags.set(AcceptFlags::ROTATIONAL, self.rotational);
        flags
    }
}
