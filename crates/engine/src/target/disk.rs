//! One loop's way to one store.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tyche_block::{Arena, Completion, Errno, Operation, Request};
use tyche_store::{Loan, Queue};

use super::exported::Exported;
use crate::errors::OperationKind;

/// Requests that one loop has with one store at once; more wait in the loop.
pub(super) const DEPTH: usize = 1024;
/// Tokens have so many bits. What a request wanted is above them at the store: its completion does
/// not say.
const TOKEN_BITS: u32 = 48;

/// See the module. Opened when the first channel needs it.
pub(super) struct Disk {
    exported: Arc<Exported>,
    queue: Option<Box<dyn Queue>>,
    /// Requests that the queue had no room for.
    waiting: VecDeque<(u64, Request)>,
}

impl Disk {
    pub(super) fn new(exported: Arc<Exported>) -> Self {
        Self { exported, queue: None, waiting: VecDeque::new() }
    }

    /// Requests will come with memory of this arena.
    ///
    /// # Errors
    /// What the system says when there is no queue to be had. Requests fail then.
    pub(super) fn register(&mut self, arena: &Arena) -> io::Result<()> {
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => self.exported.store.queue(DEPTH)?,
        };
        self.queue.insert(queue).register(arena);
        Ok(())
    }

    /// No request will, any more.
    pub(super) fn unregister(&mut self, arena: &Arena) {
        if let Some(queue) = &mut self.queue {
            queue.unregister(arena);
        }
    }

    /// Whether the disk can do it. A write past its end is an invalid request like any other; that
    /// Linux calls it ENOSPC is for the host's device to say.
    pub(super) fn check(&self, request: &Request) -> Result<(), Errno> {
        if self.queue.is_none() {
            self.exported.failed(request.operation.into(), Errno::IO);
            return Err(Errno::IO);
        }
        self.exported.store.geometry().check(request).map_err(|errno| match errno {
            Errno::NOSPC => Errno::INVAL,
            errno => errno,
        })
    }

    /// Answers a read that was checked, if the store can without a copy.
    pub(super) fn lend(&mut self, request: &Request) -> Option<Loan> {
        let queue = self.queue.as_mut().filter(|_| request.operation == Operation::Read)?;
        queue.lend(request.offset, request.len as usize)
    }

    /// Takes a request that was checked. Its token has at most [`TOKEN_BITS`].
    pub(super) fn submit(&mut self, token: u64, request: Request) {
        let queue = self.queue.as_mut().expect("open while a channel needs it");
        let token = labelled(token, request.operation.into());
        if queue.in_flight() < DEPTH {
            queue.submit(token, request);
        } else {
            self.waiting.push_back((token, request));
        }
    }

    /// Hands waiting requests over, and all new ones to the kernel; then collects what is done.
    pub(super) fn work(&mut self, done: &mut Vec<Completion>) {
        let Some(queue) = &mut self.queue else { return };
        while queue.in_flight() < DEPTH {
            let Some((token, request)) = self.waiting.pop_front() else { break };
            queue.submit(token, request);
        }
        if queue.in_flight() == 0 {
            return;
        }
        if let Err(error) = queue.kick() {
            self.exported.jammed(&error);
        }
        let before = done.len();
        queue.reap(done);
        for completion in &mut done[before..] {
            let (token, operation) = unlabelled(completion.token);
            completion.token = token;
            if let Err(errno) = completion.result {
                self.exported.failed(operation, errno);
            }
        }
    }

    /// What to wait for.
    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref()?.wait_fd()
    }
}

fn labelled(token: u64, operation: OperationKind) -> u64 {
    debug_assert!(token < 1 << TOKEN_BITS, "a token is a channel and a tag");
    (operation as u64) << TOKEN_BITS | token
}

fn unlabelled(token: u64) -> (u64, OperationKind) {
    let operation = OperationKind::ALL[(token >> TOKEN_BITS) as usize];
    (token & ((1 << TOKEN_BITS) - 1), operation)
}
