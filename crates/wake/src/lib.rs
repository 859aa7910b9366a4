//! How a thread waits for work, and how another brings it.
//!
//! A loop that finds nothing to do spins for as long as that has paid off lately ([`Spin`]), and
//! then sleeps in one wait for everything that can bring work ([`sleep`]): sockets, timers, and
//! the [`Doorbell`] that other threads ring. An [`Inbox`] is a queue with a doorbell: the way from
//! one thread to another for whatever is handed over; a [`Poller`] is what needs no handing over,
//! for the loop does its work.

#![forbid(unsafe_code)]

mod doorbell;
mod inbox;
mod poller;
mod sleep;
mod spin;

pub use doorbell::Doorbell;
pub use inbox::Inbox;
pub use poller::{MakePoller, Polled, Poller};
pub use sleep::{SOURCES_MAX, now_ns, sleep};
pub use spin::Spin;
