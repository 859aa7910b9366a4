//! A session whose daemon has died, and whose device lives on in the kernel: the next `tyche
//! connect` of the same export takes it over.

use std::fs::File;
use std::path::PathBuf;

use uuid::Uuid;

use crate::attach::{Kind, Lasting};
use crate::error::{Code, Error, Result};
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
        let is_it = |state: &State| state.export == export && state.host == host;
        for (dir, state) in State::all()?.into_iter().filter(|(_, state)| is_it(state)) {
            let Some(lasting) = state.lasting else { continue };
            if !lasting.is_there()? {
                continue;
            }
            let Some(known) = state.known else { continue };
            let Some(lock) = runtime::lock(&dir)? else {
                let message = format!("another `tyche connect` takes {export} over just now");
                return Err(Error::new(Code::Other, message));
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
