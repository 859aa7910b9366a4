//! Bytes as what initiators and an operator do to a device server, and the properties that hold for
//! all of it. The fuzz target and the test that replays its corpus share the checks.
//!
//! An action is a byte and what it needs: a login (initiator, set of LUNs), a logout, a logical
//! unit that is added (number, flags, size), removed, resized, has lost writes or is reset; or a
//! command (initiator, LUN, room for the answer, length of the CDB, CDB; and a parameter list if
//! the command asks for one).

use tyche_geometry::Geometry;
use tyche_scsi::vpd::TargetPort;
use tyche_scsi::{
    ANSWER_LEN_MAX, Command, Grant, Lun, LunSet, NexusId, Operation, Reply, Server, Status, Step,
    TRANSFER_LEN_MAX, Task, UNITS_MAX, UNMAP_DESCRIPTORS_MAX, Unit, Uuid, WRITE_ZEROES_LEN_MAX,
};
use tyche_testkit::corpus::Bytes;

/// Initiators that the server remembers, and those that there are.
const NEXUSES_MAX: u16 = 3;
const INITIATORS: u8 = 5;

/// The actions that had an effect.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) answers: usize,
    pub(crate) attentions: usize,
    pub(crate) conflicts: usize,
    pub(crate) refusals: usize,
    pub(crate) operations: Vec<Operation>,
}

/// A server, and what is known of it.
struct World {
    server: Server,
    /// The nexus of each initiator that is logged in, and its LUNs.
    nexuses: [Option<(NexusId, LunSet)>; INITIATORS as usize],
    /// The initiator that writes to each unit.
    writers: [Option<u8>; UNITS_MAX],
    /// The last grant, with the changes of the server until then.
    granted: Option<(NexusId, Lun, u64, Grant)>,
    seen: Seen,
}

/// Does what the bytes say, to their end, and checks every step.
pub(crate) fn check(input: &[u8]) -> Seen {
    let mut world = World {
        server: Server::new(NEXUSES_MAX),
        nexuses: [None; INITIATORS as usize],
        writers: [None; UNITS_MAX],
        granted: None,
        seen: Seen::default(),
    };
    let mut bytes = Bytes(input);
    while world.act(&mut bytes).is_some() {}
    world.seen
}

impl World {
    fn act(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        match bytes.u8()? {
            0 => {
                let (initiator, visible) = (bytes.u8()? % INITIATORS, bytes.u8()?);
                let visible = match visible {
                    0xff => LunSet::ALL,
                    number => LunSet::NONE.with(0).with(number),
                };
                self.leave(initiator);
                let nexus = self.server.login(initiator.into(), TargetPort::default(), visible);
                let others = self.nexuses.iter().flatten().count();
                assert_eq!(nexus.is_ok(), others < usize::from(NEXUSES_MAX));
                self.nexuses[usize::from(initiator)] = nexus.ok().map(|nexus| (nexus, visible));
            }
            1 => {
                let initiator = bytes.u8()? % INITIATORS;
                if let Some((nexus, _)) = self.nexuses[usize::from(initiator)] {
                    self.server.logout(nexus);
                    self.leave(initiator);
                }
            }
            2 => {
                let (number, flags, size) = (bytes.u8()?, bytes.u8()?, bytes.u16()?);
                let flag = |bit: u8| flags >> bit & 1 != 0;
                let block_size: u32 = if flag(0) { 4096 } else { 512 };
                let size = (u64::from(size) * 4096) << ((flags >> 6) * 12);
                let (read_only, write_cache, discard) = (flag(1), flag(2), flag(3));
                let geometry =
                    Geometry { read_only, write_cache, discard, ..Geometry::new(size, block_size) };
                let uuid = Uuid::from_u128(u128::from(number));
                let generation = flag(5).then_some(uuid);
                let unit = Unit { geometry, uuid, shared: flag(4), generation };
                self.server.add(number, unit);
                self.writers[usize::from(number)] = None;
            }
            3 => {
                let number = bytes.u8()?;
                self.server.remove(number);
                self.writers[usize::from(number)] = None;
            }
            4 => {
                let (number, size) = (bytes.u8()?, bytes.u16()?);
                self.server.resize(number, u64::from(size) * 4096);
            }
            5 => self.server.renew(bytes.u8()?, Uuid::from_u128(bytes.u8()?.into())),
            6 => {
                let (number, initiator) = (bytes.u8()?, bytes.u8()? % INITIATORS);
                if let Some((nexus, _)) = self.nexuses[usize::from(initiator)] {
                    self.server.reset(number, nexus);
                }
            }
            _ => self.command(bytes)?,
        }
        Some(())
    }

    /// The login of an initiator is over.
    fn leave(&mut self, initiator: u8) {
        self.nexuses[usize::from(initiator)] = None;
        for writer in &mut self.writers {
            *writer = writer.filter(|writer| *writer != initiator);
        }
    }

