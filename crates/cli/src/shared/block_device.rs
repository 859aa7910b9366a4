//! A block device as the kernel shows it: which one it is, and where it is mounted. Nothing here
//! asks the device itself, which may not answer.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sequence number that distinguishes a block device from a later one of the same name, and a
/// loop device from the same one bound to another file. `None` if it is no block device.
pub(crate) fn sequence(device: &Path) -> Option<u64> {
    let text = fs::read_to_string(directory(device)?.join("diskseq")).ok()?;
    text.trim().parse().ok()
}

/// The size of a block device in bytes; `None` if it is no block device.
pub(crate) fn size(device: &Path) -> Option<u64> {
    /// The unit of sysfs, whatever the block size.
    const SECTOR: u64 = 512;
    let text = fs::read_to_string(directory(device)?.join("size")).ok()?;
    text.trim().parse::<u64>().ok()?.checked_mul(SECTOR)
}

/// The sysfs directory of the block device at that path, if it is below `/dev`.
pub(crate) fn directory(device: &Path) -> Option<PathBuf> {
    let name = device.strip_prefix("/dev").ok()?;
    Some(Path::new("/sys/block").join(name))
}

/// Whether a device, or a partition of it, is mounted in this mount namespace.
pub(crate) fn is_mounted(device: &Path) -> bool {
    !mounted("self", device, &numbers(device)).is_empty()
}

/// Whether a device, or a partition of it, is mounted in any mount namespace, or used otherwise.
pub(crate) fn is_used(device: &Path) -> bool {
    !users(device).is_empty() || !unmounts(device).is_empty()
}

/// The commands that unmount the file systems of a device and its partitions: in this mount
/// namespace, and in others whose mounts do not go with those of this one.
pub(crate) fn unmounts(device: &Path) -> Vec<String> {
    let numbers = numbers(device);
    let here = namespace("self");
    let mut seen: HashSet<_> = here.iter().cloned().collect();
    let own = mounted("self", device, &numbers);
    let mut commands: Vec<_> = own.iter().map(|mount| format!("umount {}", mount.path)).collect();
    for process in processes() {
        // Processes that can't be inspected are left out.
        if namespace(&process).is_some_and(|it| seen.insert(it)) {
            let mounts = mounted(&process, device, &numbers).into_iter();
            let mounts = mounts.filter(|mount| !own.iter().any(|own| own.takes_along(mount)));
            commands.extend(mounts.map(|it| format!("nsenter -t {process} -m umount {}", it.path)));
        }
    }
    commands
}

/// The users of a device and its partitions other than mounts: devices on top (RAID, LVM,
/// dm-crypt),
/// swap, and processes that have it open; with the commands that end their use, if there are some.
pub(crate) fn users(device: &Path) -> Vec<String> {
    let Some(block) = directory(device) else { return openers(device) };
    let parts = fs::read_dir(&block).into_iter().flatten().flatten().map(|it| it.path());
    let parts = parts.filter(|part| part.join("partition").exists());
    let mut users: Vec<_> = parts.chain([block]).flat_map(|dir| holders(&dir)).collect();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swaps = swaps.lines().filter_map(|line| line.split_whitespace().next());
    let swaps = swaps.filter(|path| is_of(Path::new(path), device));
    users.extend(swaps.map(|path| format!("swap (`swapoff {path}`)")));
    users.extend(openers(device));
    users
}

/// The devices on top of the one of that directory in sysfs.
fn holders(dir: &Path) -> Vec<String> {
    let holders = fs::read_dir(dir.join("holders")).into_iter().flatten().flatten();
    let read = |name: &str, file: &str| {
        let text = fs::read_to_string(Path::new("/sys/block").join(name).join(file)).ok()?;
        Some(text.trim().to_owned())
    };
    let said = holders.filter_map(|it| it.file_name().into_string().ok()).map(|name| {
        match (read(&name, "dm/name"), read(&name, "dm/uuid")) {
            (Some(dm), Some(uuid)) if uuid.starts_with("LVM-") => {
                format!("LVM volume {dm} (`lvchange -an /dev/mapper/{dm}`)")
            }
            (Some(dm), Some(uuid)) if uuid.starts_with("CRYPT-") => {
                format!("dm-crypt {dm} (`cryptsetup close {dm}`)")
            }
            (Some(dm), _) => format!("device mapper {dm} (`dmsetup remove {dm}`)"),
            (None, _) if name.starts_with("md") => {
                format!("RAID {name} (`mdadm --stop /dev/{name}`)")
            }
            (None, _) => name,
        }
    });
    said.collect()
}

