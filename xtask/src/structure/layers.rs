//! Dependencies between our crates point down, layer by layer, as in ARCHITECTURE.md.
//!
//! A crate may use those of lower layers only, however far down, and none of its own layer.
//! Dependencies of a crate's tests (`dev-dependencies`) do not count.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::circles::crate_folders;
use crate::{Result, cargo, root};

/// The crates by layer, from top to bottom, by the names of their packages.
const LAYERS: [&[&str]; 11] = [
    // Nothing depends on the top layer: the testkit is for tests only.
    &["tyche-lab", "tyche-testkit"],
    &["tyche", "tyche-csi"],
    &["libtyche", "tyche-baseline", "tyche-conformance", "tyche-console", "tyche-sim"],
    &["tyche-session"],
    &["tyche-fcoe", "tyche-native"],
    &["tyche-remote"],
    &["tyche-engine"],
    &[
        "tyche-attach",
        "tyche-control",
        "tyche-fc",
        "tyche-fcf",
        "tyche-link",
        "tyche-proto",
        "tyche-store",
    ],
    &["tyche-block", "tyche-fc-wire", "tyche-scsi", "tyche-wake", "tyche-wire"],
    &["tyche-counters", "tyche-crypto", "tyche-geometry", "tyche-numa", "tyche-time"],
    // Programs beside the others: they share no code with them.
    &["comparison", "xtask"],
];

/// Crates, and those that they must not depend on, directly or not: the library for hosts has no
/// disks, the loop knows no protocol, and tasks of tokio are for the CSI driver alone.
const APART: [(&str, &[&str]); 4] = [
    ("tyche", &["tokio", "tonic"]),
    ("tyche-lab", &["tokio", "tonic"]),
    ("libtyche", &["tyche-attach", "tyche-store"]),
    ("tyche-engine", &["tyche-fc", "tyche-fc-wire", "tyche-proto", "tyche-scsi", "tyche-wire"]),
];

/// A crate, and those of ours that it depends on.
struct Package {
    name: String,
    uses: BTreeSet<String>,
}

/// Dependencies that don't point down, and crates without a layer.
pub(super) fn check() -> Result<Vec<String>> {
    let mut packages = Vec::new();
    for folder in crate_folders()? {
        let file = format!("{folder}/Cargo.toml");
        let manifest = fs::read_to_string(root().join(&file));
        packages.push(parse(&manifest.map_err(|error| format!("{file}: {error}"))?));
    }
    let mut findings = compare(&packages, &LAYERS);
    for (package, others) in APART {
        let tree = tree(&mut cargo(), package)?;
        for name in others {
            if tree.lines().any(|line| line.split(' ').next() == Some(name)) {
                findings.push(format!(
                    "{package}: is not to depend on {name}; see cargo tree -p {package}"
                ));
            }
        }
    }
    Ok(findings)
}

/// All that a package depends on, one a line.
fn tree(cargo: &mut Command, package: &str) -> Result<String> {
    cargo.args(["tree", "--package", package, "--edges", "normal", "--prefix", "none"]);
    let tree = cargo.output().map_err(|error| format!("cargo tree: {error}"))?;
    if !tree.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&tree.stderr)));
    }
    Ok(String::from_utf8_lossy(&tree.stdout).into_owned())
}

fn parse(manifest: &str) -> Package {
    let mut package = Package { name: String::new(), uses: BTreeSet::new() };
    let mut section = "";
    for line in manifest.lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().trim_end_matches(".workspace");
            match section {
                "package" if key == "name" => {
                    value.trim().trim_matches('"').clone_into(&mut package.name);
                }
                "dependencies" => {
                    package.uses.insert(key.to_owned());
                }
                _ => {}
            }
        }
    }
    package
}

fn compare(packages: &[Package], layers: &[&[&str]]) -> Vec<String> {
    let layer = |name: &str| layers.iter().position(|layer| layer.contains(&name));
    let mut findings = Vec::new();
    for Package { name, uses } in packages {
        let Some(own) = layer(name) else {
            findings.push(format!("{name}: has no layer; give it one in {}", file!()));
            continue;
        };
        for used in uses {
            if layer(used).is_some_and(|used| used <= own) {
                findings.push(format!("{name}: is to use crates of lower layers only, not {used}"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arrows_down_are_allowed() {
        let manifest = |name: &str, uses: &str| {
            parse(&format!(
                "[package]\nname = \"{name}\"\n[dependencies]\nlibc = \"1\"\n{uses}\n\
                 [dev-dependencies]\ntop.workspace = true\n"
            ))
        };
        let layers: [&[&str]; 3] = [&["top"], &["left", "right"], &["ground"]];
        let check = |name, uses| compare(&[manifest(name, uses)], &layers);
        assert!(check("top", "left.workspace = true\nground = { path = \"x\" }").is_empty());
        assert!(check("ground", "").is_empty());
        let not = |used| [format!("left: is to use crates of lower layers only, not {used}")];
        assert_eq!(check("left", "right = { workspace = true, features = [\"x\"] }"), not("right"));
        assert_eq!(check("left", "top.workspace = true"), not("top"));
        assert_eq!(check("new", "top.workspace = true").len(), 1);
    }
}
