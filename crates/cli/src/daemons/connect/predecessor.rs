//! The predecessor of a session: its daemon has died, and its device lives on in the kernel. The
//! next `tyche connect` of the same export takes it over.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use super::ConnectArgs;
use crate::shared::attach::{Kind, Lasting};
use crate::shared::attempt::Attempt;
use crate::shared::changed::Changed;
use crate::shared::error::{Code, Error, Result};
use crate::shared::runtime;
use crate::shared::state::{KnownExport, State};

/// How long the lock of a record may be held by those who look at it, on a busy machine. No other
/// daemon takes it: each has the lock of the export first.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The record of a daemon that has died and whose device is still there, with the device and the
/// known state of the export. It holds the lock of the record, so nobody else takes the device
/// over.
pub(super) struct Predecessor {
    dir: PathBuf,
    _lock: File,
    /// The predecessor's device.
    pub(super) lasting: Lasting,
    /// The state of the export as the predecessor knew it.
    pub(super) known: KnownExport,
    /// Changes while the predecessor ran.
    pub(super) changed: Changed,
}

impl Predecessor {
    /// Finds the predecessor for an export and a host, if there is one.
    pub(super) fn find(export: &str, host: Uuid) -> Result<Option<Self>> {
        let is_it = |state: &State| state.export == export && state.host == host;
        for (dir, state) in State::all()?.into_iter().filter(|(_, state)| is_it(state)) {
            let Some(lasting) = state.lasting else { continue };
            if !lasting.is_there()? {
                continue;
            }
            let Some(known) = state.known else { continue };
            let Some(lock) = runtime::succeed(&dir, LOCK_WAIT)? else {
                let message = format!("another `tyche connect` is taking {export} over");
                return Err(Error::new(Code::Other, message));
            };
            return Ok(Some(Self { dir, _lock: lock, lasting, known, changed: state.changed }));
        }
        Ok(None)
    }

    /// Has `tyche list` show why the device of a predecessor still waits, if there is one.
    pub(super) fn keep_attempt(args: &ConnectArgs, error: &str) {
        let (Ok(host), Ok(all)) = (args.session.host(), State::all()) else { return };
        for (dir, state) in all {
            let is_it = state.export == args.session.export && state.host == host;
            if is_it && state.lasting.is_some() {
                Attempt::keep(&dir, error);
            }
        }
    }

    /// The kind of the device, which must match the wanted one.
    pub(super) fn check_kind(&self, wanted: Kind, export: &str) -> Result<Kind> {
        let Lasting { kind, ref device, .. } = self.lasting;
        if wanted == Kind::Auto || wanted == kind {
            return Ok(kind);
        }
        let message = format!(
            "{} of export `{export}` waits for a daemon since its own has died: connect with \
             --as {}, or give it up with `tyche disconnect {export} --force`",
            device.display(),
            kind.name()
        );
        Err(Error::new(Code::Usage, message))
    }

    /// Removes the records of the predecessor and of the device's earlier daemons, once the new
    /// daemon serves the device.
    pub(super) fn succeeded(self) {
        let is_it = |lasting: Lasting| lasting.identity == self.lasting.identity;
        for (dir, state) in State::all().unwrap_or_default() {
            let earlier = dir != self.dir && state.lasting.is_some_and(is_it);
            if earlier && let Ok(Some(_lock)) = runtime::lock(&dir) {
                runtime::remove(&dir);
            }
        }
        runtime::remove(&self.dir);
    }
}