/// Whether that is the path of a device, or of one of its partitions.
fn is_of(path: &Path, device: &Path) -> bool {
    let (Some(path), Some(device)) = (path.to_str(), device.to_str()) else { return false };
    let Some(rest) = path.strip_prefix(device) else { return false };
    let number = rest.strip_prefix('p').filter(|number| !number.is_empty());
    rest.is_empty() || number.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The processes that have a device open, as far as they can be inspected, without our own.
fn openers(device: &Path) -> Vec<String> {
    let has_open = |process: &String| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        // The link's text: the file itself is not asked.
        open.filter_map(|it| fs::read_link(it.path()).ok()).any(|it| is_of(&it, device))
    };
    let own = std::process::id().to_string();
    let named = processes().filter(|process| *process != own && has_open(process));
    let named = named.filter_map(|process| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let name = name.trim();
        (!matches!(name, "tyche" | "@tyche" | "tyche-lab"))
            .then(|| format!("process {process} ({name})"))
    });
    named.collect()
}

/// The processes of this machine that can be seen.
fn processes() -> impl Iterator<Item = String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = processes.filter_map(|it| it.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The mount namespace of a process.
fn namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// A mount of a device.
struct Mount {
    path: String,
    /// The groups that it is in: `shared:N` and `master:N`.
    groups: Vec<String>,
}

impl Mount {
    /// Whether the other one, of another namespace, is unmounted with this one: it is its copy, or
    /// of the same group.
    fn takes_along(&self, other: &Self) -> bool {
        let shared = self.groups.iter().filter_map(|group| group.strip_prefix("shared:"));
        let mut shared = shared.flat_map(|it| [format!("shared:{it}"), format!("master:{it}")]);
        shared.any(|group| other.groups.contains(&group))
    }
}

/// The mounts of the device in a process's namespace, the last one first.
fn mounted(process: &str, device: &Path, numbers: &[String]) -> Vec<Mount> {
    let table = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    mounts(&table, device, numbers)
}

/// The mounts of the device in a table of mounts, the last one first.
fn mounts(table: &str, device: &Path, numbers: &[String]) -> Vec<Mount> {
    let mount = |line: &str| {
        let mut fields = line.split(' ');
        let (number, path) = (fields.nth(2)?.to_owned(), fields.nth(1)?.to_owned());
        // Options, then optional fields, up to a dash.
        let rest: Vec<_> = fields.skip(1).collect();
        let dash = rest.iter().position(|&field| field == "-")?;
        let groups = rest[..dash].iter().map(|&group| group.to_owned()).collect();
        // Some file systems have their own device numbers.
        let source = rest.get(dash + 2)?;
        let is_it = numbers.contains(&number) || Path::new(source) == device;
        is_it.then_some(Mount { path, groups })
    };
    table.lines().rev().filter_map(mount).collect()
}

/// The device numbers of a device and its partitions.
fn numbers(device: &Path) -> Vec<String> {
    let Some(block) = directory(device) else { return Vec::new() };
    let parts = fs::read_dir(&block).into_iter().flatten().flatten().map(|it| it.path());
    let parts = parts.filter(|part| part.join("partition").exists());
    let read = |dir: PathBuf| fs::read_to_string(dir.join("dev")).ok();
    let numbers = parts.chain([block.clone()]).filter_map(read);
    numbers.map(|number| number.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_go_with_those_of_this_namespace_are_known() {
        let device = Path::new("/dev/loop7");
        let table =
            |groups: &str| format!("36 35 7:7 / /mnt rw,relatime {groups}- ext4 /dev/loop7 rw\n");
        let one = |groups: &str| mounts(&table(groups), device, &[]).pop().unwrap();
        let own = one("shared:12 ");
        assert_eq!(own.path, "/mnt");
        assert!(own.takes_along(&one("shared:12 ")) && own.takes_along(&one("master:12 ")));
        assert!(!own.takes_along(&one("shared:1 ")) && !own.takes_along(&one("")));
        assert!(!one("").takes_along(&one("")), "private mounts are each on their own");
        assert!(mounts(&table(""), Path::new("/dev/loop8"), &[]).is_empty());
        assert_eq!(mounts(&table(""), Path::new("/dev/x"), &["7:7".to_owned()]).len(), 1);
    }

    #[test]
    fn a_device_is_told_from_others_whose_names_begin_alike() {
        let is_of = |path: &str| is_of(Path::new(path), Path::new("/dev/ublkb1"));
        assert!(is_of("/dev/ublkb1") && is_of("/dev/ublkb1p2"));
        assert!(!is_of("/dev/ublkb") && !is_of("/dev/ublkb1x") && !is_of("/dev/sda"));
        let is_of = |path: &str| super::is_of(Path::new(path), Path::new("/dev/loop1"));
        assert!(is_of("/dev/loop1p1"));
    }

    #[test]
    fn a_process_that_has_a_file_open_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = fs::File::open(file.path()).unwrap();
        let mut sleeper =
            std::process::Command::new("sleep").arg("60").stdin(open).spawn().unwrap();
        let path = file.path().canonicalize().unwrap();
        let named = openers(&path);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(named, [format!("process {} (sleep)", sleeper.id())]);
    }
}
