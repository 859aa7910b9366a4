//! The target: a listener for each link, one registry, the memory of its channels, and a disk that
//! takes its time. Everything that a listener has done is checked.

use std::collections::{BTreeMap, HashSet};

use tyche_proto::crypto::SecretKey;
use tyche_proto::wire::{
    Accept, ChannelId, Command, Control, Event, Geometry, Mac, Name, Opcode, PAGE_LEN, PART_UNIT,
    Status, Tag, Uuid,
};
use tyche_proto::{
    Access, Action, AllRules, BatchPolicy, CHANNEL_PAGES, ChannelRef, ExportConfig, ExportKey,
    Instant, Listener, ListenerConfig, ListenerEvent, Opened, OpenedChannel, Outgoing, Registry,
    Rules, SessionInfo, TargetConfig,
};

use super::content;
use super::frames::{seal, split};
use super::ledger::Ledger;
use super::world::{FRAME_LEN, LINKS, RINGS, TARGETS, random};

/// Channels of all sessions.
pub(crate) const CHANNELS_MAX: usize = 8;
/// Slots and pages of each.
pub(crate) const SLOTS: u16 = 8;
const PAGES: u32 = 256;
/// Frames that one end may have to say at once.
pub(crate) const TALK_MAX: usize = 4096;
/// How often requests of hosts are served until they are.
const ROUNDS_MAX: usize = 100;

/// What the data of a slot are like.
#[derive(Default)]
struct Slot {
    /// First page and bytes, if it has any.
    held: Option<(u32, u32)>,
    data: Vec<u8>,
    /// Which units of them have come.
    placed: Vec<bool>,
    executing: bool,
    /// The last use that was executed.
    last: Option<u16>,
}

struct Channel {
    slots: Vec<Slot>,
    owners: Vec<Option<u16>>,
    writer: bool,
    /// It is the good host's.
    is_good: bool,
}

/// A request that the disk has.
pub(crate) struct Job {
    link: usize,
    channel: ChannelId,
    command: Command,
}

/// The target under attack: a real listener for each link, its registry, and a model of the memory
/// and the disk, which checks every action and event.
pub(crate) struct Target<R = AllRules> {
    pub(crate) listeners: Vec<Listener<R>>,
    pub(crate) registry: Registry,
    /// Its only export.
    pub(crate) export: ExportKey,
    channels: BTreeMap<(usize, ChannelId), Channel>,
    /// The last answer that opened a channel of that index.
    accepted: BTreeMap<(usize, ChannelId), Accept>,
    pub(crate) jobs: Vec<Job>,
    /// Whether writers can be kept.
    pub(crate) keeps: bool,
    /// Requests that were handed to the disk, by channel and tag, for the report.
    pub(crate) executions: usize,
    out: Outgoing,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// The target's key.
pub(crate) fn key() -> SecretKey {
    SecretKey::from_random([2; 32])
}

pub(crate) const IDENTITY: Uuid = Uuid::from_u128(3);
pub(crate) const EXPORT: Uuid = Uuid::from_u128(4);

impl<R: Rules> Target<R> {
    pub(crate) fn new(shared: bool, write_cache: bool, keyed: bool) -> Self {
        let listener = |link| {
            let config =
                ListenerConfig { link, frame_len_max: FRAME_LEN, rings: RINGS, routed: false };
            let mut listener = Listener::new(config, IDENTITY, random(2 + link as u64));
            if keyed {
                listener.set_keys(Instant(0), key());
            }
            listener
        };
        let mut registry = Registry::new(TargetConfig {
            uuid: IDENTITY,
            name: name("target"),
            queue_size_max: SLOTS,
            damq_pages_max: PAGES,
            memory_pages: CHANNELS_MAX as u64 * CHANNEL_PAGES,
            batch: BatchPolicy::Natural,
        });
        let export = registry
            .add_export(
                Instant(0),
                ExportConfig {
                    name: name("disk"),
                    uuid: EXPORT,
                    generation: Uuid::from_u128(5),
                    geometry: Geometry {
                        write_cache,
                        discard: true,
                        ..Geometry::new(content::DISK, 512)
                    },
                    shared,
                },
            )
            .unwrap();
        if keyed {
            let hosts = [(super::host::key().public(), name("host"))].into_iter().collect();
            registry.set_access(Access { required: true, hosts, ..Access::default() }, []);
        }
        Self {
            listeners: (0..LINKS).map(listener).collect(),
            registry,
            export,
            channels: BTreeMap::new(),
            accepted: BTreeMap::new(),
            jobs: Vec::new(),
            keeps: true,
            executions: 0,
            out: Outgoing::new(),
        }
    }

