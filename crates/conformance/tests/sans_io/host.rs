//! A host without threads: its state machine and the memory of its operations.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tyche_conformance::{Mac, Result, Subject};
use tyche_proto::wire::{CommandFlags, Name, Opcode, Status, Uuid};
use tyche_proto::{
    BatchPolicy, ChannelChoice, ExportId, Instant, OpId, Operation, Outgoing, PortConfig, Rules,
    Session, SessionConfig, SessionEvent, TargetId,
};
use tyche_testkit::random::Random;

use crate::frames::{FRAME_LEN, PLAYED, SUBJECT};

/// See the module.
pub(crate) struct Host<R> {
    session: Session<R>,
    now: Instant,
    /// Name, memory, and whether it is a read, by operation.
    operations: BTreeMap<OpId, (String, Vec<u8>, bool)>,
    sent: VecDeque<Vec<u8>>,
    said: VecDeque<String>,
}

impl<R: Rules> Host<R> {
    pub(crate) fn new() -> Self {
        let name = |text| Name::new(text).unwrap();
        let session = SessionConfig {
            host: Uuid::from_u128(1),
            host_name: name("host"),
            session: Uuid::from_u128(2),
            device: Uuid::from_u128(2),
            resumes: None,
            export: ExportId::Name(name("conf")),
            target: TargetId::Any,
            queue_size: 8,
            damq_pages: 256,
            operations_max: 8,
            read_only: false,
            checksum: true,
            stages: false,
            keep_alive: Duration::from_secs(3),
            reconnect_delay: Duration::from_millis(20),
            ctrl_loss_tmo: None,
            batch: BatchPolicy::Natural,
            channels: 1,
            choice: ChannelChoice::default(),
        };
        let (frame_len_max, rings) = (FRAME_LEN, [64; 2]);
        let port = PortConfig { frame_len_max, rings, target: None, node: None, transport: 0 };
        let now = Instant(1_000_000);
        Self {
            session: Session::new(session, &[port], Box::new(Random(3).numbers()), now),
            now,
            operations: BTreeMap::new(),
            sent: VecDeque::new(),
            said: VecDeque::new(),
        }
    }

    /// Handles the session's events; `payload` is that of the frame just handled.
    fn serve(&mut self, payload: &[u8]) {
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
        let mut out = Outgoing::new();
        while self.session.poll_transmit(self.now, 0, &mut out) {
            let data = self.data_of(&out);
            self.sent.push_back(out.to_bytes(SUBJECT, &data));
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

impl<R: Rules> Subject for Host<R> {
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
        self.session.handle_frame(self.now, 0, head, payload);
        self.serve(payload);
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
            let next = self.session.poll_timeout().unwrap_or(deadline);
            self.now = next.max(self.now + Duration::from_micros(10)).min(deadline);
            self.session.handle_timeout(self.now);
            self.serve(&[]);
        }
    }

    fn order(&mut self, line: &str) -> Result<()> {
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
        let op = self.session.submit(self.now, operation).unwrap();
        let memory = vec![fill; len as usize];
        self.operations.insert(op, (words[0].to_owned(), memory, opcode == Opcode::Read));
        self.serve(&[]);
        Ok(())
    }

    fn said(&mut self) -> Result<Option<String>> {
        Ok(self.said.pop_front())
    }

    fn rejects(&mut self) -> Result<Option<BTreeMap<String, u64>>> {
        let counts = self.session.rejects().iter();
        Ok(Some(counts.map(|(reject, count)| (reject.name().to_owned(), count)).collect()))
    }
}
