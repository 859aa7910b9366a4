//! Device-mapper devices that map a part of one other device. `dmsetup` makes them, because it
//! cooperates with udev.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_parent_process_death_signal,
};

use crate::{Error, SECTOR, module};

/// The kernel's list of block devices.
const DEVICES: &str = "/sys/block";
/// Exists if the driver is loaded.
const DRIVER: &str = "/sys/class/misc/device-mapper";
/// The time limit of a command. The slowest one is a change of table, which waits for requests in
/// flight. If the target is lost just then, the table stays as it is.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait for the end of a killed command.
const KILLED: Duration = Duration::from_secs(1);

/// A device with a name, `/dev/mapper/NAME`, and a UUID. Others may remove it, and then its name
/// and number may go to another device: so all commands use its UUID.
#[derive(Debug)]
pub(crate) struct Map {
    uuid: String,
    /// The kernel's name: `dm-N`.
    node: String,
    path: PathBuf,
}

/// The mapping of a device: `size` bytes of another one, at `offset`.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) size: u64,
    pub(crate) offset: u64,
    /// `MAJOR:MINOR`.
    pub(crate) device: String,
    pub(crate) read_only: bool,
}

impl Map {
    /// Checks that such devices can be made here.
    ///
    /// # Errors
    /// The missing part, and its remedy.
    pub(crate) fn probe() -> Result<(), Error> {
        if !Path::new(DRIVER).exists() {
            module::load("dm_mod");
        }
        dmsetup(&["version"]).map_err(|error| match error.kind() {
            ErrorKind::NotFound => error,
            _ => error.remedy("it needs root and the kernel module dm_mod (modprobe dm_mod)"),
        })
    }

    /// Makes a device. If the name is taken, it gets a longer one.
    pub(crate) fn create(name: &str, uuid: &str, table: &Table) -> Result<Self, Error> {
        let rules = table.rules();
        let create = |name: &str| {
            let mut args = vec!["create", name, "--uuid", uuid, "--table", &rules];
            args.extend(table.options());
            dmsetup(&args)
        };
        create(name).or_else(|error| match Self::all().any(|(_, it)| it == name) {
            true => create(&format!("{name}-{uuid}")),
            false => Err(error),
        })?;
        let missing = || Error::new(format!("find the device {name}"), ErrorKind::NotFound);
        Self::find(uuid).ok_or_else(missing)
    }

    /// Finds the device of that UUID.
    pub(crate) fn find(uuid: &str) -> Option<Self> {
        let is_it = |node: &String| attribute(node, "dm/uuid").as_deref() == Some(uuid);
        let (node, _) = Self::all().find(|(node, _)| is_it(node))?;
        let path = Path::new("/dev").join(&node);
        Some(Self { uuid: uuid.to_owned(), node, path })
    }

    /// Nodes and names of all devices. They may come and go meanwhile.
    fn all() -> impl Iterator<Item = (String, String)> {
        let devices = fs::read_dir(DEVICES).into_iter().flatten().flatten();
        devices.filter_map(|device| {
            let node = device.file_name().into_string().ok()?;
            let name = attribute(&node, "dm/name")?;
            Some((node, name))
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it still exists.
    pub(crate) fn is_there(&self) -> bool {
        attribute(&self.node, "dm/uuid").as_ref() == Some(&self.uuid)
    }

    /// Its present size in bytes.
    pub(crate) fn size(&self) -> Option<u64> {
        attribute(&self.node, "size")?.parse::<u64>().ok()?.checked_mul(SECTOR)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        attribute(&self.node, "ro").as_deref() == Some("1")
    }

    /// Loads another table. Waits until requests in flight are answered; new ones wait meanwhile.
    ///
    /// # Errors
    /// The system's error when it refuses; `TimedOut` if requests in flight are not answered. The
    /// table is then the old one.
    pub(crate) fn load(&self, table: &Table) -> Result<(), Error> {
        let rules = table.rules();
        let mut args = vec!["reload", "--uuid", &self.uuid, "--table", &rules];
        args.extend(table.options());
        dmsetup(&args)?;
        // File systems need not be frozen: the blocks that they have written stay in place.
        dmsetup(&["resume", "--uuid", &self.uuid, "--nolockfs", "--noflush"])
    }

    /// Removes it, unless it is in use.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        dmsetup(&["remove", "--uuid", &self.uuid, "--retry"])
    }

    /// Makes all I/O fail from now on, and removes the device with its last close. Waits for
    /// requests in flight.
    pub(crate) fn abandon(&self) -> Result<(), Error> {
        // Removal by force needs a name.
        let Some((_, name)) = Self::all().find(|(node, _)| *node == self.node && self.is_there())
        else {
            return Ok(());
        };
        dmsetup(&["remove", "--force", "--deferred", "--nolockfs", "--noflush", &name])
    }
}

impl Table {
    /// The table in the device mapper's syntax: `START LENGTH TARGET ARGUMENTS`.
    fn rules(&self) -> String {
        format!("0 {} linear {} {}", self.size / SECTOR, self.device, self.offset / SECTOR)
    }

    fn options(&self) -> Option<&'static str> {
        self.read_only.then_some("--readonly")
    }
}

/// An attribute of a block device in sysfs.
pub(crate) fn attribute(device: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(DEVICES).join(device).join(name)).ok()?;
    Some(text.trim_end().to_owned())
}

/// Runs `dmsetup`.
fn dmsetup(args: &[&str]) -> Result<(), Error> {
    let action = || format!("dmsetup {}", args.join(" "));
    let mut command = Command::new("dmsetup");
    // udev may be slow or stuck, so the command does not wait for it.
    command.args(args).arg("--noudevsync");
    // Ctrl-C must not reach the command. But the command must die with this process: the next one
    // must not find it still running.
    command.process_group(0);
    let us = getpid();
    let die_with_us = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the call.
        if getppid() == Some(us) { Ok(()) } else { Err(ErrorKind::Interrupted.into()) }
    };
    // SAFETY: it makes two system calls, and nothing else.
    unsafe { command.pre_exec(die_with_us) };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        Error::new(action(), error).remedy("install the package dmsetup, or have it in PATH")
    })?;
    let status = wait(&mut child).map_err(|error| Error::new(action(), error))?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
    let said = said.lines().collect::<Vec<_>>().join(" ");
    Err(Error::new(action(), io::Error::other(said)))
}

/// Waits until a program ends, and kills it if it takes too long.
fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let ended = |timeout: Duration| -> io::Result<bool> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: 0 };
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| poll(&mut ended, Some(&timeout)))? > 0)
    };
    if ended(TIMEOUT)? {
        return child.wait();
    }
    child.kill()?;
    if ended(KILLED)? {
        child.wait()?;
    }
    Err(ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_the_device_mapper_wants_them() {
        let device = "259:3".to_owned();
        let table = Table { size: 1 << 20, offset: 4096, device, read_only: false };
        assert_eq!((table.rules().as_str(), table.options()), ("0 2048 linear 259:3 8", None));
        let table = Table { read_only: true, ..table };
        assert_eq!(table.options(), Some("--readonly"));
    }

    #[test]
    fn a_device_that_is_not_there_is_not_found() {
        assert!(Map::find("TYCHE-no-such-device").is_none());
    }
}