    /// Takes a frame of a link; returns whether nothing was wrong with it.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        link: usize,
        frame: &[u8],
        ledger: &mut Ledger,
    ) -> bool {
        let Some((head, payload)) = split(frame) else { return false };
        let rejected = self.listeners[link].rejects().total();
        let mut opened = Opened::default();
        let payload = self.listeners[link].handle_frame(now, (head, payload), &mut opened);
        let happened = self.take_events(link, payload, ledger);
        let is_taken = self.listeners[link].rejects().total() == rejected;
        assert!(is_taken || happened == 0, "a frame that is wrong has an effect");
        self.serve(now, ledger);
        is_taken
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, ledger: &mut Ledger) {
        for listener in &mut self.listeners {
            listener.handle_timeout(now);
        }
        self.serve(now, ledger);
    }

    /// Answers what takes the registry.
    pub(crate) fn serve(&mut self, now: Instant, ledger: &mut Ledger) {
        for _ in 0..ROUNDS_MAX {
            let called: HashSet<usize> = self.registry.called_links().collect();
            let busy = |link: &usize| self.listeners[*link].has_requests() || called.contains(link);
            let links: Vec<usize> = (0..LINKS).filter(busy).collect();
            if links.is_empty() {
                return;
            }
            for link in links {
                self.listeners[link].serve_requests(now, &mut self.registry);
                while let Some((export, writer)) = self.registry.writer_to_persist() {
                    let result = if self.keeps { Ok(()) } else { Err("no room: make some") };
                    self.registry.writer_persisted(export, writer, result);
                }
                self.take_events(link, &[], ledger);
            }
        }
        panic!("requests of hosts are never served");
    }

    /// The next frame that a link has to send.
    pub(crate) fn transmit(&mut self, now: Instant, link: usize) -> Option<(Mac, Vec<u8>)> {
        if !self.listeners[link].poll_transmit(now, &mut self.out) {
            return None;
        }
        let out = &self.out;
        if let Some(Control::Accept(accept)) = out.content.control() {
            self.accepted.insert((link, accept.channel), accept.clone());
        }
        let frame = seal(TARGETS[link], out, |part, data| {
            let channel = out.channel.expect("data belong to a channel");
            let slot = &self.channels[&(link, channel)].slots[part.request as usize];
            let part = part.offset as usize..(part.offset + part.len) as usize;
            data.extend_from_slice(&slot.data[part]);
        });
        assert!(frame.len() <= FRAME_LEN, "a frame of {} bytes", frame.len());
        Some((out.destination, frame))
    }

    /// Looks at what has happened, and returns how much. `payload`: of the frame that was handled
    /// last.
    fn take_events(&mut self, link: usize, payload: &[u8], ledger: &mut Ledger) -> usize {
        let mut happened = 0;
        while let Some(event) = self.listeners[link].poll_event() {
            happened += 1;
            match event {
                ListenerEvent::Opened(opened) => {
                    let OpenedChannel { channel, damq_pages, queue_size, .. } = *opened;
                    assert!(damq_pages <= PAGES && queue_size <= SLOTS);
                    let opened = ChannelRef { link, channel };
                    let has = |it: &&SessionInfo| it.channels().any(|(its, _)| its == opened);
                    let session = self.registry.sessions(self.export).iter().find(has);
                    // A sealed answer says nothing to others, and is for the good host.
                    let accept = self.accepted.get(&(link, channel));
                    let new = Channel {
                        slots: (0..queue_size).map(|_| Slot::default()).collect(),
                        owners: vec![None; damq_pages as usize],
                        writer: session.expect("it belongs to a session").writer,
                        is_good: accept.is_none_or(|it| ledger.attempts.contains(&it.attempt)),
                    };
                    let before = self.channels.insert((link, channel), new);
                    assert!(before.is_none(), "a channel is opened twice");
                    assert!(self.channels.len() <= CHANNELS_MAX, "more channels than allowed");
                }
                ListenerEvent::Closed { channel } => {
                    let closed = self.channels.remove(&(link, channel)).expect("it was open");
                    assert!(closed.slots.iter().all(|slot| !slot.executing), "closed too early");
                }
                ListenerEvent::Action { channel, action } => {
                    let it = self.channels.get_mut(&(link, channel)).expect("it is open");
                    if let Some(command) = it.act(action, payload) {
                        self.executions += 1;
                        if it.is_good {
                            let slot = &it.slots[usize::from(command.tag.slot)];
                            ledger.executes(&command, &slot.data);
                        }
                        self.jobs.push(Job { link, channel, command });
                    }
                }
            }
        }
        happened
    }

