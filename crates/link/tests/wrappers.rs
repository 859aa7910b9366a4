//! Faults around a link in memory.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::harness::{contents, frame, receive_all, send_all, wait};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::memory::{self, MemoryLink};
use tyche_link::{HEAD, Link, RxBatch, TxVectors};
use tyche_testkit::wait::PATIENCE;

const NOW: Duration = Duration::ZERO;

fn frames(count: usize) -> Vec<Vec<u8>> {
    let len = |n| HEAD + n * 31 % 1400;
    (0..count).map(|n| frame([2; 6], [4; 6], len(n), n as u64)).collect()
}

fn faulty(side: Side, plan: &FaultPlan) -> (FaultLink<MemoryLink>, MemoryLink) {
    let (a, b) = memory::pair(1514).unwrap();
    (FaultLink::new(a, 42, side, plan.clone()).unwrap(), b)
}

/// Receives all frames, until none has come and none is held for a while.
fn drain(link: &mut impl Link) -> Vec<Vec<u8>> {
    // More than the 32 frames that a held one waits for at most: with all frames waiting in the
    // inner link, their order then does not depend on the scheduling of this thread.
    let mut batch = RxBatch::new(64, 1450);
    let mut all = Vec::new();
    // Held frames leave within a millisecond, and wake the waiter.
    while wait(link, Duration::from_millis(50)) {
        link.receive(&mut batch).unwrap();
        all.extend(contents(&batch));
    }
    all
}

#[test]
fn without_faults_all_passes_untouched() {
    let (mut a, mut b) = faulty(Side::Both, &FaultPlan::new());
    let out = frames(500);
    let mut batch = RxBatch::new(64, 1450);
    send_all(&mut a, &out);
    assert!(receive_all(&mut b, &mut batch, 500) == out);
    send_all(&mut b, &out);
    assert!(receive_all(&mut a, &mut batch, 500) == out);
}

#[test]
fn the_same_seed_gives_the_same_frames_on_either_side() {
    let once = |side: Side, batch: usize| {
        let plan = FaultPlan::new();
        plan.set_drop_ppm(100_000);
        plan.set_duplicate_ppm(100_000);
        plan.set_reorder_ppm(100_000);
        plan.set_corrupt_ppm(100_000);
        let (mut a, mut b) = faulty(side, &plan);
        let mut all = Vec::new();
        for chunk in frames(600).chunks(batch) {
            if side == Side::Send {
                send_all(&mut a, chunk);
            } else {
                send_all(&mut b, chunk);
            }
        }
        if side == Side::Send {
            // Frames that still wait for followers leave by the wrapper's own timer.
            assert!(drain(&mut a).is_empty());
            all.extend(drain(&mut b));
        } else {
            all.extend(drain(&mut a));
        }
        (all, plan.counts())
    };
    for side in [Side::Send, Side::Receive] {
        let (frames, counts) = once(side, 600);
        assert!(counts.dropped > 0 && counts.duplicated > 0);
        assert!(counts.reordered > 0 && counts.corrupted > 0);
        assert_eq!(frames.len() as u64, 600 - counts.dropped + counts.duplicated);
        let again = once(side, 600);
        assert_eq!(again.1, counts);
        assert!(again.0 == frames, "{side:?}: another order or content");
    }
}

#[test]
fn a_side_without_faults_is_left_alone() {
    let plan = FaultPlan::new();
    plan.set_cut(true);
    let (mut a, mut b) = faulty(Side::Send, &plan);
    let out = frames(10);
    send_all(&mut a, &out);
    send_all(&mut b, &out);
    assert!(receive_all(&mut a, &mut RxBatch::new(64, 1450), 10) == out);
    assert!(!wait(&b, NOW));
    assert_eq!(plan.counts().cut, 10);
    let (mut a, mut b) = faulty(Side::Receive, &plan);
    send_all(&mut a, &out);
    send_all(&mut b, &out);
    assert!(receive_all(&mut b, &mut RxBatch::new(64, 1450), 10) == out);
    assert!(drain(&mut a).is_empty());
    assert_eq!(plan.counts().cut, 20);
}

