//! `cargo xtask deb`: the Debian package, with everything for Tyche as a service.
//!
//! Its content is in `packaging/`, or made by the program itself: manual pages and completions come
//! from the definition of its command line. dpkg's own programs do the rest.

mod root;
mod stage;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{self, Need};
use crate::{Result, build, root as repository, target_dir};
pub(crate) use root::bootstrap;
use stage::Stage;

/// The package's version, which is that of the whole workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Programs that build the package.
const BUILD: &[Need] = &[
    ("dpkg-deb", "dpkg"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("gzip", "gzip"),
    ("strip", "binutils"),
];

/// Files of the repository, and where they are installed. Documents keep their places relative to
/// each other, so that their links lead to the same files.
const FILES: [(&str, &str, u32); 29] = [
    ("packaging/systemd/tyche-target.service", "usr/lib/systemd/system", 0o644),
    ("packaging/systemd/tyche@.service", "usr/lib/systemd/system", 0o644),
    ("packaging/systemd/tyche-disconnect.service", "usr/lib/systemd/system", 0o644),
    ("packaging/systemd/tyche-exporter.service", "usr/lib/systemd/system", 0o644),
    ("packaging/systemd/tyche-generator", "usr/lib/systemd/system-generators", 0o755),
    ("packaging/sysusers/tyche.conf", "usr/lib/sysusers.d", 0o644),
    ("packaging/udev/59-tyche.rules", "usr/lib/udev/rules.d", 0o644),
    ("packaging/udev/60-tyche.rules", "usr/lib/udev/rules.d", 0o644),
    ("packaging/udev/65-tyche-md.rules", "usr/lib/udev/rules.d", 0o644),
    ("packaging/udev/tyche-md-re-add", "usr/lib/udev", 0o755),
    ("packaging/needrestart/tyche.conf", "etc/needrestart/conf.d", 0o644),
    ("packaging/tychetab", "etc/tyche", 0o644),
    ("packaging/target.toml", "usr/share/doc/tyche/examples", 0o644),
    ("packaging/prometheus/tyche.rules.yml", "usr/share/doc/tyche/examples/prometheus", 0o644),
    ("packaging/grafana/tyche.json", "usr/share/doc/tyche/examples/grafana", 0o644),
    ("CHANGELOG.md", "usr/share/doc/tyche", 0o644),
    ("PROTOCOL.md", "usr/share/doc/tyche", 0o644),
    ("FC.md", "usr/share/doc/tyche", 0o644),
    ("docs/guide.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/reference.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/troubleshooting.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/schema.json", "usr/share/doc/tyche/docs", 0o644),
    ("docs/protocol-annexes.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/golden-frames.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/golden-frames-fc.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/exporter-page.png", "usr/share/doc/tyche/docs", 0o644),
    ("docs/exporter-dashboard.png", "usr/share/doc/tyche/docs", 0o644),
    ("docs/measurements/congestion.md", "usr/share/doc/tyche/docs/measurements", 0o644),
    ("docs/measurements/network-cards.md", "usr/share/doc/tyche/docs/measurements", 0o644),
];

/// The program's names of shells, and where each shell looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/tyche"),
    ("zsh", "usr/share/zsh/vendor-completions/_tyche"),
    ("fish", "usr/share/fish/vendor_completions.d/tyche.fish"),
];

/// The scripts that dpkg calls when it installs and removes the package.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Whether the arguments are valid.
pub(crate) fn is_usage(args: &[OsString]) -> bool {
    args.is_empty() || args == ["--test"]
}

/// Builds the package, and with `--test` installs and removes it in a clean Debian; false if that
/// fails.
pub(crate) fn run(args: &[OsString]) -> Result<bool> {
    if !build(&["tyche"])? {
        return Ok(false);
    }
    let package = package(&target_dir().join("release/tyche"), &target_dir().join("deb"))?;
    println!("{}", package.display());
    if args.is_empty() { Ok(true) } else { root::test(&package) }
}

