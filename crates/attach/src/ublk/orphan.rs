//! A device whose server has died.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::abi::{self, DeviceInfo};
use super::control::Control;
use super::path;
use crate::{Error, Stopped, claim};

/// The driver's list of devices, as `ublkcN`.
const DEVICES: &str = "/sys/class/ublk-char";

/// A device whose server has died. If it was started and not stopped, its requests wait: for a
/// server that [takes it over](super::UblkDevice::recover), or for its removal.
pub struct Orphan {
    pub(super) info: DeviceInfo,
    pub(super) path: PathBuf,
    pub(super) control: Control,
}

impl Orphan {
    /// Finds the device of that mark. The caller must know that its server is dead.
    ///
    /// # Errors
    /// If the driver gives no answer.
    pub fn find(mark: u64) -> Result<Option<Self>, Error> {
        let Some(numbers) = numbers() else { return Ok(None) };
        let mut control = Control::open()?;
        for number in numbers {
            let path = path(number);
            let found = owned(&mut control, number, mark)
                .map_err(|error| Error::new(format!("look for {}", path.display()), error))?;
            if let Some(info) = found {
                return Ok(Some(Self { info, path, control }));
            }
        }
        Ok(None)
    }

    /// Whether there is a block device whose requests wait.
    pub fn waits(&self) -> bool {
        self.info.state != abi::STATE_DEAD
    }

    /// Removes it; without `force`, only if it is not in use.
    ///
    /// # Errors
    /// The system's error when it refuses.
    pub fn remove(mut self, force: bool) -> Result<Stopped, Error> {
        // The open may wait until the device has a server: only without `force`.
        if !force && self.waits() && claim::is_in_use(&self.path).map_err(|it| self.explain(it))? {
            return Ok(Stopped::InUse);
        }
        self.stop()?;
        self.control.delete(self.info.device).map_err(|error| self.explain(error))?;
        Ok(Stopped::Gone)
    }

    /// Removes the block device: all I/O fails from now on.
    pub(crate) fn stop(&mut self) -> Result<(), Error> {
        if self.waits() {
            self.control.stop(self.info.device).map_err(|error| self.explain(error))?;
            self.info.state = abi::STATE_DEAD;
        }
        Ok(())
    }

    fn explain(&self, error: io::Error) -> Error {
        Error::new(format!("remove {}", self.path.display()), error)
    }
}

/// Numbers of all devices; `None` without the driver.
fn numbers() -> Option<Vec<u32>> {
    let devices = fs::read_dir(DEVICES).ok()?.flatten();
    let number = |name: &str| name.strip_prefix("ublkc")?.parse().ok();
    Some(devices.filter_map(|it| number(it.file_name().to_str()?)).collect())
}

/// The device of that number, if it has that mark. It may vanish at any time.
fn owned(control: &mut Control, number: u32, mark: u64) -> io::Result<Option<DeviceInfo>> {
    match control.info(number) {
        Ok(info) if info.server_flags == mark => Ok(Some(info)),
        Ok(_) => Ok(None),
        Err(error)
            if error.raw_os_error() == Some(libc::ENODEV)
                || error.kind() == ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
