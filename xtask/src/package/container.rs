//! Test of the image: its files run as a container under `crun`, without a network, a shell or a
//! privilege that a target over UDP does not need.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::say;
use super::tool::{VERSION, output, run_tool};
use crate::Result;
use crate::packages::{self, Need};

const NEEDS: &[Need] =
    &[("crun", "crun"), ("mount", "mount"), ("timeout", "coreutils"), ("unshare", "util-linux")];

/// The description of the container, without its arguments.
const CONFIGURATION: &str = include_str!("container.json");

/// The name of the container, and the longest time that it may live, in seconds.
const NAME: &str = "tyche-image-test";
const LIMIT: &str = "60";

/// Address of the target within the container.
const LINK: &str = "udp:127.0.0.1:8650";

/// Runs the files in `rootfs` of a directory; false if something is wrong.
pub(super) fn test(bundle: &Path) -> Result<bool> {
    packages::install(NEEDS)?;
    describe(bundle, "tyche", &["--version"])?;
    let said = output(&mut start(bundle))?;
    let runs = said.contains(VERSION);
    say("oci", "the program runs without a shell", runs);
    describe(bundle, "tyche", &["serve", "--export", "disk=mem:16M", "--link", LINK])?;
    let served = serve(bundle);
    // It may be gone already.
    let _ = crun(bundle, &["delete", "--force", NAME]).output();
    let served = served?;
    say("oci", "a target serves in it, and is found", served);
    Ok(runs && served)
}

/// Whether a program runs in the container, with an argument that asks for its version.
pub(super) fn runs(bundle: &Path, program: &str, version: &str) -> Result<bool> {
    packages::install(NEEDS)?;
    describe(bundle, program, &[version])?;
    let done = start(bundle).output().map_err(|error| format!("crun: {error}"))?;
    say("oci-csi", &format!("{program} runs"), done.status.success());
    Ok(done.status.success())
}

/// Writes the description of a container that runs a program with these arguments.
fn describe(bundle: &Path, program: &str, args: &[&str]) -> Result<()> {
    let args: Vec<_> = args.iter().map(|arg| format!(", \"{arg}\"")).collect();
    let text = CONFIGURATION.replace("@PROGRAM@", program).replace("@ARGS@", &args.concat());
    let file = bundle.join("config.json");
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Runs a target until another process of the container has found it.
fn serve(bundle: &Path) -> Result<bool> {
    let target = start(bundle).stdout(Stdio::piped()).spawn();
    let mut target = target.map_err(|error| format!("crun: {error}"))?;
    // It ends by itself, and so does its output, when its time is over.
    let said = target.stdout.take().map(BufReader::new);
    let mut lines = said.into_iter().flat_map(BufRead::lines).map_while(std::result::Result::ok);
    let is_ready = lines.any(|line| line.contains("serving disk"));
    let mut find = crun(bundle, &["exec", NAME, "/usr/sbin/tyche", "discover", "--link", LINK]);
    let found = if is_ready { output(&mut find)? } else { String::new() };
    if is_ready {
        run_tool(&mut crun(bundle, &["kill", NAME, "TERM"]))?;
    }
    let ended = target.wait().map_err(|error| format!("crun: {error}"))?;
    Ok(found.contains("disk") && ended.success())
}

/// Runs the container until its program ends.
fn start(bundle: &Path) -> Command {
    let mut start = crun(bundle, &["run", "--bundle"]);
    start.arg(bundle).arg(NAME);
    start
}

/// `crun` with its state beside the bundle. It takes no machine that has control groups of both
/// versions, and needs none of them; so it sees those of the second only.
fn crun(bundle: &Path, args: &[&str]) -> Command {
    let mut crun = Command::new("timeout");
    crun.args([LIMIT, "unshare", "--mount", "sh", "-c"]);
    crun.arg("mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"").arg("sh");
    crun.args(["crun", "--cgroup-manager=disabled", "--root"]);
    crun.arg(bundle.with_file_name("crun")).args(args);
    crun
}
