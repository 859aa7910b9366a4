//! A target without threads: its state machines, pages and disks.

use std::collections::BTreeMap;

use tyche_proto::crypto::SecretKey;
use tyche_proto::wire::{Command, Geometry, HEAD_LEN, Name, Opcode, PAGE_LEN, Status, Uuid};
use tyche_proto::{
    Access, Action, Allowed, BatchPolicy, ExportConfig, ExportKey, Instant, Listener,
    ListenerConfig, ListenerEvent, Opened, OpenedChannel, Outgoing, Registry, RejectCounts, Rules,
    TargetConfig,
};
use tyche_testkit::random::Random;

use crate::machine::{FRAME_LEN, Machine, SUBJECT};

const SIZE: usize = 1 << 20;
/// The target as a [`Machine`]: a listener on one link, its registry, and disks in memory that
/// execute each request at once.
pub(crate) struct Target<R> {
    listener: Listener<R>,
    registry: Registry,
    /// Content of the disks, by export.
    disks: BTreeMap<ExportKey, Vec<u8>>,
    /// Memory by channel.
    memory: BTreeMap<u16, Memory>,
    /// The data section of the frame being handled.
    payload: Vec<u8>,
}

/// The pages of a channel.
struct Memory {
    export: ExportKey,
    pages: Vec<u8>,
    /// Offsets of the slots' data in the pages.
    slots: BTreeMap<u16, usize>,
}

fn export(number: u128, name: &str) -> ExportConfig {
    ExportConfig {
        name: Name::new(name).unwrap(),
        uuid: Uuid::from_u128(0xc0f0 + number),
        generation: Uuid::from_u128(1),
        geometry: Geometry {
            read_only: name == "conf-ro",
            write_cache: name == "conf-mem",
            discard: true,
            ..Geometry::new(SIZE as u64, 512)
        },
        shared: false,
    }
}

impl<R: Rules> Target<R> {
    pub(crate) fn new() -> Self {
        Self::named("target")
    }

    /// A target with a key, which lets in hosts without one, too.
    pub(crate) fn keyed() -> Self {
        let mut this = Self::named("conformance");
        let config = export(4, "conf-keys");
        let key = this.registry.add_export(Instant(0), config).unwrap();
        this.disks.insert(key, vec![0; SIZE]);
        this.listener.set_keys(Instant(0), SecretKey::from_random([2; 32]));
        let names = Some([Name::new("conf-host").unwrap()].into());
        let allowed = Allowed { names, ..Allowed::default() };
        this.knows(&[(1, "conf-host"), (3, "conf-other")]);
        this.registry.set_allowed(key, allowed);
        this
    }

    /// The same, which answers nobody who does not know its key, and lets in no host without one.
    pub(crate) fn silent() -> Self {
        let mut this = Self::keyed();
        let access = Access { required: true, ..this.registry.access().clone() };
        this.registry.set_access(access, []);
        this.listener.be_silent();
        this
    }

    /// Sets the hosts that it knows, by the bytes of their keys.
    pub(crate) fn knows(&mut self, hosts: &[(u8, &str)]) {
        let public = |byte| SecretKey::from_random([byte; 32]).public();
        let hosts = hosts.iter().map(|&(byte, name)| (public(byte), Name::new(name).unwrap()));
        let access = Access { hosts: hosts.collect(), ..Access::default() };
        self.registry.set_access(access, []);
    }

    fn named(name: &str) -> Self {
        let uuid = Uuid::from_u128(3);
        let mut registry = Registry::new(TargetConfig {
            uuid,
            name: Name::new(name).unwrap(),
            queue_size_max: 8,
            damq_pages_max: 256,
            memory_pages: 1 << 16,
            batch: BatchPolicy::Natural,
        });
        for (number, name) in (0..).zip(["conf", "conf-ro", "conf-hidden", "conf-mem"]) {
            let key = registry.add_export(Instant(0), export(number, name)).unwrap();
            if name == "conf-hidden" {
                let uuids = Some([Uuid::from_u128(1)].into());
                registry.set_allowed(key, Allowed { uuids, ..Allowed::default() });
            }
        }
        let config =
            ListenerConfig { link: 0, frame_len_max: FRAME_LEN, rings: [64; 2], routed: false };
        Self {
            listener: Listener::new(config, uuid, Box::new(Random(2).numbers())),
            disks: registry.exports().map(|(key, _)| (key, vec![0; SIZE])).collect(),
            registry,
            memory: BTreeMap::new(),
            payload: Vec::new(),
        }
    }