    /// The disk has executed a request.
    pub(crate) fn complete(&mut self, job: usize, status: Status, ledger: &mut Ledger) {
        let Job { link, channel, command } = self.jobs.swap_remove(job);
        let it = self.channels.get_mut(&(link, channel)).expect("it outlives its requests");
        if it.is_good {
            ledger.executed(&command, status);
        }
        let slot = &mut it.slots[usize::from(command.tag.slot)];
        assert!(std::mem::take(&mut slot.executing));
        let is_read = command.opcode.returns_data() && status == Status::Success;
        if is_read {
            content::read(command.offset, &mut slot.data);
        }
        let keeps = self.listeners[link].complete(channel, command.tag, status);
        assert_eq!(keeps, is_read, "a request that reads keeps its pages, and no other");
        if !keeps {
            it.release(command.tag.slot);
        }
    }

    pub(crate) fn notify(&mut self, event: Event) {
        for listener in &mut self.listeners {
            listener.notify(self.export, event);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.listeners.iter().filter_map(|listener| listener.poll_timeout()).min()
    }
}

impl Channel {
    /// Does what is to be done, and returns what is to be executed.
    fn act(&mut self, action: Action, payload: &[u8]) -> Option<Command> {
        match action {
            Action::Credit { .. } => {}
            Action::Claim { slot, page, len } => self.claim(slot, page, len),
            Action::Release { slot } => {
                let held = self.slots[usize::from(slot)].held;
                assert!(held.is_some(), "slot {slot} releases pages that it does not have");
                self.release(slot);
            }
            Action::Place { slot, offset, len, source } => {
                let slot = &mut self.slots[usize::from(slot)];
                assert!(slot.held.is_some() && !slot.executing, "data without a place");
                assert_eq!((offset % PART_UNIT, len % PART_UNIT), (0, 0), "half a unit");
                let data = &payload[source as usize..][..len as usize];
                slot.data[offset as usize..][..len as usize].copy_from_slice(data);
                let units = &mut slot.placed[(offset / PART_UNIT) as usize..];
                let units = &mut units[..(len / PART_UNIT) as usize];
                assert!(units.iter().all(|placed| !placed), "bytes are placed twice");
                units.fill(true);
            }
            Action::Execute { command } => {
                self.execute(&command);
                return Some(command);
            }
        }
        None
    }

    fn claim(&mut self, index: u16, page: u32, len: u32) {
        let pages = page as usize..page as usize + (len as usize).div_ceil(PAGE_LEN);
        let owners = &mut self.owners[pages];
        assert!(owners.iter().all(Option::is_none), "pages of two requests");
        owners.fill(Some(index));
        let slot = &mut self.slots[usize::from(index)];
        assert!(slot.held.is_none() && !slot.executing, "slot {index} claims pages twice");
        slot.held = Some((page, len));
        slot.data = vec![0; len as usize];
        slot.placed = vec![false; (len / PART_UNIT) as usize];
    }

    fn release(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        assert!(!slot.executing, "pages go while the disk uses them");
        slot.held = None;
        (slot.data, slot.placed) = (Vec::new(), Vec::new());
        for owner in self.owners.iter_mut().filter(|owner| **owner == Some(index)) {
            *owner = None;
        }
    }

    fn execute(&mut self, command: &Command) {
        let Command { opcode, len, damq_page, tag: Tag { slot, generation }, .. } = *command;
        assert!(self.writer || !opcode.modifies(), "a channel that may not write does");
        let slot = &mut self.slots[usize::from(slot)];
        assert!(!std::mem::replace(&mut slot.executing, true), "a slot has two requests");
        let is_newer = |last: u16| (1..0x8000).contains(&generation.wrapping_sub(last));
        assert!(slot.last.is_none_or(is_newer), "a tag is executed twice");
        slot.last = Some(generation);
        let held = opcode.has_data().then_some((damq_page, len));
        assert_eq!(slot.held, held, "{command:?} has other pages");
        let all = slot.placed.iter().all(|&placed| placed);
        assert!(opcode != Opcode::Write || all, "bytes of a write have not come");
    }
}
