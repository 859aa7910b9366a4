//! Models of the losses that lanes share.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// A flush of what was done by now; whether it succeeds. A failure settles what it covers.
fn flush(losses: &Losses) -> bool {
    let since = losses.begin_flush();
    let is_durable = losses.flushed(&since, true) == Flushed::Durable;
    losses.settle(&since);
    is_durable
}

/// A write is done on one lane while a loss is noticed on another, and neither knows of the other:
/// the next flush fails, for the write may have been in the cache.
#[test]
fn a_loss_and_a_write_do_not_miss_each_other() {
    loom::model(|| {
        let losses = Arc::new(Losses::new(2));
        let since = losses.begin_write();
        let noticing = Arc::clone(&losses);
        let other = thread::spawn(move || noticing.lose());
        losses.written(0, since);
        let _ = other.join().unwrap();
        assert!(!flush(&losses));
        assert!(flush(&losses), "it was told");
    });
}

/// The disk loses a write while a flush is on its way, and tells both lanes: the flush fails if the
/// disk has begun it after the loss, and nobody is told twice.
#[test]
fn a_flush_beside_a_loss_fails_unless_it_came_before() {
    loom::model(|| {
        let losses = Arc::new(Losses::new(2));
        let disk = Arc::new(AtomicU64::new(0));
        losses.written(0, losses.begin_write());
        let (noticing, losing) = (Arc::clone(&losses), Arc::clone(&disk));
        let other = thread::spawn(move || {
            losing.store(1, Ordering::Release);
            noticing.lose()
        });
        let since = losses.begin_flush();
        let was_lost = disk.load(Ordering::Acquire) == 1;
        if was_lost {
            let _ = losses.lose();
        }
        let is_durable = losses.flushed(&since, true) == Flushed::Durable;
        losses.settle(&since);
        let _ = other.join().unwrap();
        assert!(!(was_lost && is_durable), "the write is lost");
        assert!(flush(&losses), "it was told, or durable before");
    });
}

/// Two threads of a target notice a loss of the store, and the one that is later flushes.
#[test]
fn a_flush_beside_one_that_notices_the_same_loss_fails() {
    loom::model(|| {
        let losses = Arc::new(Losses::of_initiator());
        losses.written(0, losses.begin_write());
        let noticing = Arc::clone(&losses);
        let other = thread::spawn(move || noticing.notice(1));
        losses.notice(1);
        assert!(!flush(&losses));
        other.join().unwrap();
    });
}
