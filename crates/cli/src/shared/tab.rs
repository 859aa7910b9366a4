//! tychetab: the exports of this machine, one on each line.
//!
//! ```text
//! # export  links      options
//! vm1       eth1,eth2  ctrl-loss-tmo=-1,queue-size=256
//! backup    -          read-only,noauto
//! ```
//!
//! The fields are those of fstab and crypttab: separated by blanks, `-` for none, and special
//! characters (a blank, a comma within a value) are written as a backslash and three octal digits.
//! This module splits lines into fields; an [`Entry`](crate::daemons::connect::Entry) knows what
//! the options mean. A mistake affects its own line only: a booting machine needs the other disks
//! all the same.

use std::path::{Path, PathBuf};

use crate::shared::error::{Code, Error, Result};

/// The default path.
pub(crate) const PATH: &str = "/etc/tyche/tychetab";

/// The byte order mark in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The whole file.
#[derive(Debug)]
pub(crate) struct Tab {
    path: PathBuf,
    lines: Vec<Line>,
}

/// A line of the file.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) export: String,
    /// The fields after the export, or the mistake in them.
    pub(crate) fields: Result<Fields, String>,
    /// Path of the file, and the line's number.
    place: String,
}

/// The fields after the export.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) links: Vec<String>,
    pub(crate) options: Vec<String>,
}

impl Tab {
    /// Reads the file.
    ///
    /// # Errors
    /// `NotFound` if there is none, `Config` if it can't be read; mistakes are kept with their
    /// lines.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => Code::NotFound,
                _ => Code::Config,
            };
            Error::new(code, format!("{}: {error}", path.display()))
        })?;
        Ok(Self::parse(path, &bytes))
    }

    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Self {
        let mut lines = Vec::<Line>::new();
        // Some editors begin a file with it.
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let is_text = std::str::from_utf8(line).is_ok();
            let line = String::from_utf8_lossy(line);
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            let Some(first) = fields.first().filter(|field| !field.starts_with('#')) else {
                continue;
            };
            let export = unescape(first);
            let fields = match lines.iter().any(|line| line.export == export) {
                true => Err(format!("`{export}` is listed above already")),
                false => Fields::parse(&fields[1..]),
            };
            // Comments may be written in any way.
            let is_option = |it: &Fields| it.links.iter().chain(&it.options).any(|it| is_odd(it));
            let is_wrong = !is_text && (is_odd(&export) || fields.as_ref().is_ok_and(is_option));
            let fields = if is_wrong { Err("it is not UTF-8".to_owned()) } else { fields };
            let place = format!("{}: line {number}", path.display());
            lines.push(Line { export, fields, place });
        }
        Self { path: path.to_owned(), lines }
    }

    /// All lines, from top to bottom.
    pub(crate) fn into_lines(self) -> Vec<Line> {
        self.lines
    }

    /// The line of an export.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(crate) fn line(self, export: &str) -> Result<Line> {
        let line = self.lines.into_iter().find(|line| line.export == export);
        let path = self.path.display();
        line.ok_or_else(|| Error::new(Code::NotFound, format!("{path}: no line for `{export}`")))
    }
}

impl Line {
    /// The error for a mistake in this line.
    pub(crate) fn mistake(&self, what: &str) -> Error {
        Error::new(Code::Config, format!("{}: {what}", self.place))
    }
}

impl Fields {
    fn parse(fields: &[&str]) -> Result<Self, String> {
        if let Some(surplus) = fields.get(2).filter(|field| !field.starts_with('#')) {
            return Err(format!("`{surplus}`: a line has three fields: export, links, options"));
        }
        let list = |index| {
            let field: &str = fields.get(index).copied().filter(|it| *it != "-").unwrap_or("");
            field.split(',').filter(|item| !item.is_empty()).map(unescape).collect()
        };
        Ok(Self { links: list(0), options: list(1) })
    }
}

/// Whether a text has a character that stands for bytes that are no UTF-8.
fn is_odd(text: &str) -> bool {
    text.contains(char::REPLACEMENT_CHARACTER)
}

/// Resolves a backslash and three octal digits, as in fstab. Other backslashes stay.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|it| std::str::from_utf8(it).ok());
        let escaped = digits.filter(|_| byte == b'\\');
        match escaped.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_separates_fields_and_options_can_be_escaped() {
        let text = r"my\040disk - host-name=a\054b\134";
        let line = Tab::parse(Path::new("tab"), text.as_bytes()).line("my disk").unwrap();
        assert_eq!(line.fields.unwrap().options, [r"host-name=a,b\"]);
        for odd in [r"\", r"\4", r"\09x", r"\777", "\\\u{e4}\u{e4}"] {
            assert_eq!(unescape(odd), odd);
        }
    }

    #[test]
    fn bytes_that_are_no_text_cost_their_line_alone() {
        let text =
            b"\xef\xbb\xbfvm1 eth0 - # Gr\xf6\xdfe\n# Gr\xf6\xdfe\nvm\xf6 eth0\r\nvm3 eth0\r\n";
        let lines = Tab::parse(Path::new("tab"), text).into_lines();
        let is_good: Vec<_> = lines.iter().map(|line| line.fields.is_ok()).collect();
        assert_eq!(is_good, [true, false, true]);
        assert_eq!((lines[0].export.as_str(), lines[2].export.as_str()), ("vm1", "vm3"));
        assert!(lines[1].mistake("x").message.contains("line 3"));
    }
}
