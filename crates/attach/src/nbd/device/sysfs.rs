//! Attributes of nbd devices in `/sys/block`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

fn path(number: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/sys/block/nbd{number}/{file}"))
}

fn read(number: u32, file: &str) -> Option<String> {
    Some(fs::read_to_string(path(number, file)).ok()?.trim().to_owned())
}

/// The numbers of all devices, in use or not.
pub(super) fn numbers() -> Vec<u32> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("nbd")?.parse().ok();
    entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}

/// The identity that the device was configured with; `None` if it has no disk, or if the kernel is
/// older than 5.14.
pub(super) fn identity(number: u32) -> Option<String> {
    read(number, "backend")
}

/// Whether the device still has a disk: until it is disconnected and closed.
pub(super) fn has_disk(number: u32) -> bool {
    path(number, "pid").exists()
}

/// The number of the device's hardware queues: one for each socket.
pub(super) fn queues(number: u32) -> usize {
    fs::read_dir(path(number, "mq")).map_or(0, Iterator::count)
}

/// The longest request that the kernel makes, in bytes.
pub(super) fn request_max(number: u32) -> Option<u64> {
    read(number, "queue/max_sectors_kb")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Sets the longest request that the kernel makes.
pub(super) fn set_request_max(number: u32, bytes: u32) -> io::Result<()> {
    fs::write(path(number, "queue/max_sectors_kb"), (bytes / 1024).to_string())
}

/// Sets the age at which the driver checks a request in flight.
pub(super) fn set_look_again(number: u32, after: Duration) -> io::Result<()> {
    fs::write(path(number, "queue/io_timeout"), after.as_millis().to_string())
}
