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

/// The sysfs directory of the block device at that path, if it is below `/dev`.
pub(crate) fn directory(device: &Path) -> Option<PathBuf> {
    let name = device.strip_prefix("/dev").ok()?;
    Some(Path::new("/sys/block").join(name))
}

/// The commands that unmount the file systems of a device and its partitions, in all mount
/// namespaces.
pub(crate) fn unmounts(device: &Path) -> Vec<String> {
    let numbers = numbers(device);
    let here = namespace("self");
    let mut seen: HashSet<_> = here.iter().cloned().collect();
    let mut commands = mounted("self", device, &numbers);
    for mount in &mut commands {
        *mount = format!("umount {mount}");
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.filter_map(|it| it.file_name().into_string().ok()) {
        let is_process = process.bytes().all(|byte| byte.is_ascii_digit());
        // Processes that can't be inspected are left out.
        if is_process && namespace(&process).is_some_and(|it| seen.insert(it)) {
            let mounts = mounted(&process, device, &numbers);
            commands.extend(mounts.iter().map(|it| format!("nsenter -t {process} -m umount {it}")));
        }
    }
    commands
}

/// The mount namespace of a process.
fn namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// Mount points of the device in a process's namespace, the last one first.
fn mounted(process: &str, device: &Path, numbers: &[String]) -> Vec<String> {
    let table = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let mount = |line: &str| {
        let mut fields = line.split(' ');
        let (number, path) = (fields.nth(2)?.to_owned(), fields.nth(1)?.to_owned());
        // Optional fields follow, up to a dash. Some file systems have their own device numbers.
        let source = fields.skip_while(|&field| field != "-").nth(2)?;
        (numbers.contains(&number) || Path::new(source) == device).then_some(path)
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
