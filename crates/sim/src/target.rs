//! A target of the simulation: a listener for each link, the registry, the pages of its channels,
//! and the requests at its disk.

use std::collections::BTreeMap;
use std::ops::Range;

use tyche_proto::{
    ChannelRef, ExportConfig, Instant, Listener, ListenerConfig, Registry, Rules, SessionInfo,
    TargetConfig, Writer,
};
use tyche_wire::{ChannelId, Command, Completion, Entry, Name, PAGE_LEN, Tag, Uuid};

use crate::disk::Progress;
use crate::host::{export_name, uuid};
use crate::plan::{DiskPlan, ExportPlan, LinkPlan, TargetPlan};
use crate::random::Random;

/// Channels of the target at once: more than all hosts of a world want together (a session has at
/// most 256), so that no link of theirs is refused for want of room and stays away for ever.
pub(crate) const CHANNELS_MAX: usize = 2048;

/// The pages of a channel's data queue.
pub(crate) struct Memory {
    /// The generation that the channel's host was told.
    pub(crate) boot: Uuid,
    pages: Box<[u8]>,
    /// Number of pages of the channel: the memory may have more.
    count: u32,
    /// The first page and the bytes of each slot's data.
    slots: Vec<Option<(u32, u32)>>,
    /// For each slot, the generation of its request that was given to the disk and is not answered.
    unanswered: Vec<Option<u16>>,
    /// Index of the channel's export.
    pub(crate) export: usize,
}

impl Memory {
    /// The memory of a channel that has `count` of the pages. They may have been another channel's,
    /// whose content must never be read.
    pub(crate) fn new(
        (pages, count): (Box<[u8]>, u32),
        slots: u16,
        export: usize,
        boot: Uuid,
    ) -> Self {
        let (slots, unanswered) = (vec![None; slots.into()], vec![None; slots.into()]);
        Self { boot, pages, count, slots, unanswered, export }
    }

    /// Notes that a slot's request is given to the disk.
    ///
    /// # Errors
    /// If the slot's last request was not answered yet: then the number of waiting answers would
    /// have no bound.
    pub(crate) fn use_slot(&mut self, tag: Tag) -> Result<(), String> {
        let unanswered = &mut self.unanswered[usize::from(tag.slot)];
        match unanswered.replace(tag.generation) {
            Some(last) => Err(format!("{tag:?} is executed, and {last} is not answered yet")),
            None => Ok(()),
        }
    }

    /// Notes the completions of a frame to the host.
    pub(crate) fn note_answers(&mut self, entries: &[Entry]) {
        for entry in entries {
            if let Entry::Completion(Completion { tag, .. }) = entry {
                let unanswered = &mut self.unanswered[usize::from(tag.slot)];
                unanswered.take_if(|generation| *generation == tag.generation);
            }
        }
    }

    /// Returns the pages of a closed channel, to be used again.
    pub(crate) fn into_pages(self) -> Box<[u8]> {
        self.pages
    }

    pub(crate) fn claim(&mut self, slot: u16, page: u32, len: u32) -> Result<(), String> {
        if page + (len as usize).div_ceil(PAGE_LEN) as u32 > self.count {
            return Err(format!("slot {slot} claims pages that the channel does not have"));
        }
        let claimed = self.slots[usize::from(slot)].replace((page, len));
        if claimed.is_some() { Err(format!("slot {slot} claims pages twice")) } else { Ok(()) }
    }

    pub(crate) fn release(&mut self, slot: u16) -> Result<(), String> {
        let held = self.slots[usize::from(slot)].take();
        held.map(drop).ok_or(format!("slot {slot} releases pages that it does not have"))
    }

    /// The data of a slot.
    pub(crate) fn data(&mut self, slot: u16) -> &mut [u8] {
        let Some((page, len)) = self.slots[usize::from(slot)] else { return &mut [] };
        let first = page as usize * PAGE_LEN;
        &mut self.pages[first..first + len as usize]
    }
}

/// A request at the disk.
pub(crate) struct Job {
    pub(crate) link: usize,
    pub(crate) channel: ChannelId,
    /// The session of the channel.
    pub(crate) session: Uuid,
    /// Index of the export.
    pub(crate) export: usize,
    pub(crate) command: Command,
    pub(crate) begun: Instant,
    pub(crate) progress: Progress,
    /// The stamp of a modifying operation; zero for others.
    pub(crate) stamp: u64,
}

