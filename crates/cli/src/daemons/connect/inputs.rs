//! The inputs of a session's daemon: notices, signals, orders, and changes of links.

use std::sync::mpsc::SyncSender;

use tyche_remote::{Notice, Remote};

use crate::shared::error::Result;

/// An event that the daemon waits for.
pub(super) enum Input {
    Notice(Notice),
    /// Disconnect, by the number of the signal that asks for it.
    Signal(i32),
    /// Make the run-time directory anew if others have removed it.
    Restore,
    /// The target of the failed session is back, and has admitted this one.
    Revived(Remote),
    /// Links were added or removed: their names now.
    Links(Vec<String>),
    /// An order, to be answered with its result.
    Order(Order, SyncSender<Result<()>>),
}

/// An order that ends the session.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// Remove the device.
    Disconnect { force: bool },
    /// Leave the device to the next daemon, and be that if `again`.
    Leave { again: bool },
}
