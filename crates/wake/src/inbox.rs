//! A queue whose reader can sleep until it is filled.

use std::io;
use std::os::fd::BorrowedFd;

use crate::Doorbell;
use crate::sync::ArrayQueue;

/// A bounded queue from any threads to one reader, with the bell that wakes it.
///
/// Pushing and ringing are separate, so that several items cost one ring, and a ring costs a system
/// call only if the reader sleeps.
///
/// ```text
/// writer   push push push, ring
/// reader   pop .. None, sleep on wait_fd, awake, pop ..
/// ```
pub struct Inbox<T> {
    queue: ArrayQueue<T>,
    bell: Doorbell,
}

impl<T> Inbox<T> {
    /// Room for `capacity` items.
    ///
    /// # Errors
    /// The error of `eventfd(2)`, e.g. too many open files.
    ///
    /// # Panics
    /// If `capacity` is zero.
    pub fn new(capacity: usize) -> io::Result<Self> {
        Ok(Self { queue: ArrayQueue::new(capacity), bell: Doorbell::new()? })
    }

    /// Adds an item; [`ring`](Self::ring) must follow.
    ///
    /// # Errors
    /// Gives the item back if there is no room.
    pub fn push(&self, item: T) -> Result<(), T> {
        self.queue.push(item)
    }

    /// Wakes the reader if it sleeps.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Takes the oldest item. For the reader only.
    pub fn pop(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The descriptor to sleep on: readable from the next ring on, and at once if there are items.
    /// The reader must ask for it before every sleep, and call [`awake`](Self::awake) afterwards.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.bell.announce();
        if !self.queue.is_empty() {
            self.bell.ring();
        }
        self.bell.wait_fd()
    }

    /// Ends the announcement: the reader is awake, and rings cost nothing. Cheap if it was awake.
    pub fn awake(&self) {
        self.bell.awake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::sleep;

    #[test]
    fn everything_arrives_in_order_at_a_reader_that_sleeps() {
        const ITEMS: u32 = 50_000;
        let inbox = Arc::new(Inbox::new(16).unwrap());
        let writer = std::thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                for item in 0..ITEMS {
                    while inbox.push(item).is_err() {
                        std::thread::yield_now();
                    }
                    inbox.ring();
                }
            }
        });
        let start = std::time::Instant::now();
        let mut wanted = 0;
        while wanted < ITEMS {
            sleep([inbox.wait_fd()], Some(Duration::from_secs(60)));
            inbox.awake();
            while let Some(item) = inbox.pop() {
                assert_eq!(item, wanted);
                wanted += 1;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(60), "slept on an item");
        writer.join().unwrap();
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_full_inbox_gives_the_item_back() {
        let inbox = Inbox::new(1).unwrap();
        assert_eq!(inbox.push("a"), Ok(()));
        assert_eq!(inbox.push("b"), Err("b"));
        assert_eq!((inbox.pop(), inbox.pop()), (Some("a"), None));
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Writers push and ring; the reader sleeps as soon as there is nothing. An item that it sleeps
    /// on is a deadlock.
    fn everything_arrives(writers: usize, items: usize) {
        loom::model(move || {
            let inbox = Arc::new(Inbox::new(writers * items).unwrap());
            for writer in 0..writers {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    for item in 0..items {
                        inbox.push((writer, item)).expect("there is room for all");
                        inbox.ring();
                    }
                });
            }
            let mut wanted = vec![0; writers];
            while wanted.iter().any(|&next| next < items) {
                inbox.wait_fd();
                inbox.bell.wait();
                inbox.awake();
                while let Some((writer, item)) = inbox.pop() {
                    assert_eq!(item, wanted[writer], "in order");
                    wanted[writer] += 1;
                }
            }
        });
    }

    #[test]
    fn everything_of_one_writer_arrives_in_order() {
        everything_arrives(1, 2);
    }

    #[test]
    fn everything_of_two_writers_arrives() {
        everything_arrives(2, 1);
    }
}
