//! A workload whose file tells what was kept: numbered lines, each of which is on stable storage
//! before the next one is written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The file, in a directory of the disk.
const FILE: &str = "lines";

/// Writes lines in a directory until that fails; `count` is how many are on the disk.
pub(crate) fn write(dir: &Path, count: &AtomicU64) -> io::Error {
    let append = |number: u64| {
        let mut file = File::options().create(true).append(true).open(dir.join(FILE))?;
        writeln!(file, "{number:063}")?;
        file.sync_all()
    };
    loop {
        match append(count.load(SeqCst)) {
            Ok(()) => count.fetch_add(1, SeqCst),
            Err(error) => return error,
        };
    }
}

/// How many lines a directory has.
///
/// # Panics
/// If one is missing, or is another.
pub(crate) fn read(dir: &Path) -> u64 {
    let text = fs::read_to_string(dir.join(FILE)).unwrap();
    let lines: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(lines.iter().copied().eq(0..lines.len() as u64), "a line is lost");
    lines.len() as u64
}
