//! The threads and descriptors of a process, for tests that none is left behind.

use std::fs;

/// The names of a process's threads that begin with `prefix`, sorted.
pub fn threads(process: u32, prefix: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // A thread that ends between the two reads has no name.
    let names = tasks.map(|it| fs::read_to_string(it.unwrap().path().join("comm")));
    let names = names.map(|name| name.unwrap_or_default().trim().to_owned());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

/// Number of open descriptors of this process.
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
