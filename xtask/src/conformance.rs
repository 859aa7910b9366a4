//! `cargo xtask conformance`: the vectors in `conformance/` against both ends.
//!
//! Without an interface to use, it makes two network namespaces joined by a cable, and runs our own
//! target and host in one of them and the suite in the other.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Result, cargo, packages, succeeds, target_dir};

/// Ends of the cable: the suite's, and that of the implementation under test.
const PLAYED: &str = "conf-a";
const TESTED: &str = "conf-b";
/// The suite's exit code if no vector's name contains the filter.
const NONE: i32 = 3;
/// Time limit for the target's start.
const PATIENCE: Duration = Duration::from_secs(20);
/// The exports that the vectors expect of a target: conformance/README.md.
const EXPORTS: &str = r#"
name = "conformance"
[[export]]
name = "conf"
path = "DISK"
uuid = "00000000-0000-0000-0000-00000000c0f0"
block_size = 512
[[export]]
name = "conf-ro"
path = "mem:1M"
uuid = "00000000-0000-0000-0000-00000000c0f1"
block_size = 512
read_only = true
[[export]]
name = "conf-hidden"
path = "mem:1M"
uuid = "00000000-0000-0000-0000-00000000c0f2"
block_size = 512
hosts = ["00000000-0000-0000-0000-000000000001"]
[[export]]
name = "conf-mem"
path = "mem:1M"
uuid = "00000000-0000-0000-0000-00000000c0f3"
block_size = 512
"#;

/// Runs the suite; false if a vector failed. `args` is at most a filter, for all of it on this
/// machine alone; or `--target INTERFACE` or `--host INTERFACE`, and options of the suite.
pub(crate) fn run(args: &[OsString]) -> Result<bool> {
    let flag = args.first().and_then(|arg| arg.to_str()).unwrap_or_default();
    match flag.strip_prefix("--") {
        Some(role @ ("target" | "host")) => {
            if !succeeds(cargo().args(["build", "--package", "tyche-conformance"]))? {
                return Ok(false);
            }
            succeeds(Command::new(built("tyche-conformance")).arg(role).args(&args[1..]))
        }
        _ if args.len() < 2 && !flag.starts_with('-') => both(args),
        _ => Err("see conformance/README.md for what it takes".to_owned()),
    }
}

fn built(program: &str) -> PathBuf {
    target_dir().join("debug").join(program)
}

/// Tests our own target, then our own host.
fn both(filter: &[OsString]) -> Result<bool> {
    packages::install(packages::DEMO)?;
    let packages = ["--package", "tyche-conformance", "--package", "tyche"];
    let agent = ["--package", "libtyche", "--example", "conformance-agent"];
    if !succeeds(cargo().arg("build").args(packages))?
        || !succeeds(cargo().arg("build").args(agent))?
    {
        return Ok(false);
    }
    let cable = Cable::lay()?;
    let target = serve(&cable)?;
    let stats = cable.inside("b", &built("tyche"));
    let counters = format!(
        "TYCHE_RUNTIME_DIR={} {} stats -o json",
        cable.dir.join("run").display(),
        shell(&stats)
    );
    let mut command = cable.inside("a", &built("tyche-conformance"));
    command.args(["target", PLAYED, "--counters", &counters]).args(filter);
    let target_passed = suite(&mut command);
    drop(target);
    let mut agent = cable.inside("b", &built("examples/conformance-agent"));
    agent.arg(TESTED);
    let mut command = cable.inside("a", &built("tyche-conformance"));
    command.args(["host", PLAYED, "--agent", &shell(&agent)]).args(filter);
    let host_passed = suite(&mut command);
    match (target_passed?, host_passed?) {
        (None, None) => Err("no vector has that in its name".to_owned()),
        (target, host) => Ok(target.unwrap_or(true) && host.unwrap_or(true)),
    }
}

/// Runs the suite for one role; `None` if it has no such vector.
fn suite(command: &mut Command) -> Result<Option<bool>> {
    let status = command.status().map_err(|error| format!("run the suite: {error}"))?;
    Ok((status.code() != Some(NONE)).then_some(status.success()))
}

/// A command line for the shell; none of our words has a blank in it.
fn shell(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Starts the target and waits until it serves.
fn serve(cable: &Cable) -> Result<Running> {
    let wrong = |error: std::io::Error| format!("the target's files: {error}");
    let (disk, config) = (cable.dir.join("disk.img"), cable.dir.join("target.toml"));
    fs::File::create(&disk).and_then(|file| file.set_len(1 << 20)).map_err(wrong)?;
    fs::write(&config, EXPORTS.replace("DISK", &disk.to_string_lossy())).map_err(wrong)?;
    let log = fs::File::create(cable.dir.join("target.log")).map_err(wrong)?;
    let mut command = cable.inside("b", &built("tyche"));
    command.args(["serve", "--link", TESTED, "--config"]).arg(&config);
    command.env("TYCHE_RUNTIME_DIR", cable.dir.join("run"));
    let out = cable.dir.join("target.out");
    command.stdout(fs::File::create(&out).map_err(wrong)?).stderr(log);
    let child = command.spawn().map_err(|error| format!("start the target: {error}"))?;
    let mut running = Running(child);
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(&out).unwrap_or_default().contains("serving") {
        let has_ended = running.0.try_wait().map_err(wrong)?.is_some();
        if has_ended || Instant::now() >= deadline {
            let log = fs::read_to_string(cable.dir.join("target.log")).unwrap_or_default();
            return Err(format!("the target does not serve: {log}"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(running)
}

/// A process that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two network namespaces, a cable between them, and a directory.
struct Cable {
    name: String,
    dir: PathBuf,
}

impl Cable {
    fn lay() -> Result<Self> {
        let name = format!("tyche-conf-{}", std::process::id());
        let dir = Path::new("/var/tmp").join(&name);
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let cable = Self { name, dir };
        let [a, b] = ["a", "b"].map(|side| cable.namespace(side));
        ip(&["netns", "add", &a])?;
        ip(&["netns", "add", &b])?;
        let first = ["-n", &a, "link", "add", PLAYED, "mtu", "9000", "type", "veth"];
        ip(&[&first[..], &["peer", "name", TESTED, "mtu", "9000", "netns", &b]].concat())?;
        ip(&["-n", &a, "link", "set", PLAYED, "up"])?;
        ip(&["-n", &b, "link", "set", TESTED, "up"])?;
        Ok(cable)
    }

    fn namespace(&self, side: &str) -> String {
        format!("{}-{side}", self.name)
    }

    /// A command in one end's network namespace; its other namespaces are the machine's.
    fn inside(&self, side: &str, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(side))).arg("--").arg(program);
        command
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for side in ["a", "b"] {
            // The namespace may not exist.
            let name = self.namespace(side);
            let _ = Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn ip(args: &[&str]) -> Result<()> {
    if succeeds(Command::new("ip").args(args))? {
        Ok(())
    } else {
        Err(format!("ip {} failed: it takes root", args.join(" ")))
    }
}
