//! `cargo xtask conformance`: the vectors in `conformance/` against both ends.
//!
//! Without an interface to use, it makes two network namespaces joined by a cable, and runs our own
//! target and host in one of them and the suite in the other.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
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

/// The configuration of the target of FCoE. Its LUNs are kept by its name, and the first is 0.
const FCOE_TARGET: &str = r#"
name = "conformance-fc"
[[export]]
name = "conf"
path = "DISK"
uuid = "00000000-0000-0000-0000-00000000c0f0"
block_size = 512
"#;
/// A target with a key: what its configuration has in front of its exports, and another of these.
const KEYS: [&str; 2] = [
    r#"
key = "KEY"
[[host]]
name = "conf-host"
key = "tyche_pOCSkrZRwni5dyxWn1-puxPZBrRqtoyd-dwrRAn4ogk"
[[host]]
name = "conf-other"
key = "tyche_Xf7dO2vUf2-ijuFdlp1bsOpTd01Ii9r53xxuASSz7yI"
"#,
    r#"
[[export]]
name = "conf-keys"
path = "mem:1M"
uuid = "00000000-0000-0000-0000-00000000c0f4"
block_size = 512
allow = ["conf-host"]
"#,
];
/// The secret keys of the host and the target: 32 bytes 0x01 and 0x02.
const HOST_KEY: &str = "tyche_secret_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
const TARGET_KEY: &str = "tyche_secret_AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI";
/// The public key of the target.
const TARGET_PUBLIC: &str = "tyche_zo060cy2M-x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk";

/// The ends that are tested, by their names in the suite.
const TARGETS: [&str; 4] = ["target", "sealed-target", "silent-target", FCOE];
/// The one that speaks Fibre Channel over Ethernet.
const FCOE: &str = "fc-target";
const HOSTS: [&str; 2] = ["host", "sealed-host"];

/// Runs the suite; false if a vector failed. `args` is at most a filter, for all of it on this
/// machine alone; or `--ROLE INTERFACE`, such as `--target eth1`, and options of the suite.
pub(crate) fn run(args: &[OsString]) -> Result<bool> {
    let flag = args.first().and_then(|arg| arg.to_str()).unwrap_or_default();
    match flag.strip_prefix("--") {
        Some(role) if TARGETS.iter().chain(&HOSTS).any(|it| *it == role) => {
            if !succeeds(cargo().args(["build", "--package", "tyche-conformance"]))? {
                return Ok(false);
            }
            succeeds(Command::new(built("tyche-conformance")).arg(role).args(&args[1..]))
        }
        _ if args.len() < 2 && !flag.starts_with('-') => all(args),
        _ => Err("see conformance/README.md for what it takes".to_owned()),
    }
}

fn built(program: &str) -> PathBuf {
    target_dir().join("debug").join(program)
}

/// Tests our own targets, then our own hosts.
fn all(filter: &[OsString]) -> Result<bool> {
    packages::install(packages::DEMO)?;
    let packages = ["--package", "tyche-conformance", "--package", "tyche"];
    let agent = ["--package", "libtyche", "--example", "conformance-agent"];
    if !succeeds(cargo().arg("build").args(packages))?
        || !succeeds(cargo().arg("build").args(agent))?
    {
        return Ok(false);
    }
    let cable = Cable::lay()?;
    let mut results = Vec::new();
    for role in TARGETS {
        results.push(test_target(&cable, role, filter)?);
    }
    for role in HOSTS {
        results.push(test_host(&cable, role, filter)?);
    }
    if results.iter().all(Option::is_none) {
        return Err("no vector has that in its name".to_owned());
    }
    Ok(results.into_iter().flatten().all(|passed| passed))
}

fn test_target(cable: &Cable, role: &str, filter: &[OsString]) -> Result<Option<bool>> {
    let target = serve(cable, role)?;
    let stats = cable.inside("b", &built("tyche"));
    let counters = format!(
        "TYCHE_RUNTIME_DIR={} {} stats -o json",
        cable.dir.join("run").display(),
        shell(&stats)
    );
    let mut command = cable.inside("a", &built("tyche-conformance"));
    command.args([role, PLAYED]);
    if role != FCOE {
        command.args(["--counters", &counters, "--restore", &cable.uevent()]);
    }
    let passed = suite(command.args(filter));
    drop(target);
    passed
}

fn test_host(cable: &Cable, role: &str, filter: &[OsString]) -> Result<Option<bool>> {
    let mut agent = cable.inside("b", &built("examples/conformance-agent"));
    agent.arg(TESTED);
    if role != "host" {
        agent.arg(cable.key("host", HOST_KEY)?).arg(TARGET_PUBLIC);
    }
    let mut command = cable.inside("a", &built("tyche-conformance"));
    command.args([role, PLAYED, "--agent", &shell(&agent)]);
    command.args(["--restore", &cable.uevent()]).args(filter);
    suite(&mut command)
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

/// The configuration of a target.
fn config(cable: &Cable, role: &str) -> Result<String> {
    let disk = cable.dir.join("disk.img");
    let exports = EXPORTS.replace("DISK", &disk.to_string_lossy());
    let name = "name = \"conformance\"\n";
    match role {
        "target" => return Ok([name, &exports].concat()),
        FCOE => return Ok(FCOE_TARGET.replace("DISK", &disk.to_string_lossy())),
        _ => {}
    }
    let key = cable.key("target", TARGET_KEY)?;
    let [keys, export] = KEYS;
    let access = if role == "silent-target" { "silent = true\n" } else { "auth = \"optional\"\n" };
    let keys = keys.replace("KEY", &key.to_string_lossy());
    Ok([name, access, &keys, &exports, export].concat())
}

/// Starts a target and waits until it serves.
fn serve(cable: &Cable, role: &str) -> Result<Running> {
    let wrong = |error: std::io::Error| format!("the target's files: {error}");
    let (disk, file) = (cable.dir.join("disk.img"), cable.dir.join("target.toml"));
    fs::File::create(&disk).and_then(|file| file.set_len(1 << 20)).map_err(wrong)?;
    fs::write(&file, config(cable, role)?).map_err(wrong)?;
    let log = fs::File::create(cable.dir.join("target.log")).map_err(wrong)?;
    let mut command = cable.inside("b", &built("tyche"));
    let link = if role == FCOE { "--fcoe" } else { "--link" };
    command.args(["serve", link, TESTED, "--config"]).arg(&file);
    command.env("TYCHE_RUNTIME_DIR", cable.dir.join("run"));
    // An earlier run knew another disk by that name.
    command.env("TYCHE_STATE_DIR", cable.dir.join("state"));
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

    /// A file with a secret key.
    fn key(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(format!("{name}.key"));
        let wrong = |error| format!("{}: {error}", path.display());
        fs::write(&path, format!("{text}\n")).map_err(wrong)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(wrong)?;
        Ok(path)
    }

    /// The command that tells the tested end that its machine's memory was put back.
    fn uevent(&self) -> String {
        let mut command = self.inside("b", &built("tyche-conformance"));
        shell(command.arg("uevent"))
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
