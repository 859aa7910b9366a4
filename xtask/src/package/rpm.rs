//! The package for distributions with RPM: Debian's `rpmbuild` makes it of what all packages have,
//! by a description that is generated from the files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::contents::{self, CONFIGURATION, ZSH_OTHERS};
use super::say;
use super::stage::Stage;
use super::tool::{VERSION, commit, maintainer, output, read, run_tool};
use crate::packages::{self, Need};
use crate::{Result, root as repository};

const BUILD: &[Need] = &[("rpmbuild", "rpm")];
const CHECK: &[Need] = &[("rpm", "rpm"), ("rpmlint", "rpmlint")];

/// Directories that are the package's, and all below them.
const OWN: [&str; 5] = [
    "etc/needrestart",
    "etc/tyche",
    "usr/share/doc/tyche",
    "usr/share/licenses/tyche",
    "usr/share/tyche",
];

/// Where rpm keeps what is installed, in the directory of the test.
const DATABASE: &str = "/var/lib/rpm";

/// Builds the package of a program below `dir`.
pub(super) fn package(program: &Path, dir: &Path) -> Result<PathBuf> {
    packages::install(BUILD)?;
    let stage = contents::stage(program, &dir.join("stage"), ZSH_OTHERS)?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let place = Path::new("usr/share/licenses/tyche").join(licence);
        stage.copy(&repository().join(licence), &place, 0o644)?;
    }
    let spec = dir.join("tyche.spec");
    let text = description(&stage)?;
    fs::write(&spec, text).map_err(|error| format!("{}: {error}", spec.display()))?;
    let mut build = Command::new("rpmbuild");
    // Reproducible: the same files give the same package.
    build.env("SOURCE_DATE_EPOCH", commit("%ct")?);
    for (name, value) in [
        ("_topdir", dir.join("build").display().to_string()),
        ("_rpmdir", dir.display().to_string()),
        ("_build_name_fmt", "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned()),
        ("stage", stage.root().display().to_string()),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    run_tool(build.args(["--quiet", "-bb"]).arg(&spec))?;
    let architecture = output(Command::new("rpm").args(["--eval", "%{_arch}"]))?;
    Ok(dir.join(format!("tyche-{VERSION}-1.{}.rpm", architecture.trim())))
}

/// The description of the package, with the list of its files.
fn description(stage: &Stage) -> Result<String> {
    let all = stage.entries()?;
    let files: Vec<String> = all.iter().filter_map(|(kind, path)| line(kind, path)).collect();
    let values = [
        ("@VERSION@", VERSION.to_owned()),
        ("@MAINTAINER@", maintainer()),
        ("@DATE@", commit("%cd")?),
        ("@FILES@", files.join("\n")),
    ];
    let mut text = read(&repository().join("packaging/rpm/tyche.spec"))?;
    for (key, value) in values {
        text = text.replace(key, &value);
    }
    Ok(text)
}

/// The line of a file or directory; none for a directory of others.
fn line(kind: &str, path: &str) -> Option<String> {
    let below = |dir: &str| path == dir || path.starts_with(&format!("{dir}/"));
    let note = match kind {
        "d" if OWN.into_iter().any(below) => "%dir ",
        "d" => return None,
        _ if CONFIGURATION.contains(&path) => "%config(noreplace) ",
        _ if below("usr/share/licenses") => "%license ",
        _ if below("usr/share/doc") || below("usr/share/man") => "%doc ",
        _ => "",
    };
    Some(format!("{note}\"/{path}\""))
}

/// Has rpmlint look at the package, and installs and removes it in an empty directory; false if
/// something is wrong.
pub(super) fn test(package: &Path) -> Result<bool> {
    packages::install(CHECK)?;
    let mut rpmlint = Command::new("rpmlint");
    rpmlint.arg("--config").arg(repository().join("packaging/rpm/rpmlint.toml")).arg(package);
    let looked = rpmlint.output().map_err(|error| format!("rpmlint: {error}"))?;
    let said = String::from_utf8_lossy(&looked.stdout).into_owned();
    let good = said.contains(" 0 errors, 0 warnings");
    say("rpm", "rpmlint finds nothing", good);
    if !good {
        print!("{said}{}", String::from_utf8_lossy(&looked.stderr));
    }
    Ok(install(package)? && good)
}

/// Installs the package in an empty directory, looks whether all is there, and removes it. Its
/// scripts do not run: they need programs, which the directory does not have.
fn install(package: &Path) -> Result<bool> {
    let root = package.with_file_name("root");
    run_tool(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&root))?;
    fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let rpm = |args: &[&str]| {
        let mut rpm = Command::new("rpm");
        rpm.args(["--dbpath", DATABASE]).arg("--root").arg(&root).args(args);
        rpm
    };
    run_tool(&mut rpm(&["--initdb"]))?;
    run_tool(rpm(&["--install", "--nodeps", "--noscripts"]).arg(package))?;
    let wrong = rpm(&["--verify", "--nodeps", "--noscripts", "tyche"]).output();
    let wrong = wrong.map_err(|error| format!("rpm: {error}"))?.stdout;
    say("rpm", "all files are installed as they were packaged", wrong.is_empty());
    let version = output(Command::new(root.join(contents::PROGRAM)).arg("--version"))?;
    let runs = version.contains(VERSION);
    say("rpm", "the program runs", runs);
    run_tool(&mut rpm(&["--erase", "--noscripts", "tyche"]))?;
    let mut find = Command::new("find");
    find.arg(&root).args(["-type", "f", "-not", "-path", &format!("*{DATABASE}/*")]);
    let left = output(&mut find)?;
    say("rpm", "removing it leaves no file", left.is_empty());
    print!("{}{left}", String::from_utf8_lossy(&wrong));
    Ok(wrong.is_empty() && runs && left.is_empty())
}
