//! A host and a target whose threads hand work over to each other.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

#[path = "../../native/tests/rig/mod.rs"]
mod rig;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use rig::{Client, Data, PATIENCE, SIZE, exercise, target};
use tyche_baseline::{HandOverDisk, HandOverLink, HandOverStore, hand_over};
use tyche_block::{Errno, Operation, OperationKind};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::{Link, memory};
use tyche_native::Target;
use tyche_remote::{Control, Notice};
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::memory::MemoryStore;
use tyche_testkit::alone;
use tyche_testkit::leaks::{descriptors, threads};
use tyche_testkit::wait::wait_until;

const SPIN: Duration = Duration::from_micros(20);

/// Waits for threads: one gets its name when it runs, and may be listed briefly after it ended.
fn await_threads(wanted: &[&str]) {
    let threads = || threads(std::process::id(), "tyche-");
    wait_until(&format!("only {wanted:?} run"), || threads() == wanted);
}

fn wrapped(link: impl Link + 'static) -> HandOverLink {
    hand_over(vec![Box::new(link)], SPIN).unwrap().pop().unwrap()
}

/// A target that receives, runs the protocol, and serves its store in three threads.
fn handing_target(link: impl Link + 'static, store: impl Store + 'static) -> Target {
    target(Box::new(wrapped(link)), Arc::new(HandOverStore::new(Arc::new(store), SPIN)))
}

fn handing_client(link: impl Link + 'static, ctrl_loss_tmo: Duration) -> Client {
    let client = Client::start(Box::new(link), ctrl_loss_tmo);
    client.with_disk(|disk| Arc::new(HandOverDisk::start(disk, SPIN).unwrap()))
}

fn disk() -> MemoryStore {
    MemoryStore::new(SIZE, 512).unwrap()
}

#[test]
fn requests_of_all_kinds_pass_through_all_threads() {
    let _alone = alone::in_program();
    for frame_len_max in [1514, 9014, 65549] {
        let (a, b) = memory::pair(frame_len_max).unwrap();
        let target = handing_target(a, disk());
        let client = handing_client(wrapped(b), PATIENCE).connected();
        exercise(&client, 77 + frame_len_max as u64, 40);
        await_threads(&[
            "tyche-complete",
            "tyche-link0",
            "tyche-receive",
            "tyche-receive",
            "tyche-session",
            "tyche-store",
        ]);
        assert_eq!(client.host.control().report().unwrap().waiting.operations, 0);
        drop((client, target));
        await_threads(&[]);
    }
}

#[test]
fn a_bad_link_costs_time_and_nothing_else() {
    let _alone = alone::in_program();
    let (a, b) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    plan.set_drop_ppm(10_000);
    plan.set_duplicate_ppm(10_000);
    plan.set_reorder_ppm(20_000);
    let b = FaultLink::new(wrapped(b), 12, Side::Both, plan).unwrap();
    let _target = handing_target(a, disk());
    let client = handing_client(b, PATIENCE).connected();
    exercise(&client, 6, 40);
    let report = client.host.control().report().unwrap();
    assert!(report.channel.retransmitted > 0, "{report:?}");
}

#[test]
fn a_slow_disk_answers_in_its_own_order() {
    let _alone = alone::in_program();
    let store = FaultStore::new(disk());
    let faults = store.faults();
    let (a, b) = memory::pair(9014).unwrap();
    let _target = handing_target(a, store);
    let client = handing_client(wrapped(b), PATIENCE).connected();
    faults.add(Rule::delay(Duration::from_millis(50)).on(OperationKind::Write));
    faults.add(Rule::fail(Errno::NOSPC).on(OperationKind::WriteZeroes));
    client.submit(Operation::Write { fua: false }, 0, Data::Out(&[5; 4096]), 1);
    client.submit(Operation::Read, 8192, Data::In(4096), 2);
    let zeroes = Operation::WriteZeroes { fua: false, may_unmap: false };
    client.submit(zeroes, 16384, Data::None(4096), 3);
    let mut answers: Vec<_> = (0..3).map(|_| client.answer()).collect();
    assert_eq!(answers.pop().map(|it| (it.token, it.result)), Some((1, Ok(()))));
    answers.sort_by_key(|it| it.token);
    let others: Vec<_> = answers.iter().map(|it| (it.token, it.result)).collect();
    assert_eq!(others, [(2, Ok(())), (3, Err(Errno::NOSPC))]);
}

#[test]
fn a_link_that_is_cut_stalls_and_goes_on() {
    let _alone = alone::in_program();
    let (a, b) = memory::pair(9014).unwrap();
    let plan = FaultPlan::new();
    let b = FaultLink::new(wrapped(b), 1, Side::Both, plan.clone()).unwrap();
    let _target = handing_target(a, disk());
    let client = handing_client(b, PATIENCE).connected();
    plan.set_cut(true);
    client.submit(Operation::Write { fua: true }, 0, Data::Out(&[9; 4096]), 1);
    client.await_notice(|notice| matches!(notice, Notice::Lost(_)));
    plan.set_cut(false);
    client.await_notice(|notice| matches!(notice, Notice::Connected(_)));
    assert_eq!(client.answer().result, Ok(()));
    assert_eq!(client.read(0, 4096).unwrap(), [9; 4096]);
}

#[test]
fn a_link_that_goes_down_is_reported_by_both_loops() {
    let _alone = alone::in_program();
    let (a, b) = memory::pair(9014).unwrap();
    let target = handing_target(a, disk());
    let client = handing_client(wrapped(b), PATIENCE).connected();
    // The other end of the link is gone with the target.
    drop(target);
    wait_until("the host knows", || {
        let report = client.host.control().report().unwrap();
        let problem = report.links[0].problem.as_deref().unwrap_or_default();
        problem.contains("network is down") || problem.contains("is gone")
    });
}

#[test]
fn every_request_is_answered_at_the_end() {
    let _alone = alone::in_program();
    for _ in 0..20 {
        let (a, b) = memory::pair(9014).unwrap();
        let _target = handing_target(a, disk());
        let client = handing_client(wrapped(b), PATIENCE).connected();
        // More than the session takes at once: some wait in its queue.
        for token in 0..200 {
            client.submit(Operation::Read, 0, Data::In(4096), token);
        }
        client.host.control().abort();
        client.await_notice(|notice| *notice == Notice::Closed);
        let mut tokens: Vec<_> = (0..200).map(|_| client.answer().token).collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..200));
        assert_eq!(client.flush(), Err(Errno::IO), "what comes later fails");
    }
}

#[test]
fn teardown_with_work_in_flight_leaves_nothing_behind() {
    let _alone = alone::in_program();
    let before = descriptors();
    for host_first in [true, false] {
        let store = FaultStore::new(disk());
        let faults = store.faults();
        let (a, b) = memory::pair(9014).unwrap();
        let target = handing_target(a, store);
        let client = handing_client(wrapped(b), PATIENCE).connected();
        faults.add(Rule::delay(Duration::from_millis(20)).on(OperationKind::Read));
        for token in 0..40 {
            client.submit(Operation::Read, token * 4096, Data::In(4096), token);
        }
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            if host_first {
                drop(client);
                drop(target);
            } else {
                drop(target);
                drop(client);
            }
            let _ = sender.send(());
        });
        ended.recv_timeout(PATIENCE).expect("both end");
        await_threads(&[]);
    }
    assert_eq!(descriptors(), before);
}
