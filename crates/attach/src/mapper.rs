//! Devices of the kernel's device mapper that stand for a part of one other device. They are made
//! by `dmsetup`, which knows how to do that together with udev.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{Error, module};

/// Where the kernel lists its block devices.
const DEVICES: &str = "/sys/block";
/// Exists where the driver is loaded.
const DRIVER: &str = "/sys/class/misc/device-mapper";
/// How long a command may take. The longest is the change of a table: what is in flight is answered
/// first, within the session's own limits.
const TIMEOUT: Duration = Duration::from_secs(600);
/// What the block layer counts in.
const SECTOR: u64 = 512;

/// A device with a name, `/dev/mapper/NAME`, and a UUID.
#[derive(Debug)]
pub(crate) struct Map {
    /// As the kernel knows it: `dm-N`.
    node: String,
    name: String,
    path: PathBuf,
}

/// What a device stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Table<'a> {
    /// The first `size` bytes of a device, which `device` says as `MAJOR:MINOR`.
    Part { size: u64, device: &'a str, read_only: bool },
    /// Nothing: all I/O fails.
    Nothing { size: u64 },
}

impl Map {
    /// Whether such devices can be made here.
    ///
    /// # Errors
    /// What is missing, and what brings it.
    pub(crate) fn probe() -> Result<(), Error> {
        if !Path::new(DRIVER).exists() {
            module::load("dm_mod");
        }
        dmsetup(&["version"])
    }

    /// Makes a device. One of that name may be there: then the name becomes longer.
    pub(crate) fn create(name: &str, uuid: &str, table: Table<'_>) -> Result<Self, Error> {
        let mut name = name.to_owned();
        if Self::all().any(|map| map.name == name) {
            name = format!("{name}-{uuid}");
        }
        let rules = table.rules();
        let mut args = vec!["create", &name, "--uuid", uuid, "--table", &rules];
        args.extend(table.options());
        dmsetup(&args)?;
        Self::find(uuid)
            .ok_or_else(|| Error::new(format!("find {name}"), io::Error::from(ErrorKind::NotFound)))
    }

    /// The device of that UUID, if it is there.
    pub(crate) fn find(uuid: &str) -> Option<Self> {
        Self::all().find(|map| map.attribute("dm/uuid").as_deref() == Some(uuid))
    }

    fn all() -> impl Iterator<Item = Self> {
        let devices = fs::read_dir(DEVICES).into_iter().flatten().flatten();
        devices.filter_map(|device| {
            let node = device.file_name().into_string().ok()?;
            let name = attribute(&node, "dm/name")?;
            let path = Path::new("/dev").join(&node);
            Some(Self { node, name, path })
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that it has now.
    pub(crate) fn size(&self) -> Option<u64> {
        self.attribute("size")?.parse::<u64>().ok()?.checked_mul(SECTOR)
    }

    /// Makes it stand for something else. Waits until what is in flight is answered; what comes
    /// meanwhile waits, too.
    pub(crate) fn become_other(&self, table: Table<'_>) -> Result<(), Error> {
        let rules = table.rules();
        let mut args = vec!["reload", &self.name, "--table", &rules];
        args.extend(table.options());
        dmsetup(&args)?;
        // File systems need not come to rest: what they have written stays where it is.
        dmsetup(&["resume", &self.name, "--nolockfs", "--noflush"])
    }

    /// Removes it, unless somebody uses it.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        dmsetup(&["remove", "--retry", &self.name])
    }

    /// Makes all I/O fail from now on, and removes it when nobody uses it any more. What is in
    /// flight is waited for.
    pub(crate) fn abandon(&self) -> Result<(), Error> {
        self.become_other(Table::Nothing { size: self.size().unwrap_or(SECTOR) })?;
        dmsetup(&["remove", "--deferred", &self.name])
    }

    fn attribute(&self, attribute_name: &str) -> Option<String> {
        attribute(&self.node, attribute_name)
    }
}

impl Table<'_> {
    /// As the device mapper wants it: `START LENGTH TARGET ARGUMENTS`.
    fn rules(self) -> String {
        match self {
            Self::Part { size, device, .. } => format!("0 {} linear {device} 0", size / SECTOR),
            Self::Nothing { size } => format!("0 {} error", size / SECTOR),
        }
    }

    fn options(self) -> Option<&'static str> {
        matches!(self, Self::Part { read_only: true, .. }).then_some("--readonly")
    }
}

/// What the kernel says of a block device.
pub(crate) fn attribute(device: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(DEVICES).join(device).join(name)).ok()?;
    Some(text.trim_end().to_owned())
}

/// Runs `dmsetup`.
fn dmsetup(args: &[&str]) -> Result<(), Error> {
    let action = || format!("dmsetup {}", args.join(" "));
    let mut command = Command::new("dmsetup");
    let child = command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = child
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::new(action(), error).remedy("install the package dmsetup"))?;
    let status = wait(&mut child).map_err(|error| Error::new(action(), error))?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
    let said = said.lines().collect::<Vec<_>>().join(" ");
    Err(Error::new(action(), io::Error::other(said))
        .remedy("it needs root and the kernel module dm_mod (modprobe dm_mod)"))
}

/// Waits until a program ends, and ends it if it takes too long.
fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    if rustix::io::retry_on_intr(|| poll(&mut ended, Some(&timeout)))? == 0 {
        child.kill()?;
        return Err(ErrorKind::TimedOut.into());
    }
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_the_device_mapper_wants_them() {
        let part = Table::Part { size: 1 << 20, device: "259:3", read_only: false };
        assert_eq!((part.rules().as_str(), part.options()), ("0 2048 linear 259:3 0", None));
        let part = Table::Part { size: 1 << 20, device: "259:3", read_only: true };
        assert_eq!(part.options(), Some("--readonly"));
        let nothing = Table::Nothing { size: 1 << 20 };
        assert_eq!((nothing.rules().as_str(), nothing.options()), ("0 2048 error", None));
    }

    #[test]
    fn a_device_that_is_not_there_is_not_found() {
        assert!(Map::find("TYCHE-no-such-device").is_none());
    }
}
