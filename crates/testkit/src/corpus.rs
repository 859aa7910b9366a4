//! Corpora of fuzzers, which the normal tests replay, and fields of their inputs.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of a fuzzer's corpus. `root` is that of the crate: `env!("CARGO_MANIFEST_DIR")`.
pub fn folder(root: &str, fuzzer: &str) -> PathBuf {
    Path::new(root).join("../../fuzz/corpus").join(fuzzer)
}

/// The inputs of a fuzzer's corpus. Each path is printed before its input is returned, so that a
/// failed check shows which one it was.
pub fn corpus(root: &str, fuzzer: &str) -> impl Iterator<Item = Vec<u8>> + use<> {
    let folder = folder(root, fuzzer);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    files.map(|file| {
        let path = file.unwrap().path();
        println!("{}", path.display());
        fs::read(path).unwrap()
    })
}

/// Takes fields off the front of an input; `None` if its bytes are too few.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    /// The next two bytes, big-endian.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_whole_or_not_at_all() {
        let mut bytes = Bytes(&[1, 2, 3, 4, 5, 6]);
        assert_eq!((bytes.u8(), bytes.u16()), (Some(1), Some(0x0203)));
        assert_eq!(bytes.array::<4>(), None);
        assert_eq!((bytes.take(2), bytes.u16()), (Some(&[4, 5][..]), None));
        assert_eq!((bytes.array(), bytes.u8()), (Some([6]), None));
    }
}
