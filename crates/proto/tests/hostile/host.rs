//! The good host: a session, the memory of its operations, and what it is told of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tyche_proto::crypto::SecretKey;
use tyche_proto::wire::{Mac, Name, Opcode, Reason, Status, Uuid};
use tyche_proto::{
    AllRules, BatchPolicy, ExportId, Failure, HostKeys, Instant, OpId, Opened, Operation, Outgoing,
    PortConfig, Problem, Rules, Session, SessionConfig, SessionEvent,
};

use super::content;
use super::frames::{seal, split};
use super::ledger::Ledger;
use super::target::SLOTS;
use super::world::{FRAME_LEN, HOSTS, LINKS, RINGS, TARGETS, random};

/// Operations at once.
pub(crate) const DEPTH: u32 = 12;
/// Time until a lost target is given up. One that lives has 10 s for an operation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);
/// Events that one frame may bring: each of its entries can end an operation and say so twice, and
/// what ends a session ends all operations.
const EVENTS_MAX: usize = 128;

/// How the good host is set up.
#[derive(Clone, Copy)]
pub(crate) struct Habits {
    pub(crate) read_only: bool,
    pub(crate) checksum: bool,
    pub(crate) stages: bool,
    pub(crate) channels: usize,
    /// The target's addresses are known.
    pub(crate) knows_target: bool,
    /// Host and target have keys.
    pub(crate) keyed: bool,
}

struct Pending {
    operation: Operation,
    memory: Vec<u8>,
}

/// The host under attack: a real session, its operations in progress, and counts of their ends. It
/// reports each submission and completion to the [`Ledger`].
pub(crate) struct Host<R = AllRules> {
    pub(crate) session: Session<R>,
    habits: Habits,
    pending: BTreeMap<OpId, Pending>,
    /// Which links are part of the session.
    pub(crate) ports: [bool; LINKS],
    pub(crate) completed: usize,
    pub(crate) succeeded: usize,
    pub(crate) failure: Option<Failure>,
    pub(crate) is_closed: bool,
    out: Outgoing,
}

/// The host's own identity.
pub(crate) const IDENTITY: Uuid = Uuid::from_u128(1);

