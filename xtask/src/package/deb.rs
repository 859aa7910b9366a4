//! The Debian package: dpkg's own programs make it of what all packages have, and lintian looks at
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::contents::{self, CONFIGURATION, PROGRAM, ZSH_DEBIAN};
use super::stage::Stage;
use super::tool::{VERSION, commit, maintainer, output, read, run_tool};
use super::{root, say};
use crate::packages::{self, Need};
use crate::{Result, root as repository};

/// Programs that build the package.
const BUILD: &[Need] = &[("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev")];

/// The programs of Debian's own check.
const CHECK: &[Need] = &[("lintian", "lintian")];

/// The scripts that dpkg calls when it installs and removes the package.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Has lintian look at the package, and installs and removes it in a clean Debian; false if
/// something is wrong.
pub(super) fn test(package: &Path) -> Result<bool> {
    packages::install(CHECK)?;
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]);
    let looked = lintian.arg(package).output().map_err(|error| format!("lintian: {error}"))?;
    let said = String::from_utf8_lossy(&looked.stdout);
    let good = looked.status.success() && said.trim().is_empty();
    say("deb", "lintian finds nothing", good);
    if !good {
        print!("{said}{}", String::from_utf8_lossy(&looked.stderr));
    }
    Ok(root::test(package)? && good)
}

/// Builds the package of a program below `dir`.
pub(crate) fn package(program: &Path, dir: &Path) -> Result<PathBuf> {
    packages::install(BUILD)?;
    let stage = contents::stage(program, &dir.join("stage"), ZSH_DEBIAN)?;
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
    let configuration = CONFIGURATION.map(|file| format!("/{file}\n")).concat();
    for (name, text) in [
        ("control", control.as_str()),
        ("conffiles", configuration.as_str()),
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
    let program = stage.path(PROGRAM);
    let mut command = Command::new("dpkg-shlibdeps");
    let said = output(command.current_dir(&sources).arg("-O").arg("-e").arg(&program))?;
    let line = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    line.map(str::to_owned)
        .ok_or_else(|| format!("dpkg-shlibdeps does not say what it needs: {said}"))
}

fn architecture() -> Result<String> {
    Ok(output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_end_at_the_first_error() {
        for script in SCRIPTS {
            let text = read(&repository().join("packaging/debian").join(script)).unwrap();
            assert!(text.starts_with("#!/bin/sh\nset -e\n"), "{script}");
        }
    }
}
