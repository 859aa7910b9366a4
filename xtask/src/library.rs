//! `cargo xtask install-lib`: installs the C library for compilers and pkg-config.
//!
//! ```text
//! PREFIX/include/tyche.h
//! PREFIX/lib/libtyche.a
//! PREFIX/lib/libtyche.so -> libtyche.so.1 -> libtyche.so.VERSION
//! PREFIX/lib/pkgconfig/tyche.pc
//! ```

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Result, cargo, root, succeeds, target_dir};

/// The library's version, which is that of the whole workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The ABI number of the library, as in its build script.
const ABI: &str = "1";
/// Linker flags of the static library.
pub(crate) const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// Parses `--prefix DIR`.
pub(crate) fn prefix(args: &[OsString]) -> Option<PathBuf> {
    match args {
        [flag, dir] if flag == "--prefix" => Some(dir.into()),
        _ => None,
    }
}

/// Builds the library in all its forms; false if that fails.
pub(crate) fn build() -> Result<bool> {
    succeeds(cargo().args(["build", "--release", "--package", "libtyche"]))
}

/// The directory of the header.
pub(crate) fn include() -> PathBuf {
    root().join("crates/libtyche/include")
}

/// The static library, once built.
pub(crate) fn archive() -> PathBuf {
    target_dir().join("release/libtyche.a")
}

/// Builds and installs the library.
pub(crate) fn install(prefix: &Path) -> Result<bool> {
    if !build()? {
        return Ok(false);
    }
    let prefix = std::path::absolute(prefix).map_err(|error| format!("--prefix: {error}"))?;
    copy(&prefix).map_err(|error| format!("install into {}: {error}", prefix.display()))?;
    println!("installed into {}; compile with", prefix.display());
    let pkgconfig = prefix.join("lib/pkgconfig");
    println!("  PKG_CONFIG_PATH={} pkg-config --cflags --libs tyche", pkgconfig.display());
    Ok(true)
}

fn copy(prefix: &Path) -> io::Result<()> {
    let (include_dir, lib) = (prefix.join("include"), prefix.join("lib"));
    let pkgconfig = lib.join("pkgconfig");
    for dir in [&include_dir, &pkgconfig] {
        fs::create_dir_all(dir)?;
    }
    fs::copy(include().join("tyche.h"), include_dir.join("tyche.h"))?;
    fs::copy(archive(), lib.join("libtyche.a"))?;
    let (full, short) = (format!("libtyche.so.{VERSION}"), format!("libtyche.so.{ABI}"));
    // Running programs have the old file mapped: it is replaced, not overwritten.
    replace(&lib.join(&full), |to| {
        fs::copy(target_dir().join("release/libtyche.so"), to).map(drop)
    })?;
    replace(&lib.join(&short), |to| std::os::unix::fs::symlink(&full, to))?;
    replace(&lib.join("libtyche.so"), |to| std::os::unix::fs::symlink(&short, to))?;
    fs::write(pkgconfig.join("tyche.pc"), pkg_config(prefix))
}

fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => make(path),
    }
}

fn pkg_config(prefix: &Path) -> String {
    format!(
        "prefix={}\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\n\
         Name: tyche\n\
         Description: Remote disks over plain Ethernet: the host's side as a library\n\
         Version: {VERSION}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -ltyche\n\
         Libs.private: {}\n",
        prefix.display(),
        SYSTEM.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_all_there_is_to_say() {
        let args = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(prefix(&args(&["--prefix", "/x"])), Some("/x".into()));
        assert_eq!(prefix(&args(&["--prefix"])), None);
        assert_eq!(prefix(&args(&["/x", "--prefix"])), None);
        assert_eq!(prefix(&args(&["--prefix", "/x", "y"])), None);
    }

    #[test]
    fn the_pkg_config_file_names_the_prefix_once() {
        let file = pkg_config(Path::new("/opt/tyche"));
        assert_eq!(file.matches("/opt/tyche").count(), 1);
        assert!(file.contains("\nCflags: -I${includedir}\n"));
    }

    #[test]
    fn the_abi_is_that_of_the_build_script() {
        let script = fs::read_to_string(root().join("crates/libtyche/build.rs")).unwrap();
        assert!(script.contains(&format!("-soname,libtyche.so.{ABI}\"")));
    }
}