#[test]
fn delayed_frames_wake_the_waiter_when_due_and_not_before() {
    let delay = Duration::from_millis(30);
    let plan = FaultPlan::new();
    plan.set_delay(delay);
    let mut batch = RxBatch::new(64, 1450);
    let out = frames(5);

    let (mut a, mut b) = faulty(Side::Receive, &plan);
    let start = Instant::now();
    send_all(&mut b, &out);
    assert!(wait(&a, PATIENCE), "the inner link wakes");
    let early = a.receive(&mut batch).unwrap();
    let mut got = contents(&batch);
    let awake = wait(&a, NOW);
    // On a busy machine the delay may be over already.
    if start.elapsed() < delay {
        assert_eq!((early, awake), (0, false), "held, and nothing to do until they are due");
    }
    got.extend(receive_all(&mut a, &mut batch, 5 - early));
    assert!(got == out);
    assert!(start.elapsed() >= delay);
    assert!(!wait(&a, NOW), "the timer is quiet again");

    let (mut a, mut b) = faulty(Side::Send, &plan);
    let start = Instant::now();
    send_all(&mut a, &out);
    assert!(!wait(&b, NOW));
    assert!(wait(&a, PATIENCE), "the timer asks for a call");
    assert_eq!(a.receive(&mut batch).unwrap(), 0);
    assert!(start.elapsed() >= delay);
    assert!(receive_all(&mut b, &mut batch, 5) == out);
    assert!(!wait(&a, NOW));
}

#[test]
fn the_plan_works_on_live_traffic_and_heals() {
    let plan = FaultPlan::new();
    let (mut a, mut b) = faulty(Side::Both, &plan);
    let mut batch = RxBatch::new(64, 1450);
    let out = frames(20);
    plan.set_frame_len_max(Some(500));
    send_all(&mut a, &out);
    let short: Vec<_> = out.iter().filter(|frame| frame.len() <= 500).cloned().collect();
    assert!(receive_all(&mut b, &mut batch, short.len()) == short);
    assert!(!wait(&b, NOW));
    assert_eq!(a.frame_len_max(), 1514, "the limit shows in nothing but loss");
    plan.heal();
    send_all(&mut a, &out);
    assert!(receive_all(&mut b, &mut batch, 20) == out);
}

#[test]
fn held_frames_survive_a_full_queue_of_the_inner_link() {
    let plan = FaultPlan::new();
    plan.set_delay(Duration::from_millis(1));
    let (mut a, mut b) = faulty(Side::Send, &plan);
    let out = frames(3 * memory::QUEUE);
    send_all(&mut a, &out);
    let mut batch = RxBatch::new(64, 1450);
    let mut all = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while all.len() < out.len() {
        assert!(wait(&a, PATIENCE), "the timer must ask again while frames are held");
        a.receive(&mut batch).unwrap();
        b.receive(&mut batch).unwrap();
        all.extend(contents(&batch));
        if wait(&b, NOW) {
            all.extend(drain(&mut b));
        }
        assert!(Instant::now() < deadline);
    }
    assert!(all == out);
}

#[test]
fn a_link_that_holds_too_much_takes_no_more() {
    let plan = FaultPlan::new();
    plan.set_delay(Duration::from_secs(1000));
    let (mut a, _b) = faulty(Side::Send, &plan);
    let mut vectors = TxVectors::new(1000, 0);
    let mut batch = vectors.batch();
    (0..1000).for_each(|_| batch.push(&[0; HEAD], [], &[]));
    let sent: Vec<_> = (0..6).map(|_| a.send(&batch).unwrap()).collect();
    assert_eq!(sent[..4], [1000; 4]);
    assert!(sent[4] < 100 && sent[5] == 0, "{sent:?}");
}

#[test]
fn errors_of_the_inner_link_come_through() {
    let plan = FaultPlan::new();
    plan.set_drop_ppm(1);
    let (mut a, b) = faulty(Side::Both, &plan);
    drop(b);
    let mut batch = RxBatch::new(1, 1450);
    assert_eq!(a.receive(&mut batch).unwrap_err().kind(), ErrorKind::NetworkDown);
    let mut vectors = TxVectors::new(1, 0);
    let mut batch = vectors.batch();
    batch.push(&[0; HEAD], [], &[]);
    assert_eq!(a.send(&batch).unwrap_err().kind(), ErrorKind::NetworkDown);
}
