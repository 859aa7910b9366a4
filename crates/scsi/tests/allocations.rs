//! Nothing is allocated for a command, at either end.

#![allow(missing_docs, clippy::unwrap_used)]

mod literals;
mod target;

use literals::{ANSWERS, cdbs, hex};
use target::{GEOMETRY, Target, unit};
use tyche_scsi::initiator::{Discovery, Progress, Translation, classify};
use tyche_scsi::{ANSWER_LEN_MAX, Lun, Operation, UNMAP_LEN_MAX, emit_unmap};
use tyche_testkit::allocations::{Counting, during};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds of all commands. Other threads, those of the tests' runner, allocate in a few of them.
const ROUNDS: usize = 1000;

#[test]
fn nothing_is_allocated_for_a_command() {
    let mut target = Target::new(unit(GEOMETRY));
    let nexus = target.login(1);
    let mut all: Vec<_> = ANSWERS.iter().map(|(cdb, _)| hex(cdb)).collect();
    all.extend(cdbs().iter().map(|(cdb, _)| hex(cdb)));
    // With operation codes that are not served.
    all.extend((0..=u8::MAX).map(|opcode| vec![opcode; 16]));
    let mut discovery = Discovery::default();
    let mut out = [0; ANSWER_LEN_MAX];
    // The server's own disk, for the initiator's commands.
    while let Some(request) = discovery.request() {
        let step = target.begin(nexus, Lun::ZERO, request.cdb.padded());
        let (status, sense, data) = (0, &[][..], &target.answer[..]);
        let answer = tyche_scsi::initiator::CommandAnswer { status, sense, data };
        assert!(matches!(discovery.handle(answer), Progress::Next | Progress::Done), "{step:?}");
    }
    let disk = *discovery.disk().unwrap();
    let mut list = [0; UNMAP_LEN_MAX];
    list[..24].copy_from_slice(&emit_unmap(0, 1));
    let mut fewest = usize::MAX;
    for _ in 0..ROUNDS {
        let server = &mut target.server;
        let ((), allocated) = during(|| {
            for cdb in &all {
                let _ = server.begin(nexus, Lun::ZERO, cdb, &mut out);
                let tasks = server.parameters(nexus, Lun::ZERO, cdb, &list);
                let _ = tasks.map(Iterator::count);
            }
            server.resize(0, 2 << 20);
            let operations = [
                (Operation::Read, 512),
                (Operation::Write { fua: true }, 512),
                (Operation::Flush, 0),
                (Operation::Discard, 512),
                (Operation::WriteZeroes { fua: false, may_unmap: true }, 512),
            ];
            for (operation, len) in operations {
                let next = disk.request(operation, 0, len);
                assert!(matches!(next, Ok(Translation::Command(_))));
                let _ = classify(2, &list[..18], Some(operation));
            }
        });
        fewest = fewest.min(allocated);
    }
    assert_eq!(fewest, 0, "bytes allocated in each round");
}
