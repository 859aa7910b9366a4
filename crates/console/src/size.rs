//! Sizes on the command line and in configuration files.

use bytesize::ByteSize;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Parses a number of bytes, or a size such as 1G. Units are binary, as in `truncate` and
/// `qemu-img`: 1G is 1 GiB.
///
/// # Errors
/// If the text is not a size.
pub fn parse(text: &str) -> Result<u64, String> {
    let units = ['k', 'K', 'm', 'M', 'g', 'G', 't', 'T', 'p', 'P', 'e', 'E'];
    let size = match text.trim_end_matches(['b', 'B']).strip_suffix(units) {
        Some(number) => {
            let unit = text[number.len()..].chars().next().unwrap_or_default();
            format!("{number}{}iB", unit.to_ascii_uppercase()).parse::<ByteSize>()
        }
        None => text.parse(),
    };
    size.map(|size| size.as_u64())
}

/// Reads a size in a file, which is written as on the command line, or as a number of bytes.
///
/// # Errors
/// If it is none.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "write a size such as \"32M\", or a number of bytes")]
    enum Written {
        Bytes(u64),
        Text(String),
    }
    match Written::deserialize(from)? {
        Written::Bytes(bytes) => Ok(bytes),
        Written::Text(text) => parse(&text).map_err(D::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [("1G", 1 << 30), ("2MiB", 2 << 20), ("4k", 4096), ("512", 512)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for (text, shift) in
            [("1T", 40), ("1P", 50), ("1p", 50), ("2E", 61), ("1EB", 60), ("1EiB", 60)]
        {
            assert_eq!(parse(text), Ok(1 << shift), "{text}");
        }
        assert!(parse("lots").is_err());
    }
}
