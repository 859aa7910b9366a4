//! Merges the notices of queues into those of their session.

use std::sync::{Mutex, PoisonError};

use tyche_remote::Notice;

/// The state of a queue, according to its notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Queue {
    /// It has no thread yet.
    #[default]
    Unborn,
    /// It has no channel.
    Begun,
    Live,
    Closed,
}

/// The state of each queue, and the function that is told of changes of the session as a whole.
pub(super) struct Notices(Mutex<State>);

struct State {
    notify: Box<dyn FnMut(Notice) + Send>,
    queues: Box<[Queue]>,
    /// Number of queues whose requests fail though the session goes on.
    fail_fast: usize,
    /// Whether the owner was told so.
    is_connected: bool,
    is_failed: bool,
}

impl Notices {
    pub(super) fn new(queues: usize, notify: Box<dyn FnMut(Notice) + Send>) -> Self {
        let queues = vec![Queue::default(); queues].into();
        Self(Mutex::new(State {
            notify,
            queues,
            fail_fast: 0,
            is_connected: false,
            is_failed: false,
        }))
    }

    /// A queue has a thread from now on.
    pub(super) fn begin(&self, queue: usize) {
        self.with(|state| state.queues[queue] = Queue::Begun);
    }

    /// The queues that have a thread.
    pub(super) fn begun(&self) -> Vec<usize> {
        self.with(|state| {
            let is_begun = |&queue: &usize| state.queues[queue] != Queue::Unborn;
            (0..state.queues.len()).filter(is_begun).collect()
        })
    }

    /// Takes a notice of a queue, and passes it on to the owner if it is one of the session.
    pub(super) fn tell(&self, queue: usize, notice: Notice) {
        self.with(|state| state.tell(queue, notice));
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn tell(&mut self, queue: usize, notice: Notice) {
        let is_news = match notice {
            Notice::Connected(_) => {
                self.queues[queue] = Queue::Live;
                let is_whole = self.queues.iter().all(|it| *it == Queue::Live);
                is_whole && !std::mem::replace(&mut self.is_connected, true)
            }
            Notice::Lost(_) => {
                self.queues[queue] = Queue::Begun;
                std::mem::replace(&mut self.is_connected, false)
            }
            Notice::FailsFast => {
                self.fail_fast += 1;
                self.fail_fast == 1
            }
            Notice::Resumed => {
                self.fail_fast -= 1;
                self.fail_fast == 0
            }
            Notice::Failed(_) => !std::mem::replace(&mut self.is_failed, true),
            Notice::Closed => {
                self.queues[queue] = Queue::Closed;
                self.queues.iter().all(|it| matches!(it, Queue::Closed | Queue::Unborn))
            }
            _ => true,
        };
        if is_news {
            (self.notify)(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use tyche_proto::wire::{Geometry, Uuid};
    use tyche_proto::{ExportState, Failure, Problem};

    use super::*;

    fn connected() -> Notice {
        let uuid = Uuid::nil();
        Notice::Connected(ExportState {
            target: uuid,
            uuid,
            geometry: Geometry::new(4096, 512),
            generation: uuid,
        })
    }

    fn notices(queues: usize) -> (Notices, Receiver<Notice>) {
        let (sender, told) = channel();
        let notices = Notices::new(queues, Box::new(move |notice| sender.send(notice).unwrap()));
        (0..queues).for_each(|queue| notices.begin(queue));
        (notices, told)
    }

    #[test]
    fn a_session_is_connected_while_all_of_its_queues_are() {
        let (notices, told) = notices(2);
        let lost = Notice::Lost(Problem::Silence);
        for (queue, notice, is_news) in [
            (0, connected(), false),
            (1, connected(), true),
            (1, lost.clone(), true),
            (0, lost, false),
            (0, connected(), false),
            (1, connected(), true),
        ] {
            notices.tell(queue, notice.clone());
            assert_eq!(told.try_recv().ok(), is_news.then_some(notice));
        }
    }

    #[test]
    fn requests_fail_with_the_first_queue_and_are_taken_again_with_the_last() {
        let (notices, told) = notices(2);
        let (fails, resumed) = (Notice::FailsFast, Notice::Resumed);
        for (queue, notice, is_news) in [
            (1, &fails, true),
            (0, &fails, false),
            (1, &resumed, false),
            (0, &resumed, true),
            (0, &fails, true),
        ] {
            notices.tell(queue, notice.clone());
            assert_eq!(told.try_recv().ok().as_ref(), is_news.then_some(notice));
        }
    }

    #[test]
    fn a_session_fails_once_and_is_closed_when_its_last_queue_is() {
        let (notices, told) = notices(2);
        for queue in 0..2 {
            notices.tell(queue, Notice::Failed(Failure::TargetLost));
        }
        assert_eq!(told.try_iter().count(), 1);
        notices.tell(1, Notice::Closed);
        assert_eq!(told.try_iter().count(), 0);
        notices.tell(0, Notice::Closed);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Notice::Closed]);
    }

    #[test]
    fn queues_that_never_began_are_not_waited_for() {
        let (notices, told) = notices(1);
        assert_eq!(notices.begun(), [0]);
        let (unborn, _) = {
            let (sender, told) = channel();
            let notify = Box::new(move |notice| sender.send(notice).unwrap());
            (Notices::new(2, notify), told)
        };
        assert!(unborn.begun().is_empty());
        notices.tell(0, Notice::Closed);
        assert_eq!(told.try_iter().count(), 1);
    }
}
