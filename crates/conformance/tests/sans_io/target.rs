//! A target without threads: its state machines, pages and disks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tyche_conformance::{Mac, Result, Subject};
use tyche_proto::wire::{Command, Geometry, Name, Opcode, PAGE_LEN, Status, Uuid};
use tyche_proto::{
    Action, BatchPolicy, ExportConfig, Instant, Listener, ListenerConfig, ListenerEvent, Outgoing,
    Registry, Rules, TargetConfig,
};
use tyche_testkit::random::Random;

use crate::frames::{FRAME_LEN, PLAYED, SUBJECT};

const SIZE: usize = 1 << 20;
/// See the module.
pub(crate) struct Target<R> {
    listener: Listener<R>,
    registry: Registry,
    now: Instant,
    /// Content of the disks, by export.
    disks: BTreeMap<usize, Vec<u8>>,
    /// Memory by channel.
    memory: BTreeMap<u16, Memory>,
    /// The data section of the frame being handled.
    payload: Vec<u8>,
    sent: VecDeque<Vec<u8>>,
}

/// The pages of a channel.
struct Memory {
    export: usize,
    pages: Vec<u8>,
    /// Offsets of the slots' data in the pages.
    slots: BTreeMap<u16, usize>,
}

fn export(number: u128, name: &str) -> ExportConfig {
    ExportConfig {
        name: Name::new(name).unwrap(),
        uuid: Uuid::from_u128(0xc0f0 + number),
        boot: Uuid::from_u128(1),
        geometry: Geometry {
            read_only: name == "conf-ro",
            write_cache: name == "conf-mem",
            discard: true,
            ..Geometry::new(SIZE as u64, 512)
        },
        shared: false,
        hosts: if name == "conf-hidden" { vec![Uuid::from_u128(1)] } else { Vec::new() },
    }
}

impl<R: Rules> Target<R> {
    pub(crate) fn new() -> Self {
        let uuid = Uuid::from_u128(3);
        let mut registry = Registry::new(TargetConfig {
            uuid,
            name: Name::new("target").unwrap(),
            queue_size_max: 8,
            damq_pages_max: 256,
            channels_max: 8,
            batch: BatchPolicy::Natural,
        });
        for (number, name) in (0..).zip(["conf", "conf-ro", "conf-hidden", "conf-mem"]) {
            registry.add_export(export(number, name));
        }
        let config = ListenerConfig { link: 0, frame_len_max: FRAME_LEN, rings: [64; 2] };
        Self {
            listener: Listener::new(config, uuid, Box::new(Random(2).numbers())),
            registry,
            now: Instant(1_000_000),
            disks: (0..4).map(|number| (number, vec![0; SIZE])).collect(),
            memory: BTreeMap::new(),
            payload: Vec::new(),
            sent: VecDeque::new(),
        }
    }

    fn serve(&mut self) {
        while let Some(event) = self.listener.poll_event() {
            self.handle(event);
        }
        while self.listener.has_requests() || self.registry.called_links().next().is_some() {
            self.listener.serve_requests(self.now, &mut self.registry);
            while let Some((export, writer)) = self.registry.unkept() {
                self.registry.kept(export, writer, Ok(()));
            }
            while let Some(event) = self.listener.poll_event() {
                self.handle(event);
            }
        }
        let mut out = Outgoing::new();
        while self.listener.poll_transmit(self.now, &mut out) {
            let data = self.data_of(&out);
            self.sent.push_back(out.to_bytes(SUBJECT, &data));
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
            ListenerEvent::Opened { channel, export, damq_pages, .. } => {
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
        Opcode::Flush | Opcode::Discard => {}
    }
    Status::Success
}

impl<R: Rules> Subject for Target<R> {
    fn address(&self) -> Mac {
        PLAYED.0
    }

    fn frame_len(&self) -> u32 {
        FRAME_LEN as u32
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.0)
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        let (head, payload) = frame.split_first_chunk().unwrap();
        self.payload = payload.to_vec();
        self.listener.handle_frame(self.now, head, payload);
        self.serve();
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = self.now + patience;
        loop {
            if let Some(frame) = self.sent.pop_front() {
                return Ok(Some(frame));
            }
            if self.now >= deadline {
                return Ok(None);
            }
            let next = self.listener.poll_timeout().unwrap_or(deadline);
            // A timer may be due immediately, several times in a row.
            self.now = next.max(self.now + Duration::from_micros(10)).min(deadline);
            self.listener.handle_timeout(self.now);
            self.serve();
        }
    }

    fn order(&mut self, _line: &str) -> Result<()> {
        Err("a target has no agent".to_owned())
    }

    fn said(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    fn rejects(&mut self) -> Result<Option<BTreeMap<String, u64>>> {
        let counts = self.listener.rejects().iter();
        Ok(Some(counts.map(|(reject, count)| (reject.name().to_owned(), count)).collect()))
    }
}
