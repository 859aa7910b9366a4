//! A host without threads: its state machine and the memory of its operations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tyche_conformance::Result;
use tyche_proto::crypto::SecretKey;
use tyche_proto::wire::{CommandFlags, HEAD_LEN, Name, Opcode, Status, Uuid};
use tyche_proto::{
    BatchPolicy, ExportId, HostKeys, Instant, OpId, Opened, Operation, Outgoing, PortConfig,
    RejectCounts, Rules, Session, SessionConfig, SessionEvent,
};
use tyche_testkit::random::Random;

use crate::machine::{FRAME_LEN, Machine, START, SUBJECT};

/// The host as a [`Machine`]: a session on one link, and an agent that submits the operations of
/// orders and reports their ends.
pub(crate) struct Host<R> {
    session: Session<R>,
    /// Name, memory, and whether it is a read, by operation.
    operations: BTreeMap<OpId, (String, Vec<u8>, bool)>,
    said: VecDeque<String>,
}

impl<R: Rules> Host<R> {
    pub(crate) fn new() -> Self {
        Self::with_keys(None)
    }

    /// A host that has a key, and knows that of its target.
    pub(crate) fn keyed() -> Self {
        let [secret, target] = [1, 2].map(|byte| SecretKey::from_random([byte; 32]));
        Self::with_keys(Some(HostKeys { secret, target: target.public(), target_uuid: None }))
    }

    fn with_keys(keys: Option<HostKeys>) -> Self {
        let name = |text| Name::new(text).unwrap();
        let (identity, session) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let export = ExportId::Name(name("conf"));
        let session = SessionConfig {
            queue_size: 8,
            damq_pages: 256,
            operations_max: 8,
            reconnect_delay: Duration::from_millis(20),
            batch: BatchPolicy::Natural,
            keys: keys.map(Arc::new),
            ..SessionConfig::new(identity, name("host"), session, export)
        };
        let (frame_len_max, rings) = (FRAME_LEN, [64; 2]);
        let port = PortConfig {
            frame_len_max,
            rings,
            target: None,
            node: None,
            transport: 0,
            routed: false,
            checks_data: false,
        };
        Self {
            session: Session::new(session, &[port], Box::new(Random(3).numbers()), START),
            operations: BTreeMap::new(),
            said: VecDeque::new(),
        }
    }

    /// Handles the session's events; `payload` is that of the frame just handled.
    fn take_events(&mut self, payload: &[u8]) {
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Data { op, offset, len, source } => {
                    let (_, memory, _) = self.operations.get_mut(&op).unwrap();
                    let data = &payload[source as usize..source as usize + len as usize];
                    memory[offset as usize..offset as usize + len as usize].copy_from_slice(data);
                }
                SessionEvent::Completed { op, status } => {
                    let (name, memory, is_read) = self.operations.remove(&op).unwrap();
                    self.said.push_back(match status {
                        Status::Success if is_read => format!("{name} ok {}", runs(&memory)),
                        Status::Success => format!("{name} ok"),
                        _ => format!("{name} error"),
                    });
                }
                SessionEvent::Connected => self.said.push_back("connected ok".to_owned()),
                SessionEvent::Failed(_) => self.said.push_back("over ok".to_owned()),
                _ => {}
            }
        }
    }

    fn data_of(&self, out: &Outgoing) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in &out.parts {
            let memory = &self.operations[&OpId(part.request)].1;
            bytes.extend(&memory[part.offset as usize..][..part.len as usize]);
        }
        bytes
    }
}

/// Bytes in hexadecimal, `aa*512` for 512 in a row.
fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{:02x}*{}", run[0], run.len())).collect::<Vec<_>>().join(" ")
}

impl<R: Rules> Machine for Host<R> {
    fn handle_frame(&mut self, now: Instant, head: &[u8; HEAD_LEN], payload: &[u8]) {
        let mut opened = Opened::default();
        let clear = self.session.handle_frame(now, 0, (head, payload), &mut opened);
        self.take_events(clear);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        self.take_events(&[]);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut out = Outgoing::new();
        let is_composed = self.session.poll_transmit(now, 0, &mut out);
        is_composed.then(|| out.to_bytes(SUBJECT, &self.data_of(&out)))
    }

    fn order(&mut self, now: Instant, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let (opcode, offset, len) = match words[1] {
            "read" => (Opcode::Read, number(2), number(3)),
            "write" => (Opcode::Write, number(2), number(3)),
            _ => (Opcode::Flush, 0, 0),
        };
        let fill = words.get(4).map_or(0, |fill| u8::from_str_radix(fill, 16).unwrap());
        let (flags, len) = (CommandFlags::NONE, len as u32);
        let operation = Operation { opcode, flags, offset, len };
        let op = self.session.submit(now, operation).unwrap();
        let memory = vec![fill; len as usize];
        self.operations.insert(op, (words[0].to_owned(), memory, opcode == Opcode::Read));
        self.take_events(&[]);
        Ok(())
    }

    fn said(&mut self) -> Option<String> {
        self.said.pop_front()
    }

    fn rejects(&self) -> &RejectCounts {
        self.session.rejects()
    }

    fn restore(&mut self, now: Instant) {
        self.session.renew_keys(now);
        self.take_events(&[]);
    }
}
