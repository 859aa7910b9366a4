//! Requests to the threads of a target's interfaces: to end commands.
//!
//! The commands of a logical unit are in the lanes of all interfaces, and so a task management
//! function that one is asked for concerns the others. So does a change of who may know of a unit,
//! which concerns all. Each thread has a mailbox. An [`Order`] tells by its end that its commands
//! have ended, also if its thread ends.
//!
//! ```text
//! asked ── Order, one for each (other) thread ─► mailbox ─► ends commands, waits for the disk
//!   ▲                                                            │
//!   └──────────── the last order is dropped: Answers ────────────┘
//! ```
//!
//! A thread looks at one flag in each turn of its loop; nothing here is touched for a command.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tyche_fc::target_end::Function;

/// Has a thread have its turn.
pub(super) type Wake = Box<dyn Fn() + Send + Sync>;

/// The mailboxes of a target's threads.
#[derive(Default)]
pub(super) struct Peers(Mutex<Vec<Arc<Mailbox>>>);

/// Commands that a thread is to end.
pub(super) struct Order {
    pub(super) tasks: Tasks,
    answers: Arc<Answers>,
}

/// The commands of an order.
#[derive(Clone, Copy)]
pub(super) enum Tasks {
    /// Those that a function is about.
    Function([u8; 8], Function),
    /// Those at a logical unit of initiators that may not know of it any more.
    Hidden(u8),
    /// All at a logical unit that is removed.
    Removed(u8),
}

/// The orders for the same commands that have not ended.
pub(super) struct Answers {
    left: AtomicUsize,
    asked: Arc<Mailbox>,
}

/// The inbox of one thread for orders. Other threads put orders in and wake it; the thread looks at
/// `has_news` in each turn of its loop, and takes the lock only if it is set.
#[derive(Default)]
struct Mailbox {
    has_news: AtomicBool,
    orders: Mutex<Vec<Order>>,
    wake: OnceLock<Wake>,
}

/// A thread's place among the others, until it is dropped.
pub(super) struct Peer {
    peers: Arc<Peers>,
    own: Arc<Mailbox>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    fn ring(&self) {
        self.has_news.store(true, Ordering::Release);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        self.answers.left.fetch_sub(1, Ordering::AcqRel);
        self.answers.asked.ring();
    }
}

impl Answers {
    /// The number of threads that have not ended their commands.
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }
}

/// The end of all that initiators have at logical units of which they may not know any more.
pub struct Departure {
    answers: Vec<Arc<Answers>>,
    woken: Receiver<()>,
}

impl Departure {
    /// The event that is waited for.
    pub(super) fn answers(&self) -> impl Iterator<Item = Arc<Answers>> {
        self.answers.iter().cloned()
    }

    /// Waits until none of their commands is with a disk, or will be: on all interfaces. Returns
    /// whether that was so within `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.answers.iter().any(|answers| answers.left() > 0) {
            let left = until.saturating_duration_since(Instant::now());
            // Woken once more for each that has ended.
            if left.is_zero() || self.woken.recv_timeout(left).is_err() {
                return false;
            }
        }
        true
    }
}

impl Peers {
    /// Has all threads end commands.
    pub(super) fn order_all(&self, tasks: impl Iterator<Item = Tasks>) -> Departure {
        let (sender, woken) = channel();
        let asked = Arc::<Mailbox>::default();
        let wake = move || {
            // Who does not wait does not need to know.
            let _ = sender.send(());
        };
        asked.wake.get_or_init(|| Box::new(wake));
        Departure { answers: tasks.map(|tasks| self.order(&asked, tasks)).collect(), woken }
    }

    /// Has all threads but the one that asks end commands.
    fn order(&self, asked: &Arc<Mailbox>, tasks: Tasks) -> Arc<Answers> {
        let others = lock(&self.0);
        let others = others.iter().filter(|it| !Arc::ptr_eq(it, asked));
        let others: Vec<_> = others.map(Arc::clone).collect();
        let (left, asked) = (AtomicUsize::new(others.len()), Arc::clone(asked));
        let answers = Arc::new(Answers { left, asked });
        for other in others {
            lock(&other.orders).push(Order { tasks, answers: Arc::clone(&answers) });
            other.ring();
        }
        answers
    }
}

impl Peer {
    /// Joins the threads of a target.
    pub(super) fn join(peers: Arc<Peers>) -> Self {
        let own = Arc::<Mailbox>::default();
        lock(&peers.0).push(Arc::clone(&own));
        Self { peers, own }
    }

    /// Sets what has the thread have its turn when there is something new for it.
    pub(super) fn wake_with(&self, wake: Wake) {
        // There is one thread for as long as there is a place.
        let _ = self.own.wake.set(wake);
    }

    /// Has all others end the commands that a function is about.
    pub(super) fn order(&self, lun: [u8; 8], function: Function) -> Arc<Answers> {
        self.peers.order(&self.own, Tasks::Function(lun, function))
    }

    /// Whether there may be something new: orders, or ends of such.
    pub(super) fn take_news(&self) -> bool {
        // Mostly there is nothing, and a load leaves the line shared.
        self.own.has_news.load(Ordering::Relaxed) && self.own.has_news.swap(false, Ordering::AcqRel)
    }

    /// The orders since the last call.
    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut *lock(&self.own.orders))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        lock(&self.peers.0).retain(|it| !Arc::ptr_eq(it, &self.own));
        // A thread that has ended has no command. Those that wait for it are to know.
        drop(self.take_orders());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LUN: [u8; 8] = [0; 8];

    #[test]
    fn a_function_waits_for_each_other_thread_and_none_that_has_ended() {
        let peers = Arc::<Peers>::default();
        let [asked, slow, gone] = [0; 3].map(|_| Peer::join(Arc::clone(&peers)));
        let (sender, woken) = channel();
        let sender = Mutex::new(sender);
        asked.wake_with(Box::new(move || lock(&sender).send(()).unwrap()));
        let answers = asked.order(LUN, Function::LuReset);
        assert!(!asked.take_news() && slow.take_news() && !slow.take_news());
        assert!(asked.take_orders().is_empty());
        drop(gone);
        assert_eq!((answers.left(), asked.take_news(), woken.try_iter().count()), (1, true, 1));
        let orders = slow.take_orders();
        assert_eq!(orders.len(), 1);
        assert_eq!((answers.left(), asked.take_news()), (1, false));
        drop(orders);
        assert_eq!((answers.left(), asked.take_news(), woken.try_iter().count()), (0, true, 1));
        drop(slow);
        assert_eq!(asked.order(LUN, Function::LuReset).left(), 0, "alone");
    }

    #[test]
    fn who_has_left_is_known_when_all_threads_have_answered_or_ended() {
        let peers = Arc::<Peers>::default();
        let [one, other] = [0; 2].map(|_| Peer::join(Arc::clone(&peers)));
        let departure = peers.order_all([Tasks::Hidden(0), Tasks::Hidden(1)].into_iter());
        assert!(!departure.wait(Duration::ZERO));
        let orders = one.take_orders();
        assert_eq!(orders.len(), 2);
        drop(other);
        let waiting = std::thread::spawn(move || departure.wait(Duration::from_secs(60)));
        drop(orders);
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn a_place_that_is_given_up_in_between_is_waited_for_no_longer() {
        let peers = Arc::<Peers>::default();
        let [asked, other] = [0; 2].map(|_| Peer::join(Arc::clone(&peers)));
        let answers = asked.order(LUN, Function::ClearTaskSet);
        drop(asked);
        drop(other.take_orders());
        assert_eq!(answers.left(), 0);
    }
}
