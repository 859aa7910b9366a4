//! `cargo xtask fio-engine`: the engine for fio, `target/fio/tyche.so`.
//!
//! An engine is built against the headers of the very fio that loads it. They are in the source
//! package of the distribution, which `apt-get source` fetches. Few systems have source packages
//! configured; so apt-get gets lists of its own, made from the system's by turning `deb` into
//! `deb-src`. The system's own stay unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, library, packages, root, succeeds, target_dir};

/// The directory of apt's package lists.
const SOURCES: &str = "/etc/apt";

/// Programs that build an engine.
const NEEDS: &[packages::Need] =
    &[("cc", "gcc"), ("dpkg-source", "dpkg-dev"), ("fio", "fio"), ("make", "make")];

/// The engine, once built.
pub(crate) fn engine() -> PathBuf {
    target_dir().join("fio/tyche.so")
}

/// Builds the engine; false if a compiler has failed.
pub(crate) fn build() -> Result<bool> {
    packages::install(NEEDS)?;
    if !library::build()? {
        return Ok(false);
    }
    let dir = target_dir().join("fio");
    let version = installed()?;
    let source = dir.join("source").join(version.replace([':', '/'], "_"));
    if !source.join("ready").exists() {
        fetch(&dir, &source, &version)?;
        fs::write(source.join("ready"), "").map_err(explain(&source))?;
    }
    let (headers, engine) = (unpacked(&source)?, engine());
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-g", "-std=gnu11", "-Wall", "-D_GNU_SOURCE"]);
    cc.arg("-include").arg(headers.join("config-host.h"));
    // fio's headers do not compile without warnings of their own.
    cc.arg("-isystem").arg(&headers).arg("-I").arg(library::include());
    cc.arg(root().join("crates/libtyche/fio/tyche.c")).arg(library::archive());
    cc.args(library::SYSTEM).arg("-Wl,--exclude-libs,ALL").arg("-o").arg(&engine);
    if !succeeds(&mut cc)? {
        return Ok(false);
    }
    println!("built {} for fio {version}; use it with", engine.display());
    println!("  fio --ioengine=external:{} --export=NAME --link=INTERFACE ..", engine.display());
    Ok(true)
}

/// The version of the source package that the installed fio was made from.
fn installed() -> Result<String> {
    let mut query = Command::new("dpkg-query");
    let output = query.args(["--show", "--showformat=${source:Version}", "fio"]).output();
    let output = output.map_err(|error| format!("dpkg-query: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if version.is_empty() {
        Err("fio is not installed as a package".to_owned())
    } else {
        Ok(version)
    }
}

/// Fetches, unpacks and configures fio's source.
fn fetch(dir: &Path, source: &Path, version: &str) -> Result<()> {
    let apt = dir.join("apt");
    let parts = apt.join("sources");
    for needed in [&parts, &apt.join("lists/partial"), &apt.join("cache/archives/partial")] {
        fs::create_dir_all(needed).map_err(explain(needed))?;
    }
    // Leftovers of an interrupted run.
    let _ = fs::remove_dir_all(source);
    fs::create_dir_all(source).map_err(explain(source))?;
    source_lists(&parts)?;
    let apt_get = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        let absolute = std::path::absolute(&apt).unwrap_or_else(|_| apt.clone());
        let option = |name: &str, place: &str| format!("{name}={}", absolute.join(place).display());
        command.args(["--quiet", "-o", "Dir::Etc::SourceList=/dev/null"]);
        command.args(["-o", &option("Dir::Etc::SourceParts", "sources")]);
        command.args(["-o", &option("Dir::State::Lists", "lists")]);
        command.args(["-o", &option("Dir::Cache", "cache")]);
        command.args(args).current_dir(source);
        succeeds(&mut command)
    };
    if !apt_get(&["update"])? || !apt_get(&["source", &format!("fio={version}")])? {
        return Err(format!("could not fetch the source package of fio {version}: see above"));
    }
    let mut configure = Command::new("./configure");
    configure.arg("--disable-native").current_dir(unpacked(source)?);
    let output = configure.output().map_err(|error| format!("fio's configure: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("fio's configure: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Writes lists of source packages, made from the system's lists of packages.
fn source_lists(to: &Path) -> Result<()> {
    let mut lists = vec![Path::new(SOURCES).join("sources.list")];
    if let Ok(entries) = fs::read_dir(Path::new(SOURCES).join("sources.list.d")) {
        lists.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    for list in lists {
        let kind = list.extension().and_then(|it| it.to_str());
        let (Some(kind @ ("list" | "sources")), Some(name)) = (kind, list.file_name()) else {
            continue;
        };
        let Ok(text) = fs::read_to_string(&list) else { continue };
        let to = to.join(name);
        fs::write(&to, of_sources(&text, kind)).map_err(explain(&to))?;
    }
    Ok(())
}

/// Turns a list of packages into one of source packages: in the one-line format (`list`), or in the
/// deb822 format (`sources`).
fn of_sources(text: &str, kind: &str) -> String {
    let line = |line: &str| match kind {
        "list" => match line.trim_start().strip_prefix("deb") {
            Some(rest) if rest.starts_with([' ', '\t']) => format!("deb-src{rest}\n"),
            _ => String::new(),
        },
        _ if line.starts_with("Types:") => "Types: deb-src\n".to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The directory of the unpacked source package.
fn unpacked(source: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(source).map_err(explain(source))?;
    let mut dirs = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let found = dirs.find(|dir| dir.join("ioengines.h").exists());
    found.ok_or_else(|| format!("{}: no source of fio here", source.display()))
}

fn explain(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_lists_turn_into_lists_of_sources() {
        let old = "# deb a\ndeb [signed-by=/k] http://a b main\ndeb-src http://a b main\n";
        assert_eq!(of_sources(old, "list"), "deb-src [signed-by=/k] http://a b main\n");
        let new = "Types: deb\nURIs: http://a\n\nTypes: deb deb-src\n";
        let sources = "Types: deb-src\nURIs: http://a\n\nTypes: deb-src\n";
        assert_eq!(of_sources(new, "sources"), sources);
    }
}