/// Builds the package of a program below `dir`.
pub(crate) fn package(program: &Path, dir: &Path) -> Result<PathBuf> {
    packages::install(BUILD)?;
    let stage = Stage::new(&dir.join("stage"))?;
    for (source, target, mode) in FILES {
        let source = repository().join(source);
        let name = source.file_name().unwrap_or_default().to_owned();
        stage.copy(&source, &Path::new(target).join(name), mode)?;
    }
    stage.copy(program, Path::new("usr/sbin/tyche"), 0o755)?;
    run_tool(Command::new("strip").arg("--strip-unneeded").arg(stage.path("usr/sbin/tyche")))?;
    manuals(program, &stage)?;
    for (shell, target) in COMPLETIONS {
        let script = output(Command::new(program).args(["completions", shell]))?;
        stage.write(Path::new(target), &script, 0o644)?;
    }
    documentation(&stage)?;
    control(&stage, dir)?;
    let architecture = architecture()?;
    let package = dir.join(format!("tyche_{VERSION}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    // Reproducible: the same files give the same package.
    build.env("SOURCE_DATE_EPOCH", commit("%ct")?);
    run_tool(
        build.args(["--root-owner-group", "-Zxz", "--build"]).arg(stage.root()).arg(&package),
    )?;
    Ok(package)
}

/// Adds the manual pages that the program writes, and those in the repository.
fn manuals(program: &Path, stage: &Stage) -> Result<()> {
    let commands = stage.path("usr/share/man/man8");
    run_tool(Command::new(program).arg("man").arg(&commands))?;
    let files = Path::new("usr/share/man/man5/tychetab.5");
    stage.copy(&repository().join("packaging/man/tychetab.5"), files, 0o644)?;
    stage.compress(&commands)?;
    stage.compress(&stage.path("usr/share/man/man5"))
}

/// Adds licences and changelog, in Debian's formats.
fn documentation(stage: &Stage) -> Result<()> {
    let licence = read(&repository().join("LICENSE-MIT"))?;
    let indent = |line: &str| if line.is_empty() { " .".into() } else { format!(" {line}") };
    let licence: Vec<String> = licence.trim_end().lines().map(indent).collect();
    let template = read(&repository().join("packaging/debian/copyright"))?;
    let copyright = template.replace("@MIT@", &licence.join("\n"));
    stage.write(Path::new("usr/share/doc/tyche/copyright"), &copyright, 0o644)?;
    let changelog = format!(
        "tyche ({VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {}  {}\n",
        maintainer(),
        commit("%cD")?
    );
    let history = stage.path("usr/share/doc/tyche/changelog");
    stage.write(Path::new("usr/share/doc/tyche/changelog"), &changelog, 0o644)?;
    stage.compress(&history)
}

/// Writes dpkg's control file.
fn control(stage: &Stage, dir: &Path) -> Result<()> {
    let size = stage.size_kib()?.to_string();
    let values = [
        ("@VERSION@", VERSION.to_owned()),
        ("@ARCHITECTURE@", architecture()?),
        ("@MAINTAINER@", maintainer()),
        ("@SIZE@", size),
        ("@DEPENDS@", libraries(stage, dir)?),
    ];
    let mut control = read(&repository().join("packaging/debian/control"))?;
    for (key, value) in values {
        control = control.replace(key, &value);
    }
    let sums = stage.checksums()?;
    for (name, text) in [
        ("control", control.as_str()),
        ("conffiles", "/etc/needrestart/conf.d/tyche.conf\n/etc/tyche/tychetab\n"),
        ("md5sums", sums.as_str()),
    ] {
        stage.write(&Path::new("DEBIAN").join(name), text, 0o644)?;
    }
    for script in SCRIPTS {
        let source = repository().join("packaging/debian").join(script);
        stage.copy(&source, &Path::new("DEBIAN").join(script), 0o755)?;
    }
    Ok(())
}

/// The dependencies on packages of shared libraries, with their minimum versions.
fn libraries(stage: &Stage, dir: &Path) -> Result<String> {
    // dpkg-shlibdeps must run in the source directory of a package.
    let sources = dir.join("sources");
    let debian = sources.join("debian");
    fs::create_dir_all(&debian).map_err(|error| format!("{}: {error}", debian.display()))?;
    let stub = debian.join("control");
    fs::write(&stub, "Source: tyche\n\nPackage: tyche\nArchitecture: any\n")
        .map_err(|error| format!("{}: {error}", stub.display()))?;
    let program = stage.path("usr/sbin/tyche");
    let mut command = Command::new("dpkg-shlibdeps");
    let said = output(command.current_dir(&sources).arg("-O").arg("-e").arg(&program))?;
    let line = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    line.map(str::to_owned)
        .ok_or_else(|| format!("dpkg-shlibdeps does not say what it needs: {said}"))
}

fn architecture() -> Result<String> {
    Ok(output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

/// The package's maintainer, from the variables that all of Debian's tools use.
fn maintainer() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("DEBFULLNAME").unwrap_or_else(|| "The Tyche authors".to_owned());
    let email = variable("DEBEMAIL").unwrap_or_else(|| "nobody@tyche.invalid".to_owned());
    format!("{name} <{email}>")
}

/// A value of the packaged commit, by a `format` of `git log`.
fn commit(format: &str) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(repository()).args(["log", "-1", &format!("--format={format}")]);
    Ok(output(&mut git)?.trim().to_owned())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The output of a command.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{name} ({}): {text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Runs a command that prints nothing unless it fails.
fn run_tool(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use tyche_testkit::document::{has_anchor, links};

    use super::*;

    /// The path without `..`.
    fn plain(path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => assert!(plain.pop(), "{}", path.display()),
                part => plain.push(part),
            }
        }
        plain
    }

    /// The places that a document links to, relative to the repository, and the headings there.
    fn linked(document: &str, text: &str) -> Vec<(PathBuf, String)> {
        let dir = Path::new(document).parent().unwrap();
        let place = |path: &str| match path {
            "" => PathBuf::from(document),
            path => plain(&dir.join(path)),
        };
        links(text).map(|(path, anchor)| (place(path), anchor.to_owned())).collect()
    }

    #[test]
    fn links_of_documents_lead_to_files_and_headings() {
        let tracked = output(Command::new("git").current_dir(repository()).arg("ls-files"));
        let tracked = tracked.unwrap();
        for document in tracked.lines().filter(|file| file.ends_with(".md")) {
            let text = read(&repository().join(document)).unwrap();
            for (path, anchor) in linked(document, &text) {
                let there = repository().join(&path);
                assert!(there.exists(), "{document}: no {}", path.display());
                let is_found = anchor.is_empty() || has_anchor(&read(&there).unwrap(), &anchor);
                assert!(is_found, "{document}: no heading for {}#{anchor}", path.display());
            }
        }
    }

    #[test]
    fn documents_of_the_package_link_to_files_of_the_package() {
        let installed = |source: &Path| {
            let file = FILES.iter().find(|(file, ..)| Path::new(file) == source)?;
            Some(Path::new(file.1).join(source.file_name()?))
        };
        for (document, dir, _) in FILES.iter().filter(|(file, ..)| file.ends_with(".md")) {
            let text = read(&repository().join(document)).unwrap();
            for (path, _) in links(&text).filter(|(path, _)| !path.is_empty()) {
                let source = plain(&Path::new(document).parent().unwrap().join(path));
                let there = plain(&Path::new(dir).join(path));
                assert_eq!(installed(&source), Some(there), "{document}: {path}");
            }
        }
    }

    #[test]
    fn everything_that_is_installed_is_in_the_repository() {
        for (source, ..) in FILES {
            assert!(repository().join(source).exists(), "{source}");
        }
        for script in SCRIPTS {
            let text = read(&repository().join("packaging/debian").join(script)).unwrap();
            assert!(text.starts_with("#!/bin/sh\nset -e\n"), "{script}");
        }
    }

    #[test]
    fn units_call_the_program_where_it_is_installed() {
        for (source, ..) in FILES.iter().filter(|(source, ..)| source.contains("/systemd/")) {
            let text = read(&repository().join(source)).unwrap();
            let calls =
                text.lines().filter(|line| line.contains("tyche ") && line.contains("/sbin/"));
            assert!(calls.clone().all(|line| line.contains("/usr/sbin/tyche ")), "{source}");
            assert_ne!(calls.count(), 0, "{source}");
        }
    }
}
