//! `cargo xtask`: build, show, check and test the project on a Debian that has nothing but Rust.
//!
//! It uses only the standard library: it is compiled before it can install anything.

mod bench;
mod conformance;
mod counts;
mod csi;
mod deny;
mod exports;
mod fio;
mod instructions;
mod library;
mod lint;
mod loom;
mod numa;
mod package;
mod packages;
mod pairs;
mod program;
mod rust_version;
mod soak;
mod structure;
mod suite;
mod tidy;
mod vm;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The result type, with an error in one line.
type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  demo [ARGS..]   build, and run `tyche-lab demo ARGS` (as root; `cargo xtask demo --help`)
  test            run all tests (as root); with CI=true an unlisted skip is a failure
  conformance [FILTER]
                  hold our target and host against PROTOCOL.md, vector by vector (as root); with
                  --target INTERFACE, --host INTERFACE or another role, any other implementation
                  (conformance/README.md)
  lint [--quick]  check format, lints and the house rules; or only what compiles nothing
  instructions [--bless]
                  count the instructions of the hot path, and compare with the counts that are
                  checked in; or check them in anew
  counts [--bless]
                  count locks, shared cache lines, wake-ups and context switches of a request (as
                  root), and compare with the counts that are checked in; or check them in anew
  loom            check shared state in all orders in which threads can access it
  install-lib --prefix DIR
                  build the library for C, and install it with header and pkg-config file
  bench [ARGS..]  compare Tyche with TCP, NBD and bare frames (as root; `.. bench --help`)
  pairs COMMIT [ARGS..]
                  measure this tree and a commit before it in turn, and say where it has become
                  slower (as root; `.. pairs --help`)
  soak [ARGS..]   look for violations, for as long as you like: seeds of the simulator from random
                  starts, and faults on real interfaces (as root; `.. soak --help`)
  exports         add, connect and remove a thousand exports beside eight sessions, with kills of
                  the target, and without them measure its memory (as root; minutes)
  csi             run csi-sanity, the test suite of CSI, over the driver (as root; made with Go,
                  and takes minutes)
  numa            prove placement (--affinity) on a virtual machine with two NUMA nodes
  deb [--test]    make the Debian package, target/deb/tyche_VERSION_ARCH.deb; and install, check
                  and remove it in a clean Debian 12 (as root)
  rpm [--test]    make the package for distributions with RPM, target/rpm/tyche-VERSION-1.ARCH.rpm;
                  and check it, install and remove it in an empty directory (as root)
  oci [--test]    make an image for containers, target/oci/tyche-VERSION-ARCH.tar; and run it (as
                  root)
  oci-csi [--test]
                  make an image of the driver for Kubernetes,
                  target/oci-csi/tyche-csi-VERSION-ARCH.tar; and run its programs (as root)
  vm [FILTER]     test block devices on Debian's kernels, in virtual machines (as
                  root); FILTER is a part of the names of tests, such as `ublk::` or `smoke`
  vm postgres     test a database on a disk whose target is killed and whose network is cut, and on
                  a snapshot of it
  vm peers        compare with other network block devices within one of these machines
  fio-engine      build the engine for the installed fio, target/fio/tyche.so

Programs of Debian that are missing are installed with apt-get; their names are printed first.";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<_> = args.collect();
    let prefix = library::prefix(&rest);
    let done = match command.to_str() {
        Some("demo") => demo(&rest),
        Some("bench") => bench::run(&rest),
        Some("soak") => soak::run(&rest),
        Some("pairs") => pairs::run(&rest),
        Some("conformance") => conformance::run(&rest),
        Some(_) if package::is_usage(&command, &rest) => package::run(&command, &rest),
        Some("test") if rest.is_empty() => suite::run(),
        Some("lint") if rest.is_empty() => lint::run(),
        Some("lint") if rest == ["--quick"] => lint::quick(),
        Some("instructions") if rest.is_empty() || rest == ["--bless"] => {
            instructions::run(!rest.is_empty())
        }
        Some("counts") if rest.is_empty() || rest == ["--bless"] => counts::run(!rest.is_empty()),
        Some("loom") if rest.is_empty() => loom::run(),
        Some("exports") if rest.is_empty() => exports::run(),
        Some("csi") if rest.is_empty() => csi::run(),
        Some("numa") if rest.is_empty() => numa::run(),
        Some("vm") if rest == ["peers"] => vm::compare(),
        Some("vm") if rest.len() < 2 => vm::run(rest.first()),
        Some("fio-engine") if rest.is_empty() => fio::build(),
        Some("install-lib") if prefix.is_some() => library::install(&prefix.unwrap_or_default()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the programs and runs the demo.
fn demo(args: &[OsString]) -> Result<bool> {
    packages::install(packages::DEMO)?;
    if !build(&["tyche", "tyche-lab"])? {
        return Ok(false);
    }
    // Ctrl-C reaches the demo as well, which cleans up; this process could only wait for it. So the
    // demo replaces this process.
    let program = target_dir().join("release/tyche-lab");
    let error =
        std::os::unix::process::CommandExt::exec(Command::new(&program).arg("demo").args(args));
    Err(format!("run {}: {error}", program.display()))
}

/// The repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the repository")
}

/// Cargo's target directory.
fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs us, in the root of the repository.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Builds the programs of these packages for release.
fn build(packages: &[&str]) -> Result<bool> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    succeeds(cargo().args(["build", "--release"]).args(packages))
}

/// Runs a command to its end.
fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status();
    let status =
        status.map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    Ok(status.success())
}
