//! Pollers in a session's thread: requests are submitted and answered there.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};

use crate::rig::{Client, PATIENCE, SIZE, target};
use tyche_block::{Completion, Disk, Errno, Operation, Request, Sink};
use tyche_link::memory;
use tyche_native::Target;
use tyche_remote::{Control, Notice};
use tyche_store::memory::MemoryStore;
use tyche_wake::{Inbox, Polled, Poller};

/// Events of these tests' poller.
enum Event {
    /// Read the first page.
    Read,
    Answer(Completion),
    End,
}

/// The poller's inbox, and the recipient of the disk's answers.
struct Events(Inbox<Event>);

impl Events {
    fn push(&self, event: Event) {
        assert!(self.0.push(event).is_ok(), "the inbox is large enough");
        self.0.ring();
    }
}

impl Sink for Events {
    fn complete(&self, completion: Completion) {
        self.push(Event::Answer(completion));
    }
}

struct Reader {
    disk: Arc<dyn Disk>,
    events: Arc<Events>,
    sink: Arc<dyn Sink>,
    results: Sender<Outcome>,
}

impl Poller for Reader {
    fn poll(&mut self) -> io::Result<Polled> {
        match self.events.0.pop() {
            None => return Ok(Polled::Idle),
            Some(Event::End) => return Ok(Polled::Over),
            Some(Event::Read) => {
                let buffer = self.disk.arena().alloc(4096);
                let request = Request { operation: Operation::Read, offset: 0, len: 4096, buffer };
                self.disk.submit(request, 0, &self.sink);
            }
            Some(Event::Answer(completion)) => {
                self.results.send((thread::current().id(), completion.result)).unwrap();
            }
        }
        Ok(Polled::Worked)
    }

    fn announce(&self) {
        self.events.0.wait_fd();
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.events.0.wait_fd()
    }

    fn awake(&self) {
        self.events.0.awake();
    }
}

/// The thread in which a read ended, and its result.
type Outcome = (ThreadId, Result<(), Errno>);

/// A client whose session polls a reader, the reader's events, and its results.
fn stage() -> (Client, Arc<Events>, Receiver<Outcome>, Target) {
    let (a, b) = memory::pair(9014).unwrap();
    let target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    let events = Arc::new(Events(Inbox::new(64).unwrap()));
    let (results, received) = channel();
    let reader = Reader {
        disk: client.host.volume().clone(),
        events: Arc::clone(&events),
        sink: Arc::clone(&events) as _,
        results,
    };
    client.host.control().adopt(0, Box::new(move || Some(Box::new(reader))));
    (client, events, received, target)
}

#[test]
fn requests_of_a_poller_are_made_and_answered_in_the_session_s_thread() {
    let (client, events, results, _target) = stage();
    let mut threads = Vec::new();
    for _ in 0..50 {
        // One at a time: the session's thread sleeps in between, and must be woken.
        events.push(Event::Read);
        let (thread, result) = results.recv_timeout(PATIENCE).unwrap();
        assert_eq!(result, Ok(()));
        threads.push(thread);
    }
    threads.dedup();
    assert_eq!(threads.len(), 1);
    assert_ne!(threads[0], thread::current().id());
    events.push(Event::End);
    drop(client);
}

#[test]
fn a_poller_is_served_to_its_end_though_the_session_is_over() {
    let (client, events, results, _target) = stage();
    client.host.control().abort();
    client.await_notice(|notice| matches!(notice, Notice::Closed));
    for _ in 0..3 {
        events.push(Event::Read);
        assert_eq!(results.recv_timeout(PATIENCE).unwrap().1, Err(Errno::IO));
    }
    events.push(Event::End);
    // Waits for the thread, which has nothing to do any more.
    drop(client);
    assert!(results.recv_timeout(PATIENCE).is_err(), "the poller is gone, and its sender with it");
}
