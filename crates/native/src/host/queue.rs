//! A queue of a session, as its thread drives it, and the start of the thread.

use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tyche_block::{Arena, Geometry};
use tyche_engine::{Done, Job, Ports, Protocol, Service, now};
use tyche_proto::{Instant, QueueHandle};
use tyche_remote::{HostLink, HostReport, LinkChangeError, Notice, QueueDriver, Queues};

use super::HostOptions;
use super::driver::Driver;
use super::notices::Notices;

/// The threads of a session's queues.
pub(super) type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// A command to a queue.
pub(super) enum Command {
    AddLink(HostLink, SyncSender<Result<(), LinkChangeError>>),
    RemoveLink(String, SyncSender<Result<(), LinkChangeError>>),
    /// Another queue has failed, or another key of the target was read.
    Check,
    FailUntilConnected,
    Disconnect,
    Abort,
}

/// A queue that has no thread yet.
pub(super) struct Starter {
    /// The options of this queue.
    pub(super) options: HostOptions,
    pub(super) handle: QueueHandle,
    pub(super) starter: tyche_remote::Starter<Command>,
    pub(super) notices: Arc<Notices>,
    /// All queues of the session.
    pub(super) queues: Arc<Queues<Command>>,
    pub(super) threads: Threads,
}

impl Starter {
    /// Starts the thread. It starts those of `others` once it is connected.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created.
    pub(super) fn start(self, others: Vec<Self>) -> io::Result<()> {
        let Self { options, handle, starter, notices, queues, threads } = self;
        let (queue, spin) = (handle.queue(), options.spin);
        let name = match queue {
            0 => "tyche-session".to_owned(),
            _ => format!("tyche-queue{queue}"),
        };
        notices.begin(queue);
        let notify = Box::new(move |notice| notices.tell(queue, notice));
        let make = move || {
            let (driver, ports) = Driver::new(options, handle);
            (Queue { driver, queues, others, closed: false }, ports)
        };
        let thread = starter.start((name, spin), notify, make, drop)?;
        threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }
}

/// A queue and those that depend on it.
struct Queue {
    driver: Driver,
    /// All queues of the session.
    queues: Arc<Queues<Command>>,
    /// Queues that start when this one is connected.
    others: Vec<Starter>,
    closed: bool,
}

impl Queue {
    /// Starts the queues that wait for this one: the export is known.
    fn start_others(&mut self) {
        for starter in self.others.drain(..) {
            if let Err(error) = starter.start(Vec::new()) {
                tracing::error!(%error, "cannot start a queue: the session ends");
                self.driver.abort(now());
            }
        }
    }
}

impl Service for Queue {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.driver
    }

    fn is_over(&self) -> bool {
        self.closed
    }
}

impl QueueDriver for Queue {
    type Command = Command;

    fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        self.driver.submit(now, job).map(drop)
    }

    fn done(&mut self) -> &mut Vec<Done> {
        &mut self.driver.done
    }

    fn answered(&mut self) {
        self.driver.answered();
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        let notice = self.driver.notices.pop_front()?;
        match notice {
            Notice::Connected(_) => self.start_others(),
            Notice::Failed(_) => self.queues.send_all(|| Command::Check),
            Notice::Closed => self.closed = true,
            _ => {}
        }
        Some(notice)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.driver.geometry()
    }

    fn report(&mut self, now: Instant, ports: &mut Ports, arena: &Arena) -> HostReport {
        self.driver.report(now, ports, arena)
    }

    fn command(&mut self, now: Instant, ports: &mut Ports, command: Command) {
        match command {
            // The recipient may have timed out.
            Command::AddLink(link, to) => {
                let _ = to.send(self.driver.add_link(now, ports, link));
            }
            Command::RemoveLink(name, to) => {
                let _ = to.send(self.driver.remove_link(now, ports, &name));
            }
            Command::Check => self.driver.take_notice(now),
            Command::FailUntilConnected => self.driver.fail_until_connected(now),
            Command::Disconnect => self.driver.disconnect(now),
            Command::Abort => self.driver.disconnect_soon(now),
        }
    }
}
