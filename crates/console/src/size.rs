//! Sizes on the command line and in configuration files.

use bytesize::ByteSize;

/// Parses a number of bytes, or a size such as 1G. Units are binary, as in `truncate` and
/// `qemu-img`: 1G is 1 GiB.
///
/// # Errors
/// If the text is not a size.
pub fn parse(text: &str) -> Result<u64, String> {
    let units = ['k', 'K', 'm', 'M', 'g', 'G', 't', 'T'];
    let size = match text.trim_end_matches(['b', 'B']).strip_suffix(units) {
        Some(number) => {
            let unit = text[number.len()..].chars().next().unwrap_or_default();
            format!("{number}{}iB", unit.to_ascii_uppercase()).parse::<ByteSize>()
        }
        None => text.parse(),
    };
    size.map(|size| size.as_u64())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [("1G", 1 << 30), ("2MiB", 2 << 20), ("4k", 4096), ("512", 512)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse("1T"), Ok(1 << 40));
        assert!(parse("lots").is_err());
    }
}
