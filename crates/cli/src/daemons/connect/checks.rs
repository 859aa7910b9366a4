//! The checks before a session is connected: no other daemon has its export; and what a dead one
//! has left.

use std::fs::File;

use uuid::Uuid;

use super::ConnectArgs;
use super::predecessor::Predecessor;
use crate::shared::attach::Kind;
use crate::shared::error::{Code, Error, Result};
use crate::shared::{leftovers, runtime, sessions};

/// The result of the checks before anything is connected.
pub(super) struct Checks {
    /// Lock of the export, which excludes other daemons of this host.
    pub(super) only: File,
    /// The predecessor, if there is one: a dead daemon whose device waits.
    pub(super) predecessor: Option<Predecessor>,
    /// The kind of attachment, and in `compromise` why it is not the best.
    pub(super) kind: Kind,
    pub(super) compromise: Option<String>,
}

impl Checks {
    /// Makes them.
    ///
    /// # Errors
    /// `Usage` or `Exists` if another daemon has the export, or if this one was reloaded for a
    /// device that is gone; `Device` if its device can't be had.
    pub(super) fn find(args: &ConnectArgs, host: Uuid) -> Result<Self> {
        let export = &args.session.export;
        sessions::refuse_twice(export, host)?;
        let only = runtime::lock_export(export, host)?;
        let predecessor = Predecessor::find(export, host)?;
        if args.reloaded && predecessor.is_none() {
            let message = "the device of the daemon that was reloaded is gone";
            return Err(Error::new(Code::Usage, message));
        }
        leftovers::clear_predecessors(export, host)?;
        leftovers::forget_gone()?;
        let (kind, compromise) = match &predecessor {
            Some(predecessor) => {
                let limit = predecessor.lasting.why_not_growable().filter(|_| args.device.growable);
                (predecessor.check_kind(args.device.kind, export)?, limit)
            }
            None => args.device.kind.resolve(),
        };
        Ok(Self { only, predecessor, kind, compromise })
    }
}
