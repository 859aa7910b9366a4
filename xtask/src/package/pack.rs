//! `cargo xtask bench --suite scale --pack FILE`: an archive with everything that the suite runs,
//! for a machine that has neither Rust nor packages nor a network.
//!
//! ```text
//! tyche-scale/run.sh       runs the suite, as root; results/ has what it measured
//!             bin/         a script for each program: all that PATH has then
//!             programs/    the programs
//!             lib/         their libraries, the loader, nbdkit's plugin, the engine for fio
//!             jobs/        job files for fio
//! ```
//!
//! A script calls the loader of the archive, so that no library of the machine is used. Of the
//! machine there are a kernel and a shell.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::oci::{archive, libraries};
use super::stage::Stage;
use super::tool::{commit, output, run_tool};
use crate::packages::{self, Need};
use crate::{Result, root as repository, target_dir};

/// Programs that make the archive.
const NEEDS: &[Need] =
    &[("gzip", "gzip"), ("ldd", "libc-bin"), ("strip", "binutils"), ("tar", "tar")];

/// The directory in the archive.
const NAME: &str = "tyche-scale";
/// Our programs.
const OURS: [&str; 3] = ["comparison", "tyche", "tyche-lab"];
/// Programs of the system that the suite runs.
const SYSTEM: [&str; 8] = ["date", "ethtool", "fio", "ip", "nbdkit", "nsenter", "sh", "taskset"];
/// The plugin of nbdkit that serves memory.
const PLUGIN: &str = "nbdkit-memory-plugin.so";
/// nbdkit finds a plugin by its name only where it was installed.
const NAMED_PLUGIN: &str = "\
for word; do
    shift
    [ \"$word\" = memory ] && word=$here/lib/nbdkit-memory-plugin.so
    set -- \"$@\" \"$word\"
done
";

/// The archive that the arguments of `cargo xtask bench` ask for, if they do.
///
/// # Errors
/// They ask for something else as well.
pub(crate) fn wanted(args: &[OsString]) -> Result<Option<PathBuf>> {
    let is_asked = |arg: &OsString| arg.to_string_lossy().split('=').next() == Some("--pack");
    if !args.iter().any(is_asked) {
        return Ok(None);
    }
    let words = args.iter().flat_map(|arg| match arg.to_str().and_then(|it| it.split_once('=')) {
        Some((option, value)) => vec![option.into(), value.into()],
        None => vec![arg.clone()],
    });
    let words: Vec<OsString> = words.collect();
    let (mut file, mut suite) = (None, None);
    for pair in words.chunks(2) {
        match pair {
            [option, value] if option == "--pack" => file = Some(PathBuf::from(value)),
            [option, value] if option == "--suite" => suite = Some(value),
            _ => {}
        }
    }
    match file {
        Some(file) if suite.is_some_and(|it| it == "scale") && words.len() == 4 => Ok(Some(file)),
        _ => Err(
            "an archive is made by `--suite scale --pack FILE`; options of the measurement are \
                  for run.sh in it"
                .to_owned(),
        ),
    }
}

/// Makes the archive of programs that are built: with `engine`, the engine for fio.
pub(crate) fn make(file: &Path, engine: &Path) -> Result<()> {
    packages::install(NEEDS)?;
    let dir = target_dir().join("pack");
    let pack = Pack { stage: Stage::new(&dir.join(NAME))? };
    for name in OURS {
        pack.program(name, &target_dir().join("release").join(name), "")?;
        run_tool(Command::new("strip").arg("--strip-debug").arg(pack.path("programs", name)))?;
    }
    for name in SYSTEM {
        pack.system_program(name)?;
    }
    pack.library(engine)?;
    run_tool(Command::new("strip").arg("--strip-debug").arg(pack.path("lib", "tyche.so")))?;
    let jobs = repository().join("bench/jobs");
    let entries = fs::read_dir(&jobs).map_err(|error| format!("{}: {error}", jobs.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", jobs.display()))?.path();
        let name = path.file_name().unwrap_or_default();
        pack.stage.copy(&path, &Path::new("jobs").join(name), 0o644)?;
    }
    pack.stage.write(Path::new("run.sh"), &run_script(&built_from()?), 0o755)?;
    let plain = dir.join("pack.tar");
    archive(&dir, NAME, &plain)?;
    let is_compressed = file.extension().is_some_and(|it| it == "gz" || it == "tgz");
    let made = if is_compressed {
        run_tool(Command::new("gzip").args(["--force", "--no-name"]).arg(&plain))?;
        dir.join("pack.tar.gz")
    } else {
        plain
    };
    run_tool(Command::new("mv").arg("--").arg(&made).arg(file))?;
    println!("{}: there, as root, `tar -xf` it, and `sh {NAME}/run.sh`", file.display());
    Ok(())
}

/// The commit that is checked out, and whether files differ from it.
fn built_from() -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(repository()).args(["status", "--porcelain", "--untracked-files=no"]);
    let changed = !output(&mut git)?.is_empty();
    Ok(commit("%H")? + if changed { ", changed" } else { "" })
}

/// The directory that is archived.
struct Pack {
    stage: Stage,
}

impl Pack {
    fn path(&self, folder: &str, name: &str) -> PathBuf {
        self.stage.path(Path::new(folder).join(name))
    }

    /// Adds a program of the system, where it is.
    fn system_program(&self, name: &str) -> Result<()> {
        let missing = || format!("{name} is not installed");
        let path = packages::find(name).ok_or_else(missing)?;
        if name != "nbdkit" {
            return self.program(name, &path, "");
        }
        let config = output(Command::new(&path).arg("--dump-config"))?;
        let plugins = config.lines().find_map(|line| line.strip_prefix("plugindir="));
        let plugins = plugins.ok_or("nbdkit does not say where its plugins are")?;
        self.library(&Path::new(plugins).join(PLUGIN))?;
        self.program(name, &path, NAMED_PLUGIN)
    }

    /// Adds a program with its libraries, and a script that begins with `lines` and runs it.
    fn program(&self, name: &str, path: &Path, lines: &str) -> Result<()> {
        self.stage.copy(path, &Path::new("programs").join(name), 0o755)?;
        let needed = self.libraries_of(path)?;
        let loader = needed.into_iter().find(|it| it.starts_with("ld-"));
        let loader = loader.ok_or_else(|| format!("{}: no loader", path.display()))?;
        let script = format!(
            "#!/bin/sh\nhere=${{0%/*}}/..\n{lines}exec \"$here/lib/{loader}\" --inhibit-cache \
             --library-path \"$here/lib\" \"$here/programs/{name}\" \"$@\"\n"
        );
        self.stage.write(&Path::new("bin").join(name), &script, 0o755)
    }

    /// Adds a library that a program opens itself, with those that it needs.
    fn library(&self, path: &Path) -> Result<()> {
        let name = path.file_name().unwrap_or_default();
        self.stage.copy(path, &Path::new("lib").join(name), 0o755)?;
        self.libraries_of(path).map(drop)
    }

    /// Adds the libraries of a program, the loader among them; returns their names.
    fn libraries_of(&self, program: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for library in libraries(program)? {
            let name = library.rsplit('/').next().unwrap_or_default().to_owned();
            self.stage.copy(Path::new(&library), &Path::new("lib").join(&name), 0o755)?;
            names.push(name);
        }
        Ok(names)
    }
}

/// The script that runs the suite. It uses nothing but what the shell itself can do.
fn run_script(commit: &str) -> String {
    format!(
        "#!/bin/sh\n\
         # Runs `cargo xtask bench --suite scale` with the programs of this directory alone, as\n\
         # root. results/ has what it measured. Options are those of that command: --help.\n\
         case $0 in */*) here=${{0%/*}} ;; *) here=. ;; esac\n\
         here=$(cd \"$here\" && pwd) || exit 1\n\
         unset LD_LIBRARY_PATH LD_PRELOAD\n\
         PATH=$here/bin\n\
         export PATH\n\
         exec \"$here/bin/comparison\" --suite scale --tyche \"$here/bin/tyche\" \\\n    \
             --lab \"$here/bin/tyche-lab\" --engine \"$here/lib/tyche.so\" \\\n    \
             --job-files \"$here/jobs\" --commit '{commit}' --out \"$here/results\" \"$@\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed in the end.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("tyche-{name}-{}", std::process::id())))
        }

        fn pack(&self) -> Pack {
            Pack { stage: Stage::new(&self.0).unwrap() }
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn alone(program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "");
        command
    }

    #[test]
    fn a_program_maps_nothing_but_files_of_the_pack() {
        let dir = Dir::new("pack-cat");
        let pack = dir.pack();
        pack.system_program("cat").unwrap();
        let maps = output(alone(&pack.path("bin", "cat")).arg("/proc/self/maps")).unwrap();
        let files = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
        let files: Vec<_> = files.collect();
        assert!(files.iter().any(|it| it.contains("libc.so")), "{maps}");
        let root = fs::canonicalize(&dir.0).unwrap();
        assert!(files.iter().all(|it| Path::new(it).starts_with(&root)), "{maps}");
    }

    #[test]
    fn nbdkit_finds_its_plugin_in_the_pack() {
        let dir = Dir::new("pack-nbdkit");
        let pack = dir.pack();
        pack.system_program("nbdkit").unwrap();
        let mut nbdkit = alone(&pack.path("bin", "nbdkit"));
        let said = output(nbdkit.args(["--dump-plugin", "memory", "1M"])).unwrap();
        let path = said.lines().find_map(|line| line.strip_prefix("path=")).unwrap();
        let (path, expected) = (fs::canonicalize(path), fs::canonicalize(pack.path("lib", PLUGIN)));
        assert_eq!(path.unwrap(), expected.unwrap());
    }

    #[test]
    fn the_script_runs_the_suite_with_the_programs_of_the_pack() {
        let dir = Dir::new("pack-run");
        let pack = dir.pack();
        pack.stage.write(Path::new("run.sh"), &run_script("c0ffee, changed"), 0o755).unwrap();
        let echo = "#!/bin/sh\nprintf '%s\\n' \"$PATH\" \"$@\"\n";
        pack.stage.write(Path::new("bin/comparison"), echo, 0o755).unwrap();
        let mut run = alone(Path::new("/bin/sh"));
        let said = output(run.current_dir(&dir.0).args(["run.sh", "--turns", "2"])).unwrap();
        let root = fs::canonicalize(&dir.0).unwrap();
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(Path::new(lines[0]), root.join("bin"));
        assert_eq!(lines[1..3], ["--suite", "scale"]);
        let after = |option: &str| lines[lines.iter().position(|it| *it == option).unwrap() + 1];
        assert_eq!(Path::new(after("--engine")), root.join("lib/tyche.so"));
        assert_eq!((after("--commit"), after("--turns")), ("c0ffee, changed", "2"));
    }

    #[test]
    fn only_the_suite_scale_is_packed() {
        let wanted = |line: &str| wanted(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(wanted("--suite scale --turns 2"), Ok(None));
        for line in ["--suite scale --pack x.tar", "--pack=x.tar --suite=scale"] {
            assert_eq!(wanted(line), Ok(Some("x.tar".into())));
        }
        for line in ["--pack x.tar", "--suite fcoe --pack x", "--suite scale --turns 2 --pack x"] {
            assert!(wanted(line).is_err(), "{line}");
        }
    }
}