    fn command(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let (initiator, lun) = (bytes.u8()? % INITIATORS, bytes.u8()?);
        let lun = match lun {
            0xff => Lun(bytes.array()?),
            number => Lun::peripheral(number),
        };
        let room = usize::from(bytes.u16()?).min(ANSWER_LEN_MAX);
        let len = bytes.u8()? % 17;
        let cdb = bytes.take(len.into())?;
        let Some((nexus, visible)) = self.nexuses[usize::from(initiator)] else { return Some(()) };
        let mut out = [0xa5; ANSWER_LEN_MAX];
        let changes = self.server.changes();
        let granted = self.granted.filter(|it| (it.0, it.1, it.2) == (nexus, lun, changes));
        let task = granted.and_then(|(.., grant)| grant.begin(cdb));
        let step = self.server.begin(nexus, lun, cdb, &mut out[..room]);
        assert!(task.is_none_or(|task| step == Step::Perform(task)), "{step:?}, granted {task:?}");
        let grant = self.server.grant(nexus, lun);
        self.granted = grant.map(|grant| (nexus, lun, self.server.changes(), grant));
        let written = match step {
            Step::Answer(reply) => {
                self.check_reply(reply, cdb, room);
                reply.len
            }
            _ => 0,
        };
        assert!(out[written..].iter().all(|byte| *byte == 0xa5), "{step:?} writes past its end");
        match step {
            Step::Answer(_) => {}
            Step::Perform(task) => {
                self.check_task(task, initiator, lun, visible);
            }
            Step::PerformStable { task, .. } => {
                assert_eq!(task.operation, Operation::Read);
                self.check_task(task, initiator, lun, visible);
            }
            Step::Collect { len } => {
                assert!(len > 0 && len <= 4096, "{len}");
                let sent = usize::from(bytes.u16()?) % (len as usize + 1);
                let list = bytes.take(sent)?;
                self.parameters((nexus, visible), initiator, lun, cdb, list);
            }
        }
        Some(())
    }

    fn parameters(
        &mut self,
        (nexus, visible): (NexusId, LunSet),
        initiator: u8,
        lun: Lun,
        cdb: &[u8],
        list: &[u8],
    ) {
        match self.server.parameters(nexus, lun, cdb, list) {
            Err(reply) => self.check_reply(reply, cdb, 0),
            Ok(tasks) => {
                let tasks: Vec<_> = tasks.collect();
                assert!(tasks.len() <= UNMAP_DESCRIPTORS_MAX);
                let total: u64 = tasks.iter().map(|task| u64::from(task.len)).sum();
                assert!(total <= WRITE_ZEROES_LEN_MAX.into(), "{total}");
                for task in tasks {
                    self.check_task(task, initiator, lun, visible);
                }
            }
        }
    }

    fn check_reply(&mut self, reply: Reply, cdb: &[u8], room: usize) {
        assert!(reply.len <= room);
        assert_eq!(reply.sense.is_some(), reply.status == Status::CheckCondition);
        assert!(reply.len == 0 || reply.status == Status::Good);
        match (reply.status, reply.sense) {
            (Status::Good, _) => self.seen.answers += 1,
            (Status::ReservationConflict, _) => self.seen.conflicts += 1,
            (Status::CheckCondition, Some(sense)) => {
                let is_attention = sense.key as u8 == 6;
                self.seen.attentions += usize::from(is_attention);
                self.seen.refusals += usize::from(!is_attention);
            }
            other => panic!("{other:?}"),
        }
        if reply.len == 0 {
            return;
        }
        let allocation = match Command::parse(cdb) {
            Ok(Command::RequestSense { allocation, .. }) => allocation.into(),
            Ok(
                Command::Inquiry { allocation, .. }
                | Command::ModeSense { allocation, .. }
                | Command::PersistentReserveIn { allocation, .. },
            ) => allocation.into(),
            Ok(
                Command::ReadCapacity16 { allocation }
                | Command::ReportLuns { allocation, .. }
                | Command::ReportOpcodes { allocation, .. },
            ) => allocation,
            Ok(Command::ReadCapacity10) => 8,
            other => panic!("{other:?} has no answer"),
        };
        assert!(reply.len <= allocation as usize, "{} of {allocation}", reply.len);
    }

    fn check_task(&mut self, task: Task, initiator: u8, lun: Lun, visible: LunSet) {
        let Task { unit: number, operation, offset, len } = task;
        assert_eq!(lun.number(), Some(number.into()));
        assert!(visible.has(number), "a task of a logical unit that can't be seen");
        let Unit { geometry, shared, .. } = *self.server.unit(number).expect("the unit is there");
        if operation == Operation::Flush {
            assert_eq!((offset, len), (0, 0));
        } else {
            let block = u64::from(geometry.block_size);
            assert!(len > 0 && offset % block == 0 && u64::from(len) % block == 0, "{task:?}");
            assert!(offset + u64::from(len) <= geometry.size, "{task:?} in {geometry:?}");
        }
        let len_max = match operation {
            Operation::Read | Operation::Write { .. } => TRANSFER_LEN_MAX,
            _ => WRITE_ZEROES_LEN_MAX,
        };
        assert!(len <= len_max, "{task:?}");
        if operation.modifies() {
            assert!(!geometry.read_only, "{task:?} of a read-only disk");
            let writer = self.writers[usize::from(number)].get_or_insert(initiator);
            assert!(shared || *writer == initiator, "a second writer");
        }
        if operation == Operation::Discard {
            assert!(geometry.discard);
        }
        self.seen.operations.push(operation);
    }
}
