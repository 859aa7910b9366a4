//! Golden frames: literal frames in documents and in files beside the tests, and small changes to
//! them.
//!
//! A golden frame is a text, one literal frame with a comment to every field. A line is
//! `offset  bytes  ; comment`: the offset counts from the start of the frame, the bytes are in
//! hexadecimal, and `00*57` stands for 57 zeroes.

use std::fs;
use std::path::Path;

/// The frames of a crate that are files in `tests/golden`.
#[derive(Clone, Copy, Debug)]
pub struct Golden {
    /// The folder of the crate: `env!("CARGO_MANIFEST_DIR")`.
    pub root: &'static str,
}

impl Golden {
    /// The text of a frame.
    fn text(self, name: &str) -> String {
        let path = Path::new(self.root).join("tests/golden").join(name).with_extension("hex");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The bytes of a frame.
    pub fn frame(self, name: &str) -> Vec<u8> {
        decode(&self.text(name))
    }

    /// Checks that a document shows exactly these frames, in this order, including their comments.
    pub fn check_document(self, document: &str, names: &[&str]) {
        let shown = blocks(document);
        assert_eq!(shown.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
        for (name, text) in shown {
            assert_eq!(text, self.text(name).trim_end(), "{name}");
        }
    }

    /// Checks that there is no file in the folder but those of these frames.
    pub fn check_files(self, names: &[&str]) {
        let files = fs::read_dir(Path::new(self.root).join("tests/golden")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let frames = files.filter(|file| file.extension().is_some_and(|end| end == "hex"));
        assert_eq!(frames.count(), names.len(), "a file that no test reads");
    }
}

/// Decodes an annotated text to bytes. Panics if an offset in the text is wrong.
fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let code = line.split(';').next().expect("split yields at least one piece");
        let mut words = code.split_whitespace();
        let Some(offset) = words.next() else { continue };
        assert_eq!(offset.parse(), Ok(bytes.len()), "the offset of {line:?}");
        for word in words {
            let (byte, count) = word.split_once('*').unwrap_or((word, "1"));
            assert_eq!(byte.len(), 2, "two digits a byte in {line:?}");
            let byte = u8::from_str_radix(byte, 16).expect("hexadecimal");
            let len = bytes.len() + count.parse::<usize>().expect("a count");
            bytes.resize(len, byte);
        }
    }
    bytes
}

/// The code blocks of a document that are marked as frames: name and text.
fn blocks(document: &str) -> Vec<(&str, &str)> {
    let blocks = document.split("\n```frame ").skip(1);
    let blocks = blocks.map(|rest| {
        let (name, rest) = rest.split_once('\n').expect("a line with the name");
        let (text, _) = rest.split_once("\n```\n").expect("an end of the block");
        (name, text)
    });
    blocks.collect()
}

/// A change to a frame.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// Other bytes at an offset.
    Put(usize, &'static [u8]),
    /// Cuts the frame to this length.
    Cut(usize),
    /// Adds this number of zeroes.
    Add(usize),
}

impl Change {
    /// Makes the change.
    pub fn apply(self, frame: &mut Vec<u8>) {
        match self {
            Self::Put(offset, bytes) => frame[offset..offset + bytes.len()].copy_from_slice(bytes),
            Self::Cut(len) => frame.truncate(len),
            Self::Add(len) => frame.resize(frame.len() + len, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_decoded_and_found_in_documents() {
        let document = "# A\n\n```frame one\n; a comment\n 0  ab 00*3 ; field\n 4  01\n```\n\nB\n";
        let blocks = blocks(document);
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].0, "one");
        let mut frame = decode(blocks[0].1);
        assert_eq!(frame, [0xab, 0, 0, 0, 1]);
        for change in [Change::Add(2), Change::Put(5, &[7, 8]), Change::Cut(6)] {
            change.apply(&mut frame);
        }
        assert_eq!(frame, [0xab, 0, 0, 0, 1, 7]);
    }

    #[test]
    #[should_panic(expected = "the offset")]
    fn wrong_offsets_are_found() {
        decode("0  ab\n2  cd");
    }
}
