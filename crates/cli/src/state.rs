//! What a session's daemon writes down, for when it is dead: what the session was, and what the
//! next one has to know to take its place.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tyche_proto::{ExportState, Former};
use uuid::Uuid;

use crate::attach::{Kind, Lasting};
use crate::error::{Code, Context, Result};
use crate::runtime;

/// Name of the file, in the session's directory.
const FILE: &str = "session.json";

/// See the [module](self).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) session: Uuid,
    pub(crate) export: String,
    pub(crate) host: Uuid,
    pub(crate) kind: Kind,
    pub(crate) device: PathBuf,
    pub(crate) pid: u32,
    /// The device, if it stays without the daemon.
    pub(crate) lasting: Option<Lasting>,
    /// What is known of the export.
    pub(crate) known: Option<Known>,
    /// What tells the device from later ones of its name.
    pub(crate) sequence: Option<u64>,
    /// Where the log is: a file, or the command that shows it.
    pub(crate) log: Option<String>,
    /// The session was ended on purpose, and all that is left is a device that others still use.
    #[serde(default)]
    pub(crate) ended: bool,
}

impl State {
    /// Writes it to a session's directory: all of it, or nothing.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        let (path, aside) = (dir.join(FILE), dir.join("session.json.new"));
        let text = serde_json::to_string(self).context(Code::Other, path.display())?;
        fs::write(&aside, text).context(Code::Other, aside.display())?;
        fs::rename(&aside, &path).context(Code::Other, path.display())
    }

    /// What all daemons have written down, with their directories.
    pub(crate) fn all() -> Result<Vec<(PathBuf, Self)>> {
        let dir = runtime::sessions();
        let dirs = runtime::below(&dir).context(Code::Permission, dir.display())?;
        let loaded = |dir: PathBuf| Self::load(&dir).map(|state| (dir, state));
        Ok(dirs.into_iter().filter_map(loaded).collect())
    }

    /// Whether the daemon of that directory has written something down, be it readable or not.
    pub(crate) fn exists(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// What the daemon of that directory has written down.
    pub(crate) fn load(dir: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(dir.join(FILE)).ok()?).ok()
    }
}

/// What is to be kept of the export.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Known(#[serde(with = "Kept")] pub(crate) ExportState);

impl From<Former> for Known {
    fn from(former: Former) -> Self {
        Self(former.export)
    }
}

/// How an [`ExportState`] is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ExportState")]
struct Kept {
    target: Uuid,
    uuid: Uuid,
    size: u64,
    block_size: u32,
    read_only: bool,
    write_cache: bool,
    discard: bool,
    rotational: bool,
    boot: Uuid,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_found_and_what_is_torn_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert!(State::load(dir.path()).is_none());
        let state = State {
            session: Uuid::new_v4(),
            export: "vm1".into(),
            host: Uuid::new_v4(),
            kind: Kind::Ublk,
            device: "/dev/ublkb3".into(),
            pid: 7,
            lasting: None,
            known: None,
            sequence: None,
            log: None,
            ended: false,
        };
        state.save(dir.path()).unwrap();
        assert_eq!(State::load(dir.path()).unwrap().session, state.session);
        fs::write(dir.path().join(FILE), "{\"session\":").unwrap();
        assert!(State::load(dir.path()).is_none());
    }
}