/// A run of the target's process.
pub(crate) struct Process<R> {
    pub(crate) listeners: Vec<Listener<R>>,
    pub(crate) registry: Registry,
    pub(crate) memory: BTreeMap<(usize, ChannelId), Memory>,
    pub(crate) jobs: BTreeMap<u64, Job>,
    /// The byte ranges that were begun of each modifying operation, by session and stamp.
    executed: BTreeMap<(Uuid, u64), Vec<Range<u64>>>,
}

/// Configuration of an export for the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exported {
    pub(crate) index: usize,
    pub(crate) shared: bool,
    /// Whether it is the breaker's.
    pub(crate) wild: bool,
    /// The halves of its generation.
    pub(crate) content: u64,
    pub(crate) cache: u64,
    pub(crate) size: u64,
    pub(crate) block_size: u32,
    pub(crate) write_cache: bool,
    /// The session that was last admitted for writing.
    pub(crate) last_writer: Option<Writer>,
}

impl Exported {
    pub(crate) fn new(index: usize, plan: &ExportPlan) -> Self {
        let DiskPlan { size, block_size, write_cache, .. } = plan.disk;
        let (shared, wild) = (plan.shared, plan.wild);
        let (content, cache, last_writer) = (1, 1, None);
        Self { index, shared, wild, content, cache, size, block_size, write_cache, last_writer }
    }

    /// The generation that hosts are told.
    pub(crate) fn boot(&self) -> Uuid {
        Uuid::from_u64_pair(self.content, self.cache)
    }

    fn config(&self) -> ExportConfig {
        ExportConfig {
            name: export_name(self.index),
            uuid: uuid(4, self.index as u64),
            boot: self.boot(),
            size: self.size,
            block_size: self.block_size,
            read_only: false,
            write_cache: self.write_cache,
            discard: true,
            rotational: false,
            shared: self.shared,
            hosts: Vec::new(),
        }
    }
}

impl<R: Rules> Process<R> {
    pub(crate) fn new(
        plan: &TargetPlan,
        exports: impl Iterator<Item = Exported>,
        random: &mut Random,
    ) -> Self {
        let target = TargetConfig {
            uuid: uuid(3, 0),
            name: Name::new("target").expect("a name"),
            queue_size_max: plan.queue_size_max,
            damq_pages_max: plan.damq_pages_max,
            channels_max: CHANNELS_MAX,
            batch: plan.batch,
        };
        let listener = |(link, plan_of_link): (usize, &LinkPlan)| {
            let mut random = random.fork();
            let frame_len_max = plan_of_link.frame_len_max;
            let config = ListenerConfig { link, frame_len_max, rings: plan.rings };
            Listener::new(config, target.uuid, Box::new(move || random.next()))
        };
        let listeners = plan.links.iter().enumerate().map(listener).collect();
        let mut registry = Registry::new(target);
        for exported in exports {
            let index = registry.add_export(exported.config());
            registry.restore_last_writer(index, exported.last_writer);
        }
        Self {
            listeners,
            registry,
            memory: BTreeMap::new(),
            jobs: BTreeMap::new(),
            executed: BTreeMap::new(),
        }
    }

    /// The session that a channel belongs to.
    pub(crate) fn owner(&self, link: usize, channel: ChannelId) -> Option<&SessionInfo> {
        let wanted = ChannelRef { link, channel };
        let export = self.memory.get(&(link, channel))?.export;
        let mut sessions = self.registry.sessions(export).iter();
        sessions.find(|session| session.channels().any(|(channel, _)| channel == wanted))
    }

    /// Notes that the disk begins a modifying request; returns whether this run has begun a part of
    /// the same range before.
    pub(crate) fn is_repeated(&mut self, job: u64) -> bool {
        let Job { session, stamp, command, .. } = &self.jobs[&job];
        let range = command.offset..command.offset + u64::from(command.len);
        let executed = self.executed.entry((*session, *stamp)).or_default();
        let again = executed.iter().any(|it| it.start < range.end && range.start < it.end);
        executed.push(range);
        again
    }

    /// Allows that the operations of a session are executed again.
    pub(crate) fn forget(&mut self, session: Uuid) {
        self.executed.retain(|(of, _), _| *of != session);
    }

    /// When a listener's next timer expires.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.listeners.iter().filter_map(Listener::poll_timeout).min()
    }
}
