//! Names of exports as names of other things: whatever an export is called, its file stays in its
//! directory, and LVM takes the name of its volume. No two exports have the same one. And many
//! names in a line.

use std::collections::BTreeSet;

use crate::shared::error::{Code, Error, Result};

/// The longest name of a volume, with that of its group and what joins them, each dash in them
/// twice (the kernel's limit for names of devices).
const VOLUME_MAX: usize = 127;
/// The most sessions or hosts that a message names.
const NAMED_MAX: usize = 8;
/// Beginnings of names that LVM keeps for itself, and what it has elsewhere in such names.
const RESERVED: [&str; 2] = ["snapshot", "pvmove"];
const RESERVED_WITHIN: [&str; 18] = [
    "_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_iorig", "_imeta", "_mimage", "_mlog",
    "_pmspare", "_rimage", "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin", "_wcorig", "_vpool",
];

/// Encodes a name as a file name that stays in its directory.
pub(super) fn file_name(name: &str) -> String {
    encoded(name, '%', |index, byte| byte == b'.' && index > 0 || matches!(byte, b'-' | b'_'))
}

/// Encodes a name as that of a volume of LVM: `+2f` is a slash. A name does not begin with a dash,
/// which would make an option of it.
///
/// # Errors
/// `Usage` if it is too long for the volume group.
pub(super) fn volume_name(name: &str, group: &str) -> Result<String> {
    let is_inner = |index: usize, byte: u8| index > 0 && matches!(byte, b'-' | b'.');
    let mut volume = encoded(name, '+', |index, byte| byte == b'_' || is_inner(index, byte));
    let is_reserved = RESERVED.iter().any(|it| volume.starts_with(it))
        || RESERVED_WITHIN.iter().any(|it| volume.contains(it));
    if is_reserved {
        volume = encoded(name, '+', is_inner);
        if RESERVED.iter().any(|it| volume.starts_with(it)) {
            let first = volume.remove(0);
            volume = format!("+{:02x}{volume}", u32::from(first));
        }
    }
    let length = |it: &str| it.len() + it.matches('-').count();
    if length(group) + 1 + length(&volume) > VOLUME_MAX {
        let message =
            format!("`{name}` is too long for a volume of {group}: LVM calls it {volume}");
        return Err(Error::new(Code::Usage, message));
    }
    Ok(volume)
}

fn encoded(name: &str, escape: char, is_plain: impl Fn(usize, u8) -> bool) -> String {
    let mut encoded = String::new();
    for (index, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || is_plain(index, byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("{escape}{byte:02x}");
        }
    }
    encoded
}

/// The first of some names, and how many more there are: a line that people read.
pub(super) fn few_of(names: &BTreeSet<String>) -> String {
    let named: Vec<_> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    let named = named.join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_directory_and_apart() {
        assert_eq!(file_name("vm1.img"), "vm1.img");
        assert_eq!(file_name(".."), "%2e.");
        assert_eq!(file_name("a/b"), "a%2fb");
        assert_ne!(file_name("a%2fb"), file_name("a/b"));
        assert!(file_name(&"/".repeat(63)).len() + ".json.new".len() <= 255);
    }

    #[test]
    fn lvm_takes_the_names_of_volumes() {
        let volume = |name: &str| volume_name(name, "vg0").unwrap();
        for plain in ["vm1", "vm1.img", "vm_1", "a-b"] {
            assert_eq!(volume(plain), plain);
        }
        for (name, encoded) in [
            ("-rf", "+2drf"),
            ("--help", "+2d-help"),
            (".", "+2e"),
            ("..", "+2e."),
            ("a/b c", "a+2fb+20c"),
            ("a+2fb", "a+2b2fb"),
            ("@tag", "+40tag"),
            ("snapshot1", "+73napshot1"),
            ("x_tmeta", "x+5ftmeta"),
            ("é", "+c3+a9"),
        ] {
            assert_eq!(volume(name), encoded, "{name}");
        }
        assert_eq!(volume_name(&"a".repeat(63), &"g".repeat(63)).unwrap().len(), 63);
        let error = volume_name(&"/".repeat(63), "vg0").unwrap_err();
        assert!(error.code == Code::Usage && error.message.contains("too long"), "{error}");
    }

    #[test]
    fn of_many_sessions_a_few_are_named() {
        let sessions = |count: usize| (1..=count).map(|it| format!("host{it} (vm)")).collect();
        assert_eq!(few_of(&sessions(2)), "host1 (vm), host2 (vm)");
        assert!(few_of(&sessions(8)).ends_with("host8 (vm)"));
        assert!(few_of(&sessions(9)).ends_with("host8 (vm) and 1 more"));
    }
}
