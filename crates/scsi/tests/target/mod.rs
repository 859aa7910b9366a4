//! A device server with initiators that are logged in. Each command that a grant would let pass is
//! answered by the server in the same way.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::HashMap;

use tyche_geometry::Geometry;
use tyche_scsi::cdb::Command;
use tyche_scsi::vpd::TargetPort;
use tyche_scsi::{
    ANSWER_LEN_MAX, Code, Grant, Lun, LunSet, NexusId, Reply, Server, Status, Step, Unit, Uuid,
};

/// The UUID of disks in the tests.
pub(crate) const UUID: Uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

/// The generation of disks in the tests.
pub(crate) const GENERATION: Uuid = Uuid::from_u128(1);

/// The port that initiators are logged in with.
pub(crate) const PORT: TargetPort = TargetPort { name: 0x2000_0200_5e10_0001, number: 2 };

/// A disk of 1 MiB with blocks of 512 bytes, a cache and discard.
pub(crate) const GEOMETRY: Geometry =
    Geometry { write_cache: true, discard: true, ..Geometry::new(1 << 20, 512) };

pub(crate) fn unit(geometry: Geometry) -> Unit {
    Unit { geometry, uuid: UUID, shared: false, generation: Some(GENERATION) }
}

/// A server, and the answer to its last command.
pub(crate) struct Target {
    pub(crate) server: Server,
    pub(crate) answer: Vec<u8>,
    /// Grants, with the changes of the server until then.
    grants: HashMap<(NexusId, Lun), (u64, Grant)>,
}

impl Target {
    /// A target whose LUN 0 is this disk.
    pub(crate) fn new(unit: Unit) -> Self {
        let mut server = Server::new(4);
        server.add(0, unit);
        Self { server, answer: Vec::new(), grants: HashMap::new() }
    }

    /// Lets an initiator in, and takes the attention for that at LUN 0.
    pub(crate) fn login(&mut self, initiator: u64) -> NexusId {
        let nexus = self.server.login(initiator, PORT, LunSet::ALL).unwrap();
        let step = self.command(nexus, Command::TestUnitReady);
        assert_eq!(code(step), Code::POWER_ON_OR_RESET);
        nexus
    }

    /// Begins a command at LUN 0.
    pub(crate) fn command(&mut self, nexus: NexusId, command: Command) -> Step {
        self.begin(nexus, Lun::ZERO, command.emit().unwrap().padded())
    }

    pub(crate) fn begin(&mut self, nexus: NexusId, lun: Lun, cdb: &[u8]) -> Step {
        let mut out = [0xa5; ANSWER_LEN_MAX + 1];
        let granted = self.grants.get(&(nexus, lun));
        let granted = granted.filter(|(changes, _)| *changes == self.server.changes());
        let task = granted.and_then(|(_, grant)| grant.begin(cdb));
        let step = self.server.begin(nexus, lun, cdb, &mut out[..ANSWER_LEN_MAX]);
        if let Some(task) = task {
            assert_eq!(step, Step::Perform(task), "{cdb:02x?} is granted");
        }
        if let Some(grant) = self.server.grant(nexus, lun) {
            self.grants.insert((nexus, lun), (self.server.changes(), grant));
        }
        let len = match step {
            Step::Answer(reply) => reply.len,
            _ => 0,
        };
        assert!(out[len..].iter().all(|byte| *byte == 0xa5), "{step:?} wrote past its answer");
        self.answer = out[..len].to_vec();
        step
    }
}

/// The code of a CHECK CONDITION.
pub(crate) fn code(step: Step) -> Code {
    match step {
        Step::Answer(Reply {
            status: Status::CheckCondition, sense: Some(sense), len: 0, ..
        }) => sense.code,
        other => panic!("no CHECK CONDITION: {other:?}"),
    }
}

/// A good end.
pub(crate) const GOOD: Step = Step::Answer(Reply::GOOD);
/// Another initiator has the logical unit.
pub(crate) const CONFLICT: Step =
    Step::Answer(Reply { status: Status::ReservationConflict, ..Reply::GOOD });
