//! Two ends in one process, used as any link.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use crate::harness::{contents, frame, receive_all, send_all, wait};
use tyche_link::memory::{self, QUEUE};
use tyche_link::{HEAD, Link, RxBatch, TxVectors};

const NOW: Duration = Duration::ZERO;

fn some_frames(from: &impl Link, to: &impl Link, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| frame(to.mac(), from.mac(), HEAD + n * 37 % 1400, n as u64)).collect()
}

#[test]
fn frames_arrive_in_order_both_ways_at_once_from_two_threads() {
    let (mut a, mut b) = memory::pair(1514).unwrap();
    let (there, back) = (some_frames(&a, &b, 5000), some_frames(&b, &a, 5000));
    thread::scope(|scope| {
        let (there, back) = (&there, &back);
        // Each thread sends a full queue and then receives as much, five times over. One may be a
        // round ahead.
        let exchange = |link: &mut memory::MemoryLink, out: &[Vec<u8>], wanted: &[Vec<u8>]| {
            let mut batch = RxBatch::new(50, 1450);
            let mut all = Vec::new();
            for (round, out) in out.chunks(1000).enumerate() {
                send_all(link, out);
                let missing = ((round + 1) * 1000).saturating_sub(all.len());
                all.extend(receive_all(link, &mut batch, missing));
            }
            assert!(all == wanted);
        };
        let (a, b) = (&mut a, &mut b);
        scope.spawn(move || exchange(a, there, back));
        scope.spawn(move || exchange(b, back, there));
    });
}

#[test]
fn the_descriptor_is_readable_exactly_while_frames_wait() {
    let (mut a, mut b) = memory::pair(1514).unwrap();
    let mut batch = RxBatch::new(2, 1450);
    assert!(!wait(&b, NOW));
    let frames = some_frames(&a, &b, 3);
    send_all(&mut a, &frames);
    assert!(wait(&b, NOW) && !wait(&a, NOW));
    assert_eq!(b.receive(&mut batch).unwrap(), 2);
    assert!(wait(&b, NOW), "one is left");
    assert_eq!(b.receive(&mut batch).unwrap(), 1);
    assert_eq!(contents(&batch), frames[2..]);
    assert!(!wait(&b, NOW));
    assert_eq!(b.receive(&mut batch).unwrap(), 0);
    send_all(&mut a, &frames);
    assert!(wait(&b, NOW), "readable again");
}

#[test]
fn a_full_queue_takes_no_more_and_goes_on_when_drained() {
    let (mut a, mut b) = memory::pair(100).unwrap();
    let mut vectors = TxVectors::new(QUEUE, 0);
    let mut batch = vectors.batch();
    for _ in 0..QUEUE - 1 {
        batch.push(&[1; HEAD], [], &[]);
    }
    assert_eq!(a.send(&batch).unwrap(), QUEUE - 1);
    let mut vectors = TxVectors::new(3, 0);
    let mut batch = vectors.batch();
    for number in 2..5 {
        batch.push(&[number; HEAD], [], &[]);
    }
    assert_eq!(a.send(&batch).unwrap(), 1);
    batch.skip(1);
    assert_eq!(a.send(&batch).unwrap(), 0);
    let mut received = RxBatch::new(QUEUE, 36);
    assert_eq!(b.receive(&mut received).unwrap(), QUEUE);
    assert_eq!(received.frame(QUEUE - 1).head, [2; HEAD]);
    assert_eq!(a.send(&batch).unwrap(), 2);
    assert_eq!(b.receive(&mut received).unwrap(), 2);
    assert_eq!(contents(&received), [[3; HEAD], [4; HEAD]]);
    assert_eq!(b.overruns(), 0);
}

#[test]
fn a_frame_that_is_too_long_is_refused_and_those_before_it_are_sent() {
    let (mut a, mut b) = memory::pair(100).unwrap();
    let data = [7; 37];
    let mut vectors = TxVectors::new(3, 1);
    let mut batch = vectors.batch();
    batch.push(&[1; HEAD], [&data[..36]], &[]);
    batch.push(&[2; HEAD], [&data[..]], &[]);
    batch.push(&[3; HEAD], [], &data[..36]);
    assert_eq!(a.send(&batch).unwrap(), 1);
    batch.skip(1);
    assert!(a.send(&batch).is_err());
    batch.skip(1);
    assert_eq!(a.send(&batch).unwrap(), 1);
    let mut received = RxBatch::new(8, 36);
    assert_eq!(b.receive(&mut received).unwrap(), 2);
    assert_eq!(received.frame(1).payload, &data[..36]);
}

#[test]
fn a_dropped_end_is_a_cut_cable_after_what_was_on_the_way() {
    let (mut a, mut b) = memory::pair(1514).unwrap();
    let frames = some_frames(&a, &b, 3);
    send_all(&mut a, &frames);
    drop(a);
    let mut batch = RxBatch::new(8, 1450);
    assert!(wait(&b, NOW));
    b.receive(&mut batch).unwrap();
    assert_eq!(contents(&batch), frames);
    assert!(wait(&b, NOW), "the end is announced, too");
    assert_eq!(b.receive(&mut batch).unwrap_err().kind(), ErrorKind::NetworkDown);
    let mut vectors = TxVectors::new(1, 0);
    let mut batch = vectors.batch();
    batch.push(&[0; HEAD], [], &[]);
    assert_eq!(b.send(&batch).unwrap_err().kind(), ErrorKind::NetworkDown);
}

#[test]
fn a_sleeper_is_woken_by_the_other_thread() {
    let (mut a, mut b) = memory::pair(1514).unwrap();
    let frames = some_frames(&a, &b, 100);
    thread::scope(|scope| {
        let wanted = &frames;
        scope.spawn(move || {
            let mut batch = RxBatch::new(1, 1450);
            assert!(receive_all(&mut b, &mut batch, 100) == *wanted);
        });
        // One at a time, so that the queue runs empty again and again.
        frames.chunks(1).for_each(|frame| send_all(&mut a, frame));
    });
}

#[test]
fn every_end_has_an_address_of_its_own() {
    let pairs: Vec<_> = (0..3).map(|_| memory::pair(1514).unwrap()).collect();
    let mut macs: Vec<_> = pairs.iter().flat_map(|(a, b)| [a.mac(), b.mac()]).collect();
    macs.sort_unstable();
    macs.dedup();
    assert_eq!(macs.len(), 6);
    assert!(macs.iter().all(|mac| mac[0] & 3 == 2), "locally administered, unicast");
}
