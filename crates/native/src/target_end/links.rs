//! The threads of a target's links: those that serve, and those whose links were removed, until
//! they have ended.
//!
//! A thread takes note of its end itself, so that nobody has to wait for one whose disk takes long.
//! Requests of hosts over a removed link stay counted.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tyche_proto::wire::{Event, Uuid};
use tyche_proto::{ExportKey, TargetKeys};

use super::report::TargetLinkReport;
use super::thread::{LinkThread, Options};
use super::uses::{self, Use};

/// Time limit for the threads to report.
const ANSWER: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Default)]
pub(super) struct LinkThreads {
    threads: Mutex<Threads>,
    /// Notified when a thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Threads {
    serving: Vec<LinkThread>,
    /// Those of removed links.
    ending: Vec<LinkThread>,
    /// Counters of hosts over removed links.
    past: Vec<Use>,
    /// Whether the target is stopping.
    is_over: bool,
}

/// The answers of all threads, and what is known without them.
pub(super) struct Answers {
    /// The links, each once.
    pub(super) links: Vec<TargetLinkReport>,
    /// Counters of hosts over links that are not there any more.
    pub(super) past: Vec<Use>,
    /// The names of the threads' links, by the threads' indices.
    pub(super) names: BTreeMap<usize, String>,
}

/// A thread that was asked for a report.
struct Asked {
    link: String,
    is_ending: bool,
    answer: Receiver<TargetLinkReport>,
    last: Arc<OnceLock<Vec<Use>>>,
}

impl Threads {
    fn check_free<'a>(&self, mut links: impl Iterator<Item = &'a str>) -> io::Result<()> {
        if self.is_over {
            return Err(io::Error::other("the target is stopping"));
        }
        let Some(same) = links.find(|link| self.ending.iter().any(|old| old.link == *link)) else {
            return Ok(());
        };
        let message =
            format!("{same} was removed, and has not ended: its disk has not finished requests");
        Err(io::Error::new(ErrorKind::ResourceBusy, message))
    }
}

