//! Models of what the threads of two queues do at the same time.

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::tests::{begin, end, export, flush, queues, renew};
use super::*;

/// Runs `main` here and `other` in a second thread, in all orders; then `check`.
fn at_once(
    [one, other]: [QueueHandle; 2],
    main: impl FnOnce(&QueueHandle),
    second: impl FnOnce(&QueueHandle) + 'static,
    check: impl FnOnce(&QueueHandle, &QueueHandle),
) {
    let thread = thread::spawn({
        let other = other.clone();
        move || second(&other)
    });
    main(&one);
    thread.join().unwrap();
    check(&one, &other);
}

#[test]
fn a_flush_fails_whenever_the_other_queue_hears_of_its_loss() {
    loom::model(|| {
        let [one, other] = queues();
        other.wrote();
        at_once(
            [one, other],
            |one| {
                assert!(!renew(one, 2));
                assert!(!flush(one), "the other queue's write is lost");
            },
            |other| {
                renew(other, 2);
                other.wrote();
            },
            |one, other| {
                // The loss may have been noted after it was reported.
                flush(one);
                assert!(flush(one) && flush(other) && !one.is_dirty() && !other.is_dirty());
            },
        );
    });
}

#[test]
fn a_loss_while_another_is_reported_is_not_hidden() {
    loom::model(|| {
        let [one, other] = queues();
        one.wrote();
        assert!(renew(&one, 2));
        let covers = Arc::new(std::sync::Mutex::new(Vec::new()));
        at_once(
            [one, other],
            {
                let covers = Arc::clone(&covers);
                move |one| {
                    *covers.lock().unwrap() = begin(one);
                    assert!(!end(one, &covers.lock().unwrap()));
                }
            },
            |other| {
                other.wrote();
                renew(other, 2);
            },
            |one, _| {
                let is_reported = covers.lock().unwrap()[1] != Written::NOTHING;
                assert_eq!(flush(one), is_reported, "once, whichever flush covers it");
            },
        );
    });
}

#[test]
fn flushes_at_the_same_time_report_a_loss_and_the_next_succeed() {
    loom::model(|| {
        let [one, other] = queues();
        one.wrote();
        assert!(renew(&one, 2) && !renew(&other, 2));
        let reported = Arc::new(AtomicBool::new(false));
        let note = |reported: &Arc<AtomicBool>| {
            let reported = Arc::clone(reported);
            move |queue: &QueueHandle| {
                if !flush(queue) {
                    reported.store(true, Ordering::Relaxed);
                }
            }
        };
        at_once([one, other], note(&reported), note(&reported), |one, other| {
            assert!(reported.load(Ordering::Relaxed), "not reported");
            assert!(flush(one) && flush(other));
        });
    });
}

#[test]
fn a_write_that_is_completed_during_a_flush_is_left_for_the_next() {
    loom::model(|| {
        let [one, other] = queues();
        other.wrote();
        let covers = Arc::new(std::sync::Mutex::new(Vec::new()));
        at_once(
            [one, other],
            {
                let covers = Arc::clone(&covers);
                move |one| {
                    *covers.lock().unwrap() = begin(one);
                    assert!(end(one, &covers.lock().unwrap()));
                }
            },
            QueueHandle::wrote,
            |one, other| {
                let covered = covers.lock().unwrap()[1].count();
                assert!(covered >= 1, "completed before");
                assert_eq!(other.is_dirty(), covered < 2);
                assert!(flush(one) && !other.is_dirty());
            },
        );
    });
}

#[test]
fn a_session_that_is_over_by_a_failure_says_which() {
    loom::model(|| {
        at_once(
            queues(),
            |one| assert!(!one.is_over() || one.failure().is_some()),
            |other| other.end(Some(Failure::ExportRemoved)),
            |one, _| assert!(one.failure().is_some()),
        );
    });
}

#[test]
fn the_size_is_the_same_wherever_it_is_asked_for() {
    loom::model(|| {
        at_once(
            queues(),
            |one| {
                one.resize(8192);
            },
            |other| other.connect(export(2)),
            |one, _| assert_eq!(one.export().map(|export| export.geometry.size), Some(one.size())),
        );
    });
}
