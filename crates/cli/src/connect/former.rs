//! A session whose daemon has died, and whose device lives on in the kernel: the next `tyche
//! connect` of the same export takes it over.

use std::fs::File;
use std::path::PathBuf;

use uuid::Uuid;

use crate::attach::{Kind, Lasting};
use crate::error::{Code, Context, Error, Result};
use crate::runtime;
use crate::state::{Known, State};

/// See the module. As long as it lives nobody else takes the device over.
pub(super) struct Former {
    dir: PathBuf,
    _lock: File,
    /// Its device.
    pub(super) lasting: Lasting,
    /// What it knew of the export.
    pub(super) known: Known,
}

impl Former {
    /// The one of that export and host, if there is one.
    pub(super) fn find(export: &str, host: Uuid) -> Result<Option<Self>> {
        let sessions = runtime::sessions();
        let dirs = runtime::below(&sessions).context(Code::Permission, sessions.display())?;
        for dir in dirs {
            let is_it = |state: &State| state.export == export && state.host == host;
            let Some(state) = State::load(&dir).filter(is_it) else { continue };
            let Some(lasting) = state.lasting else { continue };
            if !lasting.is_there()? {
                continue;
            }
            let Some(known) = state.known else { continue };
            let Some(lock) = runtime::lock(&dir)? else {
                let message = format!("another `tyche connect` takes {export} over just now");
                return Err(Error::new(Code::Usage, message));
            };
            return Ok(Some(Self { dir, _lock: lock, lasting, known }));
        }
        Ok(None)
    }

    /// What it goes on as, which must be what is wanted.
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

    /// Its device has another daemon now. What earlier ones of the device have left goes, too.
    pub(super) fn succeeded(self) {
        let dirs = runtime::below(&runtime::sessions()).unwrap_or_default();
        for dir in dirs.iter().filter(|dir| **dir != self.dir && !runtime::is_locked(dir)) {
            let lasting = State::load(dir).and_then(|state| state.lasting);
            if lasting.is_some_and(|it| it.identity == self.lasting.identity) {
                runtime::remove(dir);
            }
        }
        runtime::remove(&self.dir);
    }
}
