//! Stage times over links in memory: their sum is the time of the request, and a delay shows in its
//! own stage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::rig::{PATIENCE, SIZE, options, target};
use tyche_block::{Completion, Operation, OperationKind, Request};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::{Link, memory};
use tyche_native::{HostOptions, InlineHost, Stage, StageTimes};
use tyche_proto::SessionConfig;
use tyche_proto::wire::Reject;
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::memory::MemoryStore;

/// Long compared with every other stage.
const LONG: Duration = Duration::from_millis(20);

fn host(link: Box<dyn Link>, stages: bool) -> InlineHost {
    let options = options(link, None);
    let session = SessionConfig { stages, ..options.session };
    let mut host = InlineHost::new(HostOptions { session, ..options });
    host.connect(PATIENCE).unwrap();
    host
}

fn store() -> MemoryStore {
    MemoryStore::new(SIZE, 512).unwrap()
}

/// Executes a request; returns its stage times and its total time.
fn one(host: &mut InlineHost, operation: Operation, len: u32) -> (StageTimes, Duration) {
    let buffer = match operation {
        Operation::Read | Operation::Write { .. } => host.arena().alloc(len as usize),
        _ => None,
    };
    let begun = Instant::now();
    host.submit(Request { operation, offset: 0, len, buffer }, 1).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        host.wait(&mut done, PATIENCE);
    }
    let took = begun.elapsed();
    assert!(matches!(done[..], [Completion { token: 1, result: Ok(()), .. }]), "{done:?}");
    let times: Vec<_> = host.stage_times().collect();
    assert_eq!(times.len(), 1, "one request is over");
    (times[0], took)
}

/// The longest stage, which must have at least that share.
fn longest(times: &StageTimes, percent: u64) -> Stage {
    let longest = *Stage::ALL.iter().max_by_key(|&&stage| times.nanoseconds(stage)).unwrap();
    assert!(times.nanoseconds(longest) * 100 >= times.total() * percent, "{times:?}");
    longest
}

#[test]
fn requests_of_all_kinds_are_accounted_for() {
    let (a, b) = memory::pair(9014).unwrap();
    let _target = target(Box::new(a), Arc::new(store()));
    let mut host = host(Box::new(b), true);
    let write = Operation::Write { fua: false };
    let zeroes = Operation::WriteZeroes { fua: true, may_unmap: true };
    for (operation, len) in [
        (Operation::Read, 512),
        (write, 4096),
        (Operation::Read, 1 << 20),
        // In two pieces.
        (write, 2 << 20),
        (Operation::Read, 2 << 20),
        (Operation::Flush, 0),
        (zeroes, 1 << 20),
        (Operation::Discard, 4096),
    ] {
        let (times, took) = one(&mut host, operation, len);
        assert!(u128::from(times.total()) <= took.as_nanos(), "{times:?} in {took:?}");
        for stage in [Stage::TargetReceive, Stage::Store, Stage::WireThere, Stage::WireBack] {
            assert!(times.nanoseconds(stage) > 0, "no time in {stage:?}: {operation:?} {times:?}");
        }
        // A link in memory does not measure the frames' time in it.
        assert_eq!(times.nanoseconds(Stage::Wake) + times.nanoseconds(Stage::TargetWake), 0);
    }
    // A repeated answer of the handshake comes when nobody waits for it any more.
    let rejects = host.report().rejects;
    assert!(rejects.iter().all(|(reject, _)| reject == Reject::Unexpected), "{rejects:?}");
}

#[test]
fn a_slow_store_is_the_store_and_a_slow_link_the_wire() {
    let (a, b) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    let b = FaultLink::new(b, 1, Side::Both, plan.clone()).unwrap();
    let store = FaultStore::new(store());
    let faults = store.faults();
    let _target = target(Box::new(a), Arc::new(store) as Arc<dyn Store>);
    let mut host = host(Box::new(b), true);
    faults.add(Rule::delay(LONG).on(OperationKind::Read).times(1));
    let (times, _) = one(&mut host, Operation::Read, 4096);
    assert_eq!(longest(&times, 50), Stage::Store);
    assert!(u128::from(times.nanoseconds(Stage::Store)) >= LONG.as_nanos());
    // Each way; the two ways cannot be told apart.
    plan.set_delay(LONG);
    let (times, _) = one(&mut host, Operation::Read, 4096);
    assert!(matches!(longest(&times, 40), Stage::WireThere | Stage::WireBack), "{times:?}");
    let halves = [Stage::WireThere, Stage::WireBack].map(|stage| times.nanoseconds(stage));
    assert!(halves[0].abs_diff(halves[1]) <= 1, "{halves:?}");
    assert!(u128::from(halves[0] + halves[1]) >= 2 * LONG.as_nanos(), "{halves:?}");
}

#[test]
fn every_request_of_many_has_its_times() {
    let (a, b) = memory::pair(9014).unwrap();
    let _target = target(Box::new(a), Arc::new(store()));
    let mut host = host(Box::new(b), true);
    // More than the target has slots for: some wait to be submitted.
    let count = 64;
    for token in 0..count {
        let buffer = host.arena().alloc(4096);
        let request = Request { operation: Operation::Read, offset: 0, len: 4096, buffer };
        host.submit(request, token).unwrap();
    }
    let (mut done, mut times) = (Vec::new(), Vec::new());
    while (done.len() as u64) < count {
        host.wait(&mut done, PATIENCE);
        times.extend(host.stage_times());
    }
    assert_eq!(times.len(), done.len());
    assert!(times.iter().any(|it| it.nanoseconds(Stage::Submit) > 0), "some waited for a slot");
    assert_eq!(host.stage_times().count(), 0, "they are told once");
}

#[test]
fn who_does_not_ask_gets_nothing() {
    let (a, b) = memory::pair(9014).unwrap();
    let _target = target(Box::new(a), Arc::new(store()));
    let mut host = host(Box::new(b), false);
    let buffer = host.arena().alloc(4096);
    host.submit(Request { operation: Operation::Read, offset: 0, len: 4096, buffer }, 1).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        host.wait(&mut done, PATIENCE);
    }
    assert_eq!(host.stage_times().count(), 0);
    // A repeated answer of the handshake comes when nobody waits for it any more.
    let rejects = host.report().rejects;
    assert!(rejects.iter().all(|(reject, _)| reject == Reject::Unexpected), "{rejects:?}");
}
