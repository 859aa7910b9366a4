//! What `udev` is told about a device, so that it has a name that stays: the rule that comes with
//! Tyche reads it from a file and makes `/dev/disk/by-id/tyche-UUID`.
//!
//! ```text
//! /run/tyche/devices/ublkb0      TYCHE_UUID=..    the export's
//!                                TYCHE_EXPORT=..  its name
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::error::{Code, Context, Result};
use crate::runtime;

/// The file about one device; gone when dropped.
pub(super) struct DeviceName {
    file: PathBuf,
}

impl DeviceName {
    /// Tells about `device`, if it is one in `/dev`.
    pub(super) fn tell(device: &Path, export: &str, uuid: Uuid) -> Result<Option<Self>> {
        let Some(name) = device.strip_prefix("/dev").ok().and_then(|name| name.to_str()) else {
            return Ok(None);
        };
        let dir = runtime::devices();
        runtime::create(&dir)?;
        let file = dir.join(name);
        // A value ends with its line; what might confuse the reader of one is left out.
        let plain = |it: &char| it.is_ascii_alphanumeric() || "-_.:+@".contains(*it);
        let export: String = export.chars().filter(plain).collect();
        let text = format!("TYCHE_UUID={uuid}\nTYCHE_EXPORT={export}\n");
        fs::write(&file, text).context(Code::Other, file.display())?;
        look_again(name);
        Ok(Some(Self { file }))
    }
}

impl Drop for DeviceName {
    fn drop(&mut self) {
        // It is below a directory that a restart of the machine empties.
        let _ = fs::remove_file(&self.file);
    }
}

/// Has `udev` look at a device and its partitions, which appeared before the file did.
fn look_again(name: &str) {
    let device = Path::new("/sys/class/block").join(name);
    let partitions = fs::read_dir(&device).into_iter().flatten().flatten();
    let partitions = partitions.map(|it| it.path()).filter(|it| it.join("partition").exists());
    for path in std::iter::once(device.clone()).chain(partitions) {
        // Where /sys is read-only there is no udev either.
        let _ = fs::write(path.join("uevent"), "change");
    }
}
