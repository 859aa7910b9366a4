//! The initial RAM disk of a kernel: cpio, "newc" (Documentation/driver-api/early-userspace of the
//! kernel).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::Result;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Files with their directories.
pub(super) struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), names: BTreeSet::new() }
    }

    /// Adds a copy of a file, once.
    pub(super) fn file(&mut self, name: &str, source: &Path) -> Result<()> {
        let content = fs::read(source).map_err(|error| format!("{}: {error}", source.display()))?;
        self.add(name, PROGRAM, &content);
        Ok(())
    }

    /// Adds a file with that content.
    pub(super) fn text(&mut self, name: &str, content: &str) {
        self.bytes(name, content.as_bytes());
    }

    /// Adds a file with that content.
    pub(super) fn bytes(&mut self, name: &str, content: &[u8]) {
        self.add(name, PROGRAM, content);
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        let name = name.trim_start_matches('/');
        if !self.names.insert(name.to_owned()) {
            return;
        }
        if let Some((directory, _)) = name.rsplit_once('/') {
            self.add(directory, DIRECTORY, &[]);
        }
        self.entry(name, mode, content);
    }

    /// Adds an entry. Its header consists of numbers of eight hexadecimal digits.
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        let (number, links, name_len) = (self.names.len(), 1, name.len() + 1);
        let mut header = "070701".to_owned();
        for field in [number, mode as usize, 0, 0, links, 0, content.len(), 0, 0, 0, 0, name_len, 0]
        {
            header += &format!("{field:08x}");
        }
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Ends the archive; returns its bytes.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_is_in_them_and_everything_is_aligned() {
        let mut archive = Archive::new();
        archive.text("/a/b/c", "hello");
        archive.text("/a/b/c", "again");
        let bytes = archive.end();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0"));
        assert!(text.contains("hello") && !text.contains("again"));
        assert_eq!(bytes.len() % 4, 0);
        let headers = text.match_indices("070701");
        assert!(headers.clone().all(|(at, _)| at % 4 == 0));
        assert_eq!(headers.count(), 4);
    }
}
