//! Models of the losses that lanes share.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// A write is done on one lane while a loss is heard of on another, and neither knows of the other:
/// the next flush fails, for the write may have been in the cache.
#[test]
fn a_loss_and_a_write_do_not_miss_each_other() {
    loom::model(|| {
        let losses = Arc::new(Losses::new(2));
        let since = losses.begin_write();
        let hearing = Arc::clone(&losses);
        let other = thread::spawn(move || hearing.lose());
        losses.written(0, since);
        let _ = other.join().unwrap();
        assert!(losses.take() || !losses.flushed(losses.begin_flush()));
        assert!(losses.flushed(losses.begin_flush()), "it was told");
    });
}

/// A flush on one lane and a loss that is heard of on another, with a write before both.
#[test]
fn a_flush_beside_a_loss_is_not_the_last_word() {
    loom::model(|| {
        let losses = Arc::new(Losses::new(2));
        losses.written(0, losses.begin_write());
        let hearing = Arc::clone(&losses);
        let other = thread::spawn(move || hearing.lose());
        let is_safe = losses.flushed(losses.begin_flush());
        let was_dirty = other.join().unwrap();
        let next = !losses.take() && losses.flushed(losses.begin_flush());
        assert!(!is_safe || !next || !was_dirty, "a flush has failed, or all was durable before");
    });
}