    fn serve(&mut self, now: Instant) {
        while let Some(event) = self.listener.poll_event() {
            self.handle(event);
        }
        while self.listener.has_requests() || self.registry.called_links().next().is_some() {
            self.listener.serve_requests(now, &mut self.registry);
            while let Some((export, writer)) = self.registry.writer_to_persist() {
                self.registry.writer_persisted(export, writer, Ok(()));
            }
            while let Some(event) = self.listener.poll_event() {
                self.handle(event);
            }
        }
    }

    fn data_of(&self, out: &Outgoing) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in &out.parts {
            let memory = &self.memory[&out.channel.expect("data belong to a channel").0];
            let from = memory.slots[&(part.request as u16)] + part.offset as usize;
            bytes.extend(&memory.pages[from..from + part.len as usize]);
        }
        bytes
    }

    fn handle(&mut self, event: ListenerEvent) {
        match event {
            ListenerEvent::Opened(opened) => {
                let OpenedChannel { channel, export, damq_pages, .. } = *opened;
                // Content of unused pages, which must never be seen.
                let pages = vec![0xdd; damq_pages as usize * PAGE_LEN];
                self.memory.insert(channel.0, Memory { export, pages, slots: BTreeMap::new() });
            }
            ListenerEvent::Closed { channel } => {
                self.memory.remove(&channel.0);
            }
            ListenerEvent::Action { channel, action } => {
                let memory = self.memory.get_mut(&channel.0).unwrap();
                match action {
                    Action::Release { slot } => drop(memory.slots.remove(&slot)),
                    Action::Credit { .. } => {}
                    Action::Claim { slot, page, .. } => {
                        memory.slots.insert(slot, page as usize * PAGE_LEN);
                    }
                    Action::Place { slot, offset, len, source } => {
                        let (to, from) = (memory.slots[&slot] + offset as usize, source as usize);
                        let data = &self.payload[from..from + len as usize];
                        memory.pages[to..to + len as usize].copy_from_slice(data);
                    }
                    Action::Execute { command } => {
                        let disk = self.disks.get_mut(&memory.export).unwrap();
                        let status = execute(disk, memory, command);
                        self.listener.complete(channel, command.tag, status);
                    }
                }
            }
        }
    }
}

fn execute(disk: &mut [u8], memory: &mut Memory, command: Command) -> Status {
    let Command { opcode, tag, offset, len, .. } = command;
    let Some(place) = disk.get_mut(offset as usize..offset as usize + len as usize) else {
        return Status::Invalid;
    };
    let at = memory.slots.get(&tag.slot).copied().unwrap_or(0);
    match opcode {
        Opcode::Read => memory.pages[at..at + len as usize].copy_from_slice(place),
        Opcode::Write => place.copy_from_slice(&memory.pages[at..at + len as usize]),
        Opcode::WriteZeroes => place.fill(0),
        // No vector asks for it where it is granted: see the rule for channels without it.
        Opcode::BlockStatus => return Status::Unsupported,
        Opcode::Flush | Opcode::Discard => {}
    }
    Status::Success
}

impl<R: Rules> Machine for Target<R> {
    fn handle_frame(&mut self, now: Instant, head: &[u8; HEAD_LEN], payload: &[u8]) {
        let mut opened = Opened::default();
        self.payload = self.listener.handle_frame(now, (head, payload), &mut opened).to_vec();
        self.serve(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.listener.handle_timeout(now);
        self.serve(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.listener.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut out = Outgoing::new();
        let is_composed = self.listener.poll_transmit(now, &mut out);
        is_composed.then(|| out.to_bytes(SUBJECT, &self.data_of(&out)))
    }

    fn rejects(&self) -> &RejectCounts {
        self.listener.rejects()
    }

    fn restore(&mut self, now: Instant) {
        self.listener.renew_keys();
        self.serve(now);
    }
}
