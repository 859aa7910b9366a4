//! Checks that the stated `rust-version` is not below those of the dependencies. Clippy compares
//! our own use of the standard library with it (`incompatible_msrv`).

use std::fs;

use crate::{Result, cargo, root};

/// A version of Rust: major and minor number.
type Version = (u32, u32);

/// The finding, if there is one.
pub(crate) fn check() -> Result<Vec<String>> {
    let file = "Cargo.toml";
    let manifest = fs::read_to_string(root().join(file));
    let manifest = manifest.map_err(|error| format!("{file}: {error}"))?;
    let stated = all(&manifest, "rust-version = ").max();
    let metadata = cargo().args(["metadata", "--locked", "--format-version", "1"]).output();
    let metadata = metadata.map_err(|error| format!("cargo metadata: {error}"))?;
    if !metadata.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&metadata.stderr)));
    }
    // Only this key is written `"rust_version":`.
    let needed = all(&String::from_utf8_lossy(&metadata.stdout), "\"rust_version\":").max();
    Ok(compare(stated, needed).into_iter().collect())
}

fn compare(stated: Option<Version>, needed: Option<Version>) -> Option<String> {
    (stated < needed).then(|| {
        let (major, minor) = needed.unwrap_or_default();
        format!("Cargo.toml: rust-version is to be {major}.{minor}: a dependency needs it")
    })
}

/// The versions in quotes that follow `key`.
fn all(text: &str, key: &str) -> impl Iterator<Item = Version> {
    text.split(key).skip(1).filter_map(|rest| {
        let version = rest.strip_prefix('"')?.split('"').next()?;
        let mut numbers = version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_of_a_dependency_counts() {
        let metadata = r#"{"rust_version":"1.9"},{"rust_version":null},{"rust_version":"1.89.1"}"#;
        let needed = all(metadata, "\"rust_version\":").max();
        assert_eq!(needed, Some((1, 89)));
        assert_eq!(
            compare(all("rust-version = \"1.89\"\n", "rust-version = ").max(), needed),
            None
        );
        assert!(compare(Some((1, 88)), needed).is_some_and(|finding| finding.contains("1.89")));
    }
}
