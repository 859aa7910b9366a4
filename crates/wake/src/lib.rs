//! Waiting for work, and waking the threads that wait.
//!
//! A loop without work spins for as long as that has paid off lately ([`Spin`]), and then sleeps in
//! one wait for all its sources of work ([`sleep()`]): sockets, timers, and the [`Doorbell`] that
//! other threads ring. An [`Inbox`] is a queue with a doorbell, to hand items from one thread to
//! another. A [`Poller`] needs no hand-over, for the loop does its work. Who waits for the bytes of
//! a client does so for a limited time ([`Timed`]).

#![forbid(unsafe_code)]

mod doorbell;
#[cfg(not(all(test, loom)))]
mod event;
mod inbox;
mod poller;
mod sleep;
mod spin;
mod sync;
mod timed;

pub use doorbell::Doorbell;
pub use inbox::Inbox;
pub use poller::{MakePoller, Polled, Poller};
pub use sleep::{SOURCES_MAX, now_ns, sleep};
pub use spin::Spin;
pub use timed::Timed;