/// The session of that number, which is a device's first.
pub(crate) fn session_of(number: u64) -> Uuid {
    Uuid::from_u128(200 + u128::from(number))
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// The host's key.
pub(crate) fn key() -> SecretKey {
    SecretKey::from_random([1; 32])
}

fn keys() -> Arc<HostKeys> {
    Arc::new(HostKeys { secret: key(), target: super::target::key().public(), target_uuid: None })
}

impl<R: Rules> Host<R> {
    /// `number`: of the session.
    pub(crate) fn new(habits: Habits, number: u64, now: Instant) -> Self {
        let export = ExportId::Name(name("disk"));
        let config = SessionConfig {
            queue_size: SLOTS,
            damq_pages: 512,
            operations_max: DEPTH,
            read_only: habits.read_only,
            checksum: habits.checksum,
            stages: habits.stages,
            keep_alive: Duration::from_secs(1),
            reconnect_delay: Duration::from_millis(20),
            ctrl_loss_tmo: Some(PATIENCE),
            batch: BatchPolicy::Natural,
            channels: habits.channels,
            keys: habits.keyed.then(keys),
            ..SessionConfig::new(IDENTITY, name("host"), session_of(number), export)
        };
        let ports: Vec<_> = (0..LINKS).map(|link| port(habits, link)).collect();
        Self {
            session: Session::new(config, &ports, random(100 + number), now),
            habits,
            pending: BTreeMap::new(),
            ports: [true; LINKS],
            completed: 0,
            succeeded: 0,
            failure: None,
            is_closed: false,
            out: Outgoing::new(),
        }
    }

    /// Begins an operation on a plot of its own, if the session takes it.
    pub(crate) fn submit(&mut self, now: Instant, mut operation: Operation, ledger: &mut Ledger) {
        if operation.opcode != Opcode::Flush {
            operation.offset += ledger.plot();
        }
        let Ok(op) = self.session.submit(now, operation) else { return };
        let len = if operation.opcode.has_data() { operation.len as usize } else { 0 };
        let mut memory = vec![0; len];
        if operation.opcode == Opcode::Write {
            content::write(operation.offset, &mut memory);
        }
        ledger.submits(operation);
        let before = self.pending.insert(op, Pending { operation, memory });
        assert!(before.is_none(), "an operation's name is given out twice");
    }

    /// Takes a frame of a link; returns whether nothing was wrong with it.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        link: usize,
        frame: &[u8],
        ledger: &mut Ledger,
    ) -> bool {
        let Some((head, payload)) = split(frame).filter(|_| self.ports[link]) else { return false };
        let rejected = self.session.rejects().total();
        let mut opened = Opened::default();
        let payload = self.session.handle_frame(now, link, (head, payload), &mut opened);
        let happened = self.take_events(payload, ledger);
        let is_taken = self.session.rejects().total() == rejected;
        assert!(is_taken || happened == 0, "a frame that is wrong has an effect");
        is_taken
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, ledger: &mut Ledger) {
        self.session.handle_timeout(now);
        self.take_events(&[], ledger);
    }

    /// Looks at what has happened, and returns how much. `payload`: of the frame that was handled
    /// last.
    pub(crate) fn take_events(&mut self, payload: &[u8], ledger: &mut Ledger) -> usize {
        let mut happened = 0;
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.session.poll_event() else { return happened };
            happened += 1;
            match event {
                SessionEvent::Data { op, offset, len, source } => {
                    let pending = self.pending.get_mut(&op).expect("data of what has not ended");
                    assert!(pending.operation.opcode.returns_data());
                    let data = &payload[source as usize..][..len as usize];
                    pending.memory[offset as usize..][..len as usize].copy_from_slice(data);
                }
                SessionEvent::Completed { op, status } => {
                    let ended = self.pending.remove(&op).expect("an operation ends once");
                    ledger.completes(&ended.operation, status, &ended.memory);
                    self.completed += 1;
                    self.succeeded += usize::from(status == Status::Success);
                }
                SessionEvent::Failed(failure) => {
                    assert!(self.pending.is_empty(), "a failed session leaves operations");
                    assert!(self.failure.replace(failure).is_none(), "it fails twice");
                    assert!(
                        !self.habits.keyed || is_of_target(failure),
                        "nobody may say {failure}"
                    );
                }
                SessionEvent::Closed => self.is_closed = true,
                // What a frame of another version is good for.
                SessionEvent::OtherVersion(..) => happened -= 1,
                _ => {}
            }
        }
        panic!("a frame brings events without end");
    }

    /// The next frame that a link has to send.
    pub(crate) fn transmit(&mut self, now: Instant, link: usize) -> Option<(Mac, Vec<u8>)> {
        if !self.session.poll_transmit(now, link, &mut self.out) {
            return None;
        }
        assert!(self.ports[link], "a link that was removed sends");
        let (out, pending) = (&self.out, &self.pending);
        let frame = seal(HOSTS[link], out, |part, data| {
            let memory = &pending[&OpId(part.request)].memory;
            data.extend_from_slice(&memory[part.offset as usize..][..part.len as usize]);
        });
        assert!(frame.len() <= FRAME_LEN, "a frame of {} bytes", frame.len());
        Some((out.destination, frame))
    }

    /// Takes a link out of the session, or puts it back.
    pub(crate) fn toggle_link(&mut self, now: Instant, link: usize, ledger: &mut Ledger) {
        if self.ports[link] {
            self.session.remove_port(now, link);
            self.ports[link] = false;
            self.take_events(&[], ledger);
        } else if let Some(lowest) = self.ports.iter().position(|used| !used) {
            let index = self.session.add_port(now, port(self.habits, lowest));
            assert_eq!(index, lowest);
            self.ports[lowest] = true;
        }
    }

    /// The kernel says that a link is down, or takes shorter frames only.
    pub(crate) fn lose_link(&mut self, now: Instant, link: usize, down: bool, to: &mut Ledger) {
        if self.ports[link] {
            let problem = if down { Problem::Down } else { Problem::Narrowed };
            self.session.lose_port(now, link, problem);
            self.take_events(&[], to);
        }
    }

    /// The device goes.
    pub(crate) fn disconnect(&mut self, now: Instant, ledger: &mut Ledger) {
        self.session.disconnect(now);
        self.take_events(&[], ledger);
    }

    pub(crate) fn is_keyed(&self) -> bool {
        self.habits.keyed
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }
}

/// Whether a target that is as it was before may end a session so.
fn is_of_target(failure: Failure) -> bool {
    match failure {
        Failure::TargetLost | Failure::NoProgress => true,
        Failure::Rejected(reason) => {
            matches!(reason, Reason::Held | Reason::NoResources | Reason::NoState)
        }
        _ => false,
    }
}

fn port(habits: Habits, link: usize) -> PortConfig {
    let target = habits.knows_target.then_some(TARGETS[link]);
    PortConfig {
        frame_len_max: FRAME_LEN,
        rings: RINGS,
        target,
        node: None,
        transport: 0,
        routed: false,
        checks_data: false,
    }
}
