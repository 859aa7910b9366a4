//! Tests that take the kernel's answers before the queue sees them.

use tyche_block::PAGE;
use tyche_testkit::wait::{PATIENCE, wait_readable};

use super::*;
use crate::file::FileOptions;

fn opened(size: u64) -> (tempfile::NamedTempFile, Arc<Opened>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    let opened = Opened::new(file.path(), &FileOptions::default()).unwrap();
    (file, Arc::new(opened))
}

fn flush() -> Request {
    Request { operation: Operation::Flush, offset: 0, len: 0, buffer: None }
}

/// Takes the kernel's next answer before the queue sees it.
fn intercept(queue: &mut RingQueue) -> KernelAnswer {
    queue.kick().unwrap();
    assert!(wait_readable(queue.wait_fd().unwrap(), PATIENCE));
    queue.enter(0).unwrap();
    queue.pop().expect("readable means that a completion waits")
}

/// The results after an answer, by token.
fn results(queue: &mut RingQueue, answer: KernelAnswer) -> Vec<(u64, Result<(), Errno>)> {
    let mut done = Vec::new();
    queue.handle(answer, &mut done);
    done.into_iter().map(|completion| (completion.token, completion.result)).collect()
}

/// The sync of the second may have been told nothing, because that of the first was.
#[test]
fn a_failed_sync_fails_all_that_were_submitted_before_its_end() {
    let (_file, opened) = opened(4096);
    let mut queue = RingQueue::new(&opened, 4).unwrap();
    queue.submit(1, flush());
    queue.submit(2, flush());
    assert_eq!(intercept(&mut queue), KernelAnswer::Sync(0));
    let failed = KernelAnswer::Sync(-libc::EIO);
    assert_eq!(results(&mut queue, failed), [(1, Err(Errno::IO))]);
    queue.submit(3, flush());
    let answer = intercept(&mut queue);
    assert_eq!(answer, KernelAnswer::Sync(0));
    assert_eq!(results(&mut queue, answer), [(2, Err(Errno::IO))]);
    let answer = intercept(&mut queue);
    assert_eq!(results(&mut queue, answer), [(3, Ok(()))], "all it covers is later");
    assert_eq!(opened.syncs.failures(), 1, "one loss, told twice");
}

#[test]
fn flushes_that_wait_share_the_next_sync() {
    let (_file, opened) = opened(4096);
    let mut queue = RingQueue::new(&opened, 4).unwrap();
    (1..=4).for_each(|token| queue.submit(token, flush()));
    let first = intercept(&mut queue);
    assert_eq!(results(&mut queue, first), [(1, Ok(()))]);
    let second = intercept(&mut queue);
    assert_eq!(results(&mut queue, second), [(2, Ok(())), (3, Ok(())), (4, Ok(()))]);
    assert_eq!((queue.in_flight(), queue.unanswered), (0, 0));
}

#[test]
fn a_failed_sync_fails_the_requests_of_all_queues_and_counts_once() {
    let (_file, opened) = opened(4096);
    let mut one = RingQueue::new(&opened, 1).unwrap();
    let mut other = RingQueue::new(&opened, 2).unwrap();
    one.submit(1, flush());
    other.submit(2, flush());
    other.submit(3, flush());
    assert_eq!(intercept(&mut one), KernelAnswer::Sync(0));
    assert_eq!(results(&mut one, KernelAnswer::Sync(-libc::EIO)), [(1, Err(Errno::IO))]);
    assert_eq!(intercept(&mut other), KernelAnswer::Woken);
    assert_eq!(results(&mut other, KernelAnswer::Woken), [], "it runs one itself");
    let answer = intercept(&mut other);
    let failed = Err(Errno::IO);
    assert_eq!(results(&mut other, answer), [(2, failed), (3, failed)]);
    assert_eq!(opened.syncs.failures(), 1);
    other.submit(4, flush());
    let answer = intercept(&mut other);
    assert_eq!(results(&mut other, answer), [(4, Ok(()))]);
    assert_eq!((other.in_flight(), other.unanswered), (0, 0));
}

#[test]
fn queues_that_wait_share_the_sync_of_one_of_them() {
    let (_file, opened) = opened(4096);
    let mut queues = [(); 3].map(|()| RingQueue::new(&opened, 1).unwrap());
    queues.iter_mut().zip(1..).for_each(|(queue, token)| queue.submit(token, flush()));
    let [one, other, third] = &mut queues;
    let answer = intercept(one);
    assert_eq!(results(one, answer), [(1, Ok(()))]);
    for queue in [&mut *other, &mut *third] {
        assert_eq!(intercept(queue), KernelAnswer::Woken);
        assert_eq!(results(queue, KernelAnswer::Woken), []);
    }
    let answer = intercept(other);
    assert_eq!(results(other, answer), [(2, Ok(()))]);
    assert_eq!(intercept(third), KernelAnswer::Woken);
    assert_eq!(results(third, KernelAnswer::Woken), [(3, Ok(()))], "that covered it, too");
}

