//! The file that tells `udev` about a device, so that it has a stable name: Tyche's udev rule reads
//! it and makes `/dev/disk/by-id/tyche-UUID`.
//!
//! ```text
//! /run/tyche/devices/ublkb0      TYCHE_UUID=..    the export's
//!                                TYCHE_EXPORT=..  its name
//!                                TYCHE_SESSION=.. whose file it is
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use uuid::Uuid;

use crate::shared::error::{Code, Context, Result};
use crate::shared::runtime;

/// Exists where udev runs.
const UDEV: &str = "/run/udev/control";
/// How long udev may take to make the name.
const UDEV_TIMEOUT_S: u32 = 5;

/// The file about one device. Dropping it removes the file and the name, unless another session has
/// a device of that name by now.
pub(crate) struct DeviceName {
    name: String,
    file: PathBuf,
    session: Uuid,
}

impl DeviceName {
    /// Writes the file for `device`, if it is one in `/dev`, and waits for its name. A device that
    /// fails requests has its name from before: it is not looked at before it has
    /// [resumed](Self::resumed), for who looks at it reads it.
    pub(crate) fn tell(
        device: &Path,
        export: &str,
        (uuid, session): (Uuid, Uuid),
        fails: bool,
    ) -> Result<Option<Self>> {
        let Some(name) = device.strip_prefix("/dev").ok().and_then(|name| name.to_str()) else {
            return Ok(None);
        };
        let dir = runtime::devices();
        runtime::create(&dir)?;
        let (name, file) = (name.to_owned(), dir.join(name));
        // A value ends at the end of its line; characters that might confuse a reader are left out.
        let plain = |it: &char| it.is_ascii_alphanumeric() || "-_.:+@".contains(*it);
        let export: String = export.chars().filter(plain).collect();
        let whose = whose(session);
        let text = format!("TYCHE_UUID={uuid}\nTYCHE_EXPORT={export}\n{whose}\n");
        fs::write(&file, text).context(Code::Other, file.display())?;
        if !fails {
            look_again(&name, "change");
            await_name(uuid);
        }
        Ok(Some(Self { name, file, session }))
    }
}

impl DeviceName {
    /// Has udev look at the device, which answers requests again after it may have failed some: a
    /// RAID may take it back. Rules see `SYNTH_ARG_TYCHE=resumed`.
    pub(crate) fn resumed(&self) {
        look_again(&self.name, &format!("change {} TYCHE=resumed", Uuid::new_v4()));
    }
}

impl Drop for DeviceName {
    fn drop(&mut self) {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        if text.lines().any(|line| line == whose(self.session)) {
            // A file that remains is in a directory that a reboot empties.
            let _ = fs::remove_file(&self.file);
            look_again(&self.name, "change");
        }
    }
}

/// The line that names the owning session.
fn whose(session: Uuid) -> String {
    format!("TYCHE_SESSION={session}")
}

/// Removes the file that a dead daemon has left about its device.
pub(crate) fn forget_device(device: &Path, session: Uuid) {
    let Some(name) = device.file_name().and_then(|name| name.to_str()) else { return };
    let file = runtime::devices().join(name);
    drop(DeviceName { name: name.to_owned(), file, session });
}

/// Waits until udev has made the name, so that it can be used when `tyche connect` returns. Without
/// the rule this lasts until udev is idle.
fn await_name(uuid: Uuid) {
    if !Path::new(UDEV).exists() {
        return;
    }
    let settled = Command::new("udevadm")
        // udevadm must not notify systemd in our name.
        .env_remove("NOTIFY_SOCKET")
        .args(["settle", &format!("--timeout={UDEV_TIMEOUT_S}")])
        .arg(format!("--exit-if-exists=/dev/disk/by-id/tyche-{uuid}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tracing::debug!(?settled, "waited for udev");
}

/// Triggers udev for a device and its partitions, which may have appeared before the file did.
fn look_again(name: &str, event: &str) {
    let device = Path::new("/sys/class/block").join(name);
    let partitions = fs::read_dir(&device).into_iter().flatten().flatten();
    let partitions = partitions.map(|it| it.path()).filter(|it| it.join("partition").exists());
    for path in std::iter::once(device.clone()).chain(partitions) {
        // A machine with /sys read-only has no udev either.
        let _ = fs::write(path.join("uevent"), event);
    }
}
