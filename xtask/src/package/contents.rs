//! The content of a package, whatever its format: one list of files, and what the program makes of
//! itself: manual pages and completions come from the definition of its command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::stage::Stage;
use super::tool::{output, run_tool};
use crate::packages::{self, Need};
use crate::{Result, root as repository};

/// Where the program is installed.
pub(super) const PROGRAM: &str = "usr/sbin/tyche";

/// Programs that every package needs.
const NEEDS: &[Need] = &[("gzip", "gzip"), ("strip", "binutils")];

/// Files of the repository, and where they are installed. Documents keep their places relative to
/// each other, so that their links lead to the same files.
pub(super) const FILES: [(&str, &str, u32); 39] = [
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
    ("packaging/kubernetes/tyche-csi.yaml", "usr/share/doc/tyche/examples/kubernetes", 0o644),
    ("packaging/kubernetes/storage-class.yaml", "usr/share/doc/tyche/examples/kubernetes", 0o644),
    ("packaging/wireshark/tyche.lua", "usr/share/tyche/wireshark", 0o644),
    ("packaging/README", "usr/share/doc/tyche", 0o644),
    ("CHANGELOG.md", "usr/share/doc/tyche", 0o644),
    ("PROTOCOL.md", "usr/share/doc/tyche", 0o644),
    ("FC.md", "usr/share/doc/tyche", 0o644),
    ("docs/first-day.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/guide.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/reference.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/troubleshooting.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/high-availability.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/moving-from.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/upgrade.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/kubernetes.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/schema.json", "usr/share/doc/tyche/docs", 0o644),
    ("docs/protocol-annexes.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/golden-frames.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/golden-frames-fc.md", "usr/share/doc/tyche/docs", 0o644),
    ("docs/exporter-page.png", "usr/share/doc/tyche/docs", 0o644),
    ("docs/exporter-dashboard.png", "usr/share/doc/tyche/docs", 0o644),
    ("docs/measurements/congestion.md", "usr/share/doc/tyche/docs/measurements", 0o644),
    ("docs/measurements/limits.md", "usr/share/doc/tyche/docs/measurements", 0o644),
    ("docs/measurements/network-cards.md", "usr/share/doc/tyche/docs/measurements", 0o644),
];

/// Files among these that the administrator may change.
pub(super) const CONFIGURATION: [&str; 2] =
    ["etc/needrestart/conf.d/tyche.conf", "etc/tyche/tychetab"];

/// The directory in which zsh looks for completions, which depends on the distribution.
pub(super) const ZSH_DEBIAN: &str = "usr/share/zsh/vendor-completions";
pub(super) const ZSH_OTHERS: &str = "usr/share/zsh/site-functions";

/// The shells that `zsh` is not, and where each looks for completions.
const COMPLETIONS: [(&str, &str); 2] = [
    ("bash", "usr/share/bash-completion/completions/tyche"),
    ("fish", "usr/share/fish/vendor_completions.d/tyche.fish"),
];

/// Puts everything below `dir` that packages of all formats have.
pub(super) fn stage(program: &Path, dir: &Path, zsh: &str) -> Result<Stage> {
    packages::install(NEEDS)?;
    let stage = Stage::new(dir)?;
    for (source, target, mode) in FILES {
        let source = repository().join(source);
        let name = source.file_name().unwrap_or_default().to_owned();
        stage.copy(&source, &Path::new(target).join(name), mode)?;
    }
    self::program(program, &stage)?;
    manuals(program, &stage)?;
    let places = COMPLETIONS.map(|(shell, place)| (shell, PathBuf::from(place)));
    for (shell, place) in places.into_iter().chain([("zsh", Path::new(zsh).join("_tyche"))]) {
        let script = output(Command::new(program).args(["completions", shell]))?;
        stage.write(&place, &script, 0o644)?;
    }
    Ok(stage)
}

/// Adds the program, without its symbols.
pub(super) fn program(program: &Path, stage: &Stage) -> Result<()> {
    stage.copy(program, Path::new(PROGRAM), 0o755)?;
    run_tool(Command::new("strip").arg("--strip-unneeded").arg(stage.path(PROGRAM)))
}

/// Adds the manual pages that the program writes, and those in the repository.
fn manuals(program: &Path, stage: &Stage) -> Result<()> {
    let commands = stage.path("usr/share/man/man8");
    run_tool(Command::new(program).arg("man").arg(&commands))?;
    let files = Path::new("usr/share/man/man5");
    let tychetab = repository().join("packaging/man/tychetab.5");
    stage.copy(&tychetab, &files.join("tychetab.5"), 0o644)?;
    let head = text("packaging/man/tyche-target.toml.5")?;
    let page = target_page(&head, &text("packaging/target.toml")?);
    stage.write(&files.join("tyche-target.toml.5"), &page, 0o644)?;
    stage.compress(&commands)?;
    stage.compress(&stage.path("usr/share/man/man5"))
}

/// A file of the repository.
fn text(path: &str) -> Result<String> {
    let path = repository().join(path);
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The line of the page that stands for the example.
const EXAMPLE: &str = ".\\\" EXAMPLE\n";

/// The manual page of target.toml: what is there is the commented example of the package.
fn target_page(page: &str, example: &str) -> String {
    // A backslash begins an escape, a dot or an apostrophe in the first column a request.
    let lines = example.lines().map(|line| format!("\\&{}\n", line.replace('\\', "\\e")));
    page.replace(EXAMPLE, &format!(".EX\n{}.EE\n", lines.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use tyche_testkit::document::{has_anchor, links};

    use super::super::tool::read;
    use super::*;

    #[test]
    fn the_page_of_target_toml_has_the_example() {
        let page = text("packaging/man/tyche-target.toml.5").unwrap();
        let example = text("packaging/target.toml").unwrap();
        let page = target_page(&page, &example);
        assert!(page.contains(".EX\n\\&# What this machine exports"), "{page}");
        assert!(page.contains("\\&[[export]]\n") && !page.contains(EXAMPLE));
        assert_eq!(target_page(EXAMPLE, "a\\b"), ".EX\n\\&a\\eb\n.EE\n");
    }

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