impl LinkThreads {
    /// Starts threads with these options, each of which has an index of its own.
    ///
    /// # Errors
    /// The system's error when a thread cannot be created; `ResourceBusy` if a removed link of the
    /// same name has not ended: it would take frames for channels of the new one, and say that
    /// there are no such channels. None of the links is served then.
    pub(super) fn start(self: &Arc<Self>, options: Vec<Options>, target: Uuid) -> io::Result<()> {
        let mut threads = self.lock();
        threads.check_free(options.iter().map(|it| it.link.name()))?;
        let before = threads.serving.len();
        for options in options {
            let (index, this) = (options.index, Arc::clone(self));
            match LinkThread::start(options, target, move |last| this.note_end(index, &last)) {
                Ok(thread) => threads.serving.push(thread),
                Err(error) => {
                    let started = threads.serving.split_off(before);
                    started.iter().for_each(LinkThread::stop);
                    threads.ending.extend(started);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Checks that threads for links of these names can be started: before anything is taken for
    /// them.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(super) fn check_free<'a>(&self, links: impl Iterator<Item = &'a str>) -> io::Result<()> {
        self.lock().check_free(links)
    }

    /// Has the threads of a link end; returns their indices. None if there is no such link.
    fn remove(&self, link: &str) -> Vec<usize> {
        let Threads { serving, ending, .. } = &mut *self.lock();
        let (removed, left) = mem::take(serving).into_iter().partition(|it| it.link == link);
        *serving = left;
        let removed: Vec<LinkThread> = removed;
        removed.iter().for_each(LinkThread::stop);
        let indices = removed.iter().map(|it| it.index).collect();
        ending.extend(removed);
        indices
    }

    /// Takes note that a thread has ended, of which its link is closed. Called by that thread.
    fn note_end(&self, index: usize, last: &[Use]) {
        let Threads { serving, ending, past, .. } = &mut *self.lock();
        for threads in [serving, ending] {
            if let Some(at) = threads.iter().position(|it| it.index == index) {
                // With it goes its handle: nobody joins it.
                let thread = threads.swap_remove(at);
                uses::keep_past(past, last.to_vec());
                let _ = thread.last.set(last.to_vec());
            }
        }
        self.ended.notify_all();
    }

    /// Changes the target's keys.
    pub(super) fn set_keys(&self, keys: &TargetKeys) {
        self.lock().serving.iter().for_each(|thread| thread.set_keys(keys.clone()));
    }

    /// Waits until these threads have ended; false if they have not after `limit`.
    fn await_end(&self, indices: &[usize], limit: Duration) -> bool {
        let is_there =
            |it: &mut Threads| it.ending.iter().any(|thread| indices.contains(&thread.index));
        let waited = self.ended.wait_timeout_while(self.lock(), limit, is_there);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Stops all threads, and waits for their end. None is started any more.
    pub(super) fn stop(&self) {
        let mut threads = self.lock();
        threads.is_over = true;
        let all: Vec<_> = mem::take(&mut threads.serving)
            .into_iter()
            .chain(mem::take(&mut threads.ending))
            .collect();
        // They take note of their end.
        drop(threads);
        all.iter().for_each(LinkThread::stop);
        all.into_iter().for_each(LinkThread::join);
    }

    /// Notifies the hosts of an event of an export, on all links.
    pub(super) fn notify(&self, export: ExportKey, event: Event) {
        self.lock().serving.iter().for_each(|thread| thread.notify(export, event));
    }

    /// Asks all threads for a report, at the same time. Those of a link make one. That of a thread
    /// that does not answer in time says so.
    pub(super) fn ask(&self) -> Answers {
        let (mut asked, mut names) = (Vec::new(), BTreeMap::new());
        let threads = self.lock();
        let Threads { serving, ending, past, .. } = &*threads;
        let mut past = past.clone();
        let serving = serving.iter().map(|thread| (thread, false));
        for (thread, is_ending) in serving.chain(ending.iter().map(|thread| (thread, true))) {
            names.insert(thread.index, thread.link.clone());
            asked.push(Asked {
                link: thread.link.clone(),
                is_ending,
                answer: thread.ask(),
                last: Arc::clone(&thread.last),
            });
        }
        drop(threads);
        let deadline = Instant::now() + ANSWER;
        // Those that have answered know more of their link.
        let (mut heard, mut silent) = (Vec::new(), Vec::new());
        for Asked { link, is_ending, answer, last } in asked {
            let left = deadline.saturating_duration_since(Instant::now());
            match (answer.recv_timeout(left), last.get()) {
                (Ok(report), _) if is_ending => heard.push(report.of_removed()),
                (Ok(report), _) => heard.push(report),
                // It has ended meanwhile.
                (Err(_), Some(last)) => uses::merge(&mut past, last.clone()),
                (Err(_), None) => silent.push(TargetLinkReport::silent(link)),
            }
        }
        let mut links: Vec<TargetLinkReport> = Vec::new();
        for report in heard.into_iter().chain(silent) {
            match links.iter_mut().find(|link| link.link == report.link) {
                Some(link) => link.add(report),
                None => links.push(report),
            }
        }
        Answers { links, past, names }
    }

    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A link that was removed, until its threads have ended. It keeps neither the target nor its other
/// links running.
pub struct LinkRemoval {
    threads: Arc<LinkThreads>,
    indices: Vec<usize>,
}

impl LinkRemoval {
    /// The removal of a link; `None` if there is no such link.
    pub(super) fn begin(threads: &Arc<LinkThreads>, link: &str) -> Option<Self> {
        let indices = threads.remove(link);
        (!indices.is_empty()).then(|| Self { threads: Arc::clone(threads), indices })
    }

    /// Waits until nothing of the link is left: its channels are closed, none of their requests is
    /// with a disk, and the link itself is closed. False if something is left after `limit`: it
    /// ends as soon as it can.
    pub fn wait(&self, limit: Duration) -> bool {
        self.threads.await_end(&self.indices, limit)
    }
}