#[test]
fn a_queue_that_ends_keeps_no_other_waiting() {
    let (_file, opened) = opened(4096);
    for is_kicked in [false, true] {
        let mut one = RingQueue::new(&opened, 1).unwrap();
        let mut other = RingQueue::new(&opened, 1).unwrap();
        let mut waits = RingQueue::new(&opened, 1).unwrap();
        one.submit(1, flush());
        other.submit(2, flush());
        waits.submit(3, flush());
        if is_kicked {
            one.kick().unwrap();
        }
        waits.kick().unwrap();
        drop(waits);
        drop(one);
        assert_eq!(intercept(&mut other), KernelAnswer::Woken);
        assert_eq!(results(&mut other, KernelAnswer::Woken), []);
        let answer = intercept(&mut other);
        assert_eq!(results(&mut other, answer), [(2, Ok(()))]);
    }
}

#[test]
fn an_interrupted_sync_is_run_again() {
    let (_file, opened) = opened(4096);
    let mut queue = RingQueue::new(&opened, 1).unwrap();
    queue.submit(1, flush());
    assert_eq!(intercept(&mut queue), KernelAnswer::Sync(0));
    assert_eq!(results(&mut queue, KernelAnswer::Sync(-libc::EINTR)), []);
    let answer = intercept(&mut queue);
    assert_eq!(results(&mut queue, answer), [(1, Ok(()))]);
    assert_eq!(opened.syncs.failures(), 0);
}

#[test]
fn a_failed_sync_is_a_loss_where_there_is_a_cache() {
    for write_back in [true, false] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let options = FileOptions { write_back, ..FileOptions::default() };
        let opened = Arc::new(Opened::new(file.path(), &options).unwrap());
        let mut queue = RingQueue::new(&opened, 1).unwrap();
        let buffer = Arena::new(1).alloc(PAGE);
        let operation = Operation::Write { fua: false };
        queue.submit(1, Request { operation, offset: 0, len: 4096, buffer });
        let KernelAnswer::Slot(slot, 4096) = intercept(&mut queue) else { panic!("it succeeds") };
        let failed = queue.advance(slot, -libc::EIO).unwrap();
        assert_eq!((failed.result, opened.losses()), (Err(Errno::IO), 0), "its own failure");
        queue.submit(2, flush());
        assert_eq!(intercept(&mut queue), KernelAnswer::Sync(0));
        let lost = results(&mut queue, KernelAnswer::Sync(-libc::EIO));
        assert_eq!((lost, opened.losses()), (vec![(2, Err(Errno::IO))], write_back.into()));
    }
}

#[test]
fn a_short_answer_is_continued_by_reap_itself() {
    let (file, opened) = opened(4 * PAGE as u64);
    std::fs::write(file.path(), [0x5a; 4 * PAGE]).unwrap();
    let mut queue = RingQueue::new(&opened, 1).unwrap();
    let buffer = Arena::new(4).alloc(4 * PAGE);
    let len = 4 * PAGE as u32;
    queue.submit(1, Request { operation: Operation::Read, offset: 0, len, buffer });
    let KernelAnswer::Slot(slot, answer) = intercept(&mut queue) else { panic!("no sync") };
    assert_eq!(answer, 4 * PAGE as i32);
    assert!(queue.advance(slot, PAGE as i32).is_none(), "three pages are left");
    assert_eq!(intercept(&mut queue), KernelAnswer::Slot(slot, 3 * PAGE as i32));
    let done = queue.advance(slot, 3 * PAGE as i32).unwrap();
    assert_eq!(done.buffer.as_deref(), Some(&[0x5a; 4 * PAGE][..]));
}

/// The entry of registered memory that covers these bytes.
fn find(queue: &mut RingQueue, bytes: &[u8]) -> Option<u16> {
    queue.buffers.find(&queue.ring.submitter(), bytes)
}

#[test]
fn registered_memory_is_used_as_such_while_it_is_registered() {
    let (_file, opened) = opened(4096);
    let mut queue = RingQueue::new(&opened, 4).unwrap();
    let arena = Arena::new(2);
    queue.register(&arena);
    let extent = arena.alloc(PAGE).unwrap();
    let Some(index) = find(&mut queue, &extent) else {
        println!("SKIPPED: the kernel registers no memory here (ulimit -l?)");
        return;
    };
    assert_eq!(find(&mut queue, &Arena::new(1).alloc(1).unwrap()), None);
    let operation = Operation::Write { fua: false };
    queue.submit(1, Request { operation, offset: 0, len: 4096, buffer: Some(extent) });
    assert_eq!(queue.slots.iter().flatten().next().unwrap().registered, Some(index));
    let answer = intercept(&mut queue);
    assert!(matches!(answer, KernelAnswer::Slot(_, 4096)), "the kernel knows the memory");
    assert_eq!(results(&mut queue, answer).len(), 1);
    queue.unregister(&arena);
    assert_eq!(find(&mut queue, &arena.claim(0, 1).unwrap()), None);
}
