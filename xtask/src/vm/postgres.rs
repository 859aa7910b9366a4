//! PostgreSQL for guests: `target/vm/postgres.tar`, from Debian's packages. They are only unpacked:
//! to install them would start a database on this machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Result, packages, succeeds};

/// The server with its programs for administrators, and those for its users.
const PACKAGES: [&str; 2] = ["postgresql-15", "postgresql-client-15"];
/// Libraries that are not taken: the compiler that the server can do without, and those that come
/// with the loader of programs, which is the machine's.
const NOT_TAKEN: [&str; 2] = ["libllvm", "libc6"];
/// Directories that no test needs.
const LEFT_OUT: [&str; 5] = ["bitcode", "doc", "locale", "man", "perl5"];

/// Makes the archive, once.
pub(super) fn make() -> Result<()> {
    let vm = super::dir()?;
    let archive = vm.join("postgres.tar");
    if archive.exists() {
        return Ok(());
    }
    println!("vm: unpacking {}, once", PACKAGES.join(" and "));
    let explain = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let (debs, tree) = (vm.join("postgres"), vm.join("postgres/tree"));
    let _ = fs::remove_dir_all(&debs);
    fs::create_dir_all(&tree).map_err(explain(&tree))?;
    packages::download(&PACKAGES, &debs)?;
    for deb in fs::read_dir(&debs).map_err(explain(&debs))? {
        let deb = deb.map_err(explain(&debs))?.path();
        if is_needed(&deb) {
            run(Command::new("dpkg-deb").arg("--extract").arg(&deb).arg(&tree))?;
        }
    }
    let aside = archive.with_extension("part");
    let mut tar = Command::new("tar");
    tar.args(LEFT_OUT.map(|it| format!("--exclude={it}")));
    run(tar.arg("--create").arg("--file").arg(&aside).arg("--directory").arg(&tree).arg("."))?;
    fs::rename(&aside, &archive).map_err(explain(&archive))?;
    fs::remove_dir_all(&debs).map_err(explain(&debs))
}

/// Whether the server needs the package in this file: itself, or a library that the machine lacks.
fn is_needed(deb: &Path) -> bool {
    let name = deb.file_name().unwrap_or_default().to_string_lossy();
    let is_ours = PACKAGES.iter().any(|it| name.starts_with(&format!("{it}_")));
    let is_library = name.starts_with("lib") && !NOT_TAKEN.iter().any(|it| name.starts_with(it));
    name.ends_with(".deb") && (is_ours || is_library)
}

/// Runs a command that must succeed.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    if succeeds(command)? { Ok(()) } else { Err(format!("{program} failed: see above")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_and_libraries_are_unpacked() {
        let is_needed = |name: &str| is_needed(&Path::new("/a").join(name));
        assert!(is_needed("postgresql-15_15.18-0+deb12u1_amd64.deb"));
        assert!(is_needed("postgresql-client-15_15.18-0+deb12u1_amd64.deb"));
        assert!(is_needed("libpq5_15.18-0+deb12u1_amd64.deb"));
        assert!(!is_needed("libllvm14_1%3a14.0.6-12_amd64.deb"));
        assert!(!is_needed("postgresql-client-common_248+deb12u1_all.deb"));
        assert!(!is_needed("ssl-cert_1.1.2_all.deb") && !is_needed("tree") && !is_needed("lock"));
    }
}
