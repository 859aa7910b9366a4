//! Requests to the threads of a target's ports: to end commands.
//!
//! The commands of a logical unit are in the lanes of all threads, and so a task management
//! function that one is asked for concerns the others. So does a change of who may know of a unit,
//! which concerns all, and the end of a login, which concerns those of its port. Each thread has a
//! mailbox. An [`Order`] tells by its end that its commands have ended, also if its thread ends.
//!
//! ```text
//! asked ── Order, one for each (other) thread ─► mailbox ─► ends commands, waits for the disk
//!   ▲                                                            │
//!   └──────────── the last order is dropped: Answers ────────────┘
//! ```
//!
//! A thread looks at one flag in each turn of its loop; nothing here is touched for a command.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tyche_fc::target_end::Function;
use tyche_fc::wire::Wwn;

use super::mail::{Letterbox, Mail};

/// Has a thread have its turn.
pub(super) type Wake = Box<dyn Fn() + Send + Sync>;

/// The mailboxes of a target's threads.
#[derive(Default)]
pub(super) struct Peers(Mutex<Vec<Arc<Mailbox>>>);

/// Commands that a thread is to end.
pub(super) struct Order {
    pub(super) tasks: Tasks,
    answers: Arc<Answers>,
    /// Threads of the same port that have not ended theirs.
    of_port: Arc<AtomicUsize>,
}

/// The commands of an order.
#[derive(Clone, Copy)]
pub(super) enum Tasks {
    /// Those that a function is about, which an initiator wants.
    Function([u8; 8], Function, Asker),
    /// Those at a logical unit of initiators that may not know of it any more.
    Hidden(u8),
    /// All at a logical unit that is removed.
    Removed(u8),
    /// All of an initiator whose login with the port has ended.
    LoggedOut(Wwn),
}

/// An initiator, and the number of the port by which it has asked.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) port: u16,
    pub(super) initiator: Option<Wwn>,
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
    letters: Letterbox,
    wake: OnceLock<Wake>,
    /// The number of its port.
    port: u16,
}

/// A thread's place among the others, until it is dropped.
pub(super) struct Peer {
    peers: Arc<Peers>,
    own: Arc<Mailbox>,
    /// The threads of its port, itself included, and its number among them.
    threads: Arc<[Arc<Mailbox>]>,
    thread: usize,
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

impl Order {
    /// Notes that the thread has ended its commands. Whether it was the last one of its port.
    pub(super) fn ends_port(&self) -> bool {
        self.of_port.fetch_sub(1, Ordering::AcqRel) == 1
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
        let order = |tasks| self.order(&asked, tasks, |_| true);
        Departure { answers: tasks.map(order).collect(), woken }
    }

    /// Has threads but the one that asks end commands: those of these ports.
    fn order(
        &self,
        asked: &Arc<Mailbox>,
        tasks: Tasks,
        is_meant: impl Fn(u16) -> bool,
    ) -> Arc<Answers> {
        let others = lock(&self.0);
        let others = others.iter().filter(|it| !Arc::ptr_eq(it, asked) && is_meant(it.port));
        let others: Vec<_> = others.map(Arc::clone).collect();
        let mut ports = BTreeMap::<u16, Arc<AtomicUsize>>::new();
        for other in &others {
            ports.entry(other.port).or_default().fetch_add(1, Ordering::Relaxed);
        }
        let (left, asked) = (AtomicUsize::new(others.len()), Arc::clone(asked));
        let answers = Arc::new(Answers { left, asked });
        for other in others {
            let of_port = Arc::clone(&ports[&other.port]);
            lock(&other.orders).push(Order { tasks, answers: Arc::clone(&answers), of_port });
            other.ring();
        }
        answers
    }
}

impl Peer {
    /// Joins the threads of a target, with so many threads of the port of that number.
    pub(super) fn join(peers: &Arc<Peers>, port: u16, threads: usize) -> Vec<Self> {
        let mailbox = |_| Arc::new(Mailbox { port, ..Mailbox::default() });
        let threads: Arc<[_]> = (0..threads).map(mailbox).collect();
        lock(&peers.0).extend(threads.iter().cloned());
        let place = |(thread, own): (usize, &Arc<Mailbox>)| Self {
            peers: Arc::clone(peers),
            own: Arc::clone(own),
            threads: Arc::clone(&threads),
            thread,
        };
        threads.iter().enumerate().map(place).collect()
    }

