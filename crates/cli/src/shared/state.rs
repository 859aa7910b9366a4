//! The record of a session's daemon, for use after its death: the session, and the state that the
//! next daemon needs to take its place.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tyche_attach::fuse::FuseMount;
use tyche_block::Geometry;
use tyche_proto::{ExportState, ResumeState};
use uuid::Uuid;

use crate::shared::attach::{Kind, Lasting};
use crate::shared::changed::Changed;
use crate::shared::error::{Code, Context, Result};
use crate::shared::readers;
use crate::{shared::block_device, shared::runtime};

/// Name of the file, in the session's directory.
const FILE: &str = "session.json";

/// See the [module](self).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    /// UUID of the session.
    pub(crate) session: Uuid,
    /// The export, as it was named on the command line.
    pub(crate) export: String,
    /// UUID of this host.
    pub(crate) host: Uuid,
    /// The kind of device.
    pub(crate) kind: Kind,
    /// Path of the device, file or socket.
    pub(crate) device: PathBuf,
    /// Process of the daemon.
    pub(crate) pid: u32,
    /// The device, if it outlives the daemon; null otherwise.
    pub(crate) lasting: Option<Lasting>,
    /// The state of the export, for the next daemon; null if none is known.
    pub(crate) known: Option<KnownExport>,
    /// The device's sequence number, which later ones of the same name do not have; null if the
    /// kernel has none.
    pub(crate) sequence: Option<u64>,
    /// The place of the log: a file, or the command that shows it; null if there is none.
    pub(crate) log: Option<String>,
    /// Whether the session was ended on purpose, and only a device in use is left.
    #[serde(default)]
    pub(crate) ended: bool,
    /// Changes since it began, for the next daemon.
    #[serde(default)]
    pub(crate) changed: Changed,
}

impl State {
    /// Writes the record to a session's directory: all of it, or nothing.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        let (path, aside) = (dir.join(FILE), dir.join("session.json.new"));
        let text = serde_json::to_string(self).context(Code::Other, path.display())?;
        fs::write(&aside, text).context(Code::Other, aside.display())?;
        readers::admit(&aside, Mode::RGRP);
        fs::rename(&aside, &path).context(Code::Other, path.display())
    }

    /// The records of all daemons, with their directories.
    pub(crate) fn all() -> Result<Vec<(PathBuf, Self)>> {
        let dir = runtime::sessions();
        let dirs = runtime::below(&dir).context(Code::Permission, dir.display())?;
        let loaded = |dir: PathBuf| Self::load(&dir).map(|state| (dir, state));
        Ok(dirs.into_iter().filter_map(loaded).collect())
    }

    /// Whether a user may mean the session by that: its export, its device, or how its UUID begins.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let Self { session, export, device, .. } = self;
        export == name
            || device.as_os_str() == name
            || (name.len() >= 4 && session.to_string().starts_with(name))
    }

    /// Whether that directory has a record, readable or not.
    pub(crate) fn exists(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// The record in that directory; `None` if there is none that can be read.
    pub(crate) fn load(dir: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(dir.join(FILE)).ok()?).ok()
    }

    /// Whether the device exists, as the kernel shows it: the device itself may not answer.
    pub(crate) fn has_device(&self) -> bool {
        let Self { kind, device, .. } = self;
        let is_same = || block_device::sequence(device) == self.sequence;
        let has = |file: &str| {
            block_device::directory(device).is_some_and(|block| block.join(file).exists())
        };
        match kind {
            Kind::Loop => has("loop/backing_file") && is_same(),
            Kind::Ublk => has("") && is_same(),
            Kind::Nbd => has("pid"),
            // If that is unknown, it is taken for mounted.
            Kind::Fuse => {
                device.parent().is_some_and(|it| FuseMount::is_mounted(it).unwrap_or(true))
            }
            Kind::NbdSocket | Kind::VhostUser => device.exists(),
            Kind::Auto => false,
        }
    }
}

/// The state of an export that outlives the daemon.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KnownExport(#[serde(with = "Kept")] pub(crate) ExportState);

impl From<ResumeState> for KnownExport {
    fn from(state: ResumeState) -> Self {
        Self(state.export)
    }
}

/// The serialized form of an [`ExportState`].
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "ExportState")]
struct Kept {
    /// UUID of the target.
    target: Uuid,
    /// UUID of the export.
    uuid: Uuid,
    /// The disk.
    #[serde(flatten, with = "KeptGeometry")]
    geometry: Geometry,
    /// Generation of the export: completed writes survive while it stays the same.
    #[serde(rename = "boot")]
    generation: Uuid,
}

/// The serialized form of a [`Geometry`]. A new flag needs a default: records of earlier versions
/// do not have it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Geometry")]
struct KeptGeometry {
    /// Size in bytes.
    size: u64,
    /// Size of a block in bytes: 512 or 4096.
    block_size: u32,
    /// Whether writes are refused.
    read_only: bool,
    /// Whether completed writes may be volatile until the next flush.
    write_cache: bool,
    /// Whether discard is supported.
    discard: bool,
    /// Whether the data are on rotational disks.
    rotational: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_found_and_what_is_torn_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert!(State::load(dir.path()).is_none());
        let export = ExportState {
            target: Uuid::new_v4(),
            uuid: Uuid::new_v4(),
            geometry: Geometry { write_cache: true, ..Geometry::new(1 << 30, 4096) },
            generation: Uuid::new_v4(),
        };
        let state = State {
            session: Uuid::new_v4(),
            export: "vm1".into(),
            host: Uuid::new_v4(),
            kind: Kind::Ublk,
            device: "/dev/ublkb3".into(),
            pid: 7,
            lasting: None,
            known: Some(KnownExport(export)),
            sequence: None,
            log: None,
            ended: false,
            changed: Changed::default(),
        };
        state.save(dir.path()).unwrap();
        let loaded = State::load(dir.path()).unwrap();
        assert_eq!(loaded.session, state.session);
        assert_eq!(loaded.known.map(|known| known.0), Some(export));
        let text = serde_json::to_value(&state).unwrap();
        assert_eq!(text["known"]["block_size"], 4096, "the disk has no object of its own");
        fs::write(dir.path().join(FILE), "{\"session\":").unwrap();
        assert!(State::load(dir.path()).is_none());
    }
}
