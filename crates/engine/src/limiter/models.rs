//! Models of a limiter that threads share.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// A limit that is changed while a thread takes leaves nothing behind that was taken at the former
/// price.
#[test]
fn a_former_price_is_forgotten() {
    loom::model(|| {
        let limit = |iops| RateLimit { iops: NonZeroU64::new(iops), bytes_per_second: None };
        let limiter = Arc::new(Limiter::default());
        limiter.set(limit(1));
        let now = Instant(1_000_000_000_000);
        let other = Arc::clone(&limiter);
        let taking = thread::spawn(move || other.take(now, 1, 0));
        limiter.set(limit(1000));
        let _ = taking.join().unwrap();
        // A turn of it may count at the new price.
        assert!(limiter.take(now, 1, 0) <= now);
        assert!(limiter.take(now, 1, 0) <= now);
    });
}

/// Whatever the order in which two threads take, nothing is free: each has a turn of its own.
#[test]
fn two_threads_have_different_turns() {
    loom::model(|| {
        let limiter = Arc::new(Limiter::default());
        limiter.set(RateLimit { iops: NonZeroU64::new(1), bytes_per_second: None });
        let now = Instant(1_000_000_000_000);
        let _ = limiter.take(now, 1, 0);
        let other = Arc::clone(&limiter);
        let taking = thread::spawn(move || other.take(now, 1, 0));
        let mut turns = [limiter.take(now, 1, 0), taking.join().unwrap()];
        turns.sort();
        let after = |ms| now + Duration::from_millis(ms);
        assert_eq!(turns, [after(900), after(1900)]);
    });
}