    /// Its number among the threads of its port, and how many there are.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.thread, self.threads.len())
    }

    /// Sets what has the thread have its turn when there is something new for it.
    pub(super) fn wake_with(&self, wake: Wake) {
        // There is one thread for as long as there is a place.
        let _ = self.own.wake.set(wake);
    }

    /// Has all others end commands.
    pub(super) fn order(&self, tasks: Tasks) -> Arc<Answers> {
        self.peers.order(&self.own, tasks, |_| true)
    }

    /// Has the other threads of the port end commands.
    pub(super) fn order_port(&self, tasks: Tasks) -> Arc<Answers> {
        self.peers.order(&self.own, tasks, |port| port == self.own.port)
    }

    /// Tells the other threads of the port.
    pub(super) fn tell(&self, mail: &Mail) {
        for other in self.threads.iter().filter(|it| !Arc::ptr_eq(it, &self.own)) {
            other.letters.put(mail.clone());
            other.ring();
        }
    }

    /// Sends a message to a thread of the port; false if there is no room.
    pub(super) fn send(&self, thread: usize, mail: Mail) -> bool {
        let other = &self.threads[thread];
        let is_sent = other.letters.put(mail);
        other.ring();
        is_sent
    }

    /// Whether there is a message.
    pub(super) fn has_mail(&self) -> bool {
        self.own.letters.has_mail()
    }

    /// Takes the messages.
    pub(super) fn take_mail(&self) -> Vec<Mail> {
        self.own.letters.take()
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

    /// The only thread of a port.
    fn join(peers: &Arc<Peers>, port: u16) -> Peer {
        Peer::join(peers, port, 1).remove(0)
    }

    fn reset() -> Tasks {
        let asker = Asker { port: 1, initiator: None };
        Tasks::Function([0; 8], Function::LuReset, asker)
    }

    #[test]
    fn a_function_waits_for_each_other_thread_and_none_that_has_ended() {
        let peers = Arc::<Peers>::default();
        let [asked, slow, gone] = [1, 2, 3].map(|port| join(&peers, port));
        let (sender, woken) = channel();
        let sender = Mutex::new(sender);
        asked.wake_with(Box::new(move || lock(&sender).send(()).unwrap()));
        let answers = asked.order(reset());
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
        assert_eq!(asked.order(reset()).left(), 0, "alone");
    }

    #[test]
    fn who_has_left_is_known_when_all_threads_have_answered_or_ended() {
        let peers = Arc::<Peers>::default();
        let [one, other] = [1, 2].map(|port| join(&peers, port));
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
        let [asked, other] = [1, 2].map(|port| join(&peers, port));
        let answers = asked.order(reset());
        drop(asked);
        drop(other.take_orders());
        assert_eq!(answers.left(), 0);
    }

    #[test]
    fn threads_of_a_port_are_told_and_counted_apart_from_those_of_others() {
        let peers = Arc::<Peers>::default();
        let [first, second] = Peer::join(&peers, 1, 2).try_into().ok().unwrap();
        let other = join(&peers, 2);
        assert_eq!([first.place(), second.place(), other.place()], [(0, 2), (1, 2), (0, 1)]);
        let answers = first.order_port(Tasks::LoggedOut(Wwn(7)));
        assert_eq!((answers.left(), second.take_orders().len()), (1, 1));
        assert_eq!((answers.left(), other.take_orders().len()), (0, 0));
        let departure = peers.order_all([Tasks::Hidden(0)].into_iter());
        let ends = |peer: &Peer| {
            let orders = peer.take_orders();
            orders.iter().map(Order::ends_port).collect::<Vec<_>>()
        };
        assert_eq!([ends(&second), ends(&other), ends(&first)], [[false], [true], [true]]);
        assert!(departure.wait(Duration::ZERO));
    }
}
