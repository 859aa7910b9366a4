//! A device whose server has died.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::abi::{self, DeviceInfo};
use super::control::Control;
use super::path;
use crate::{Error, Stopped, claim};

/// Where the driver lists its devices, as `ublkcN`.
const DEVICES: &str = "/sys/class/ublk-char";

/// See the [module](self). If it was started, and not stopped, its requests wait: for a server that
/// [takes it over](super::UblkDevice::recover), or until it is removed.
pub struct Orphan {
    pub(super) info: DeviceInfo,
    pub(super) path: PathBuf,
    pub(super) control: Control,
}

impl Orphan {
    /// The device of that mark, if there is one. Whether its server is dead is for the caller to
    /// know.
    ///
    /// # Errors
    /// If the driver can't be asked.
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

    /// Whether there is a block device that waits.
    pub fn waits(&self) -> bool {
        self.info.state != abi::STATE_DEAD
    }

    /// Removes it; without `force`, only if nobody uses it.
    ///
    /// # Errors
    /// What the system says when it refuses.
    pub fn remove(mut self, force: bool) -> Result<Stopped, Error> {
        // To open a device that nobody serves may take until somebody does: only to be careful.
        if !force && self.waits() && claim::is_in_use(&self.path).map_err(|it| self.explain(it))? {
            return Ok(Stopped::InUse);
        }
        self.stop()?;
        self.control.delete(self.info.device).map_err(|error| self.explain(error))?;
        Ok(Stopped::Gone)
    }

    /// Takes its block device away: all I/O fails, now and from now on.
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

/// The device of that number, if it has that mark. It may go at any time.
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
