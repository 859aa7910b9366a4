//! A Debian with systemd for guests: `target/vm/debian.img`, a file system that begins with the
//! agent of all guests, and two builds of our package, `target/vm/package-1.deb` and `-2.deb`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::{Result, build, cargo, package, succeeds, target_dir};

/// Packages besides the least of a Debian.
const INCLUDE: &str = "systemd,systemd-sysv,udev,kmod,iproute2,procps";
/// Size of the file system, most of which is a hole.
const SIZE: &str = "2G";
/// The agent as a unit.
const AGENT: &str = "[Unit]
Description=Runs the scripts of a test
[Service]
ExecStart=/agent
[Install]
WantedBy=multi-user.target
";

/// Makes all of it: the Debian once, the packages anew.
pub(super) fn make() -> Result<()> {
    let vm = super::dir()?;
    let image = vm.join("debian.img");
    if !image.exists() {
        let root = vm.join("debian");
        let explain = |error| format!("{}: {error}", root.display());
        // One without an image may not be prepared.
        if root.exists() {
            fs::remove_dir_all(&root).map_err(explain)?;
        }
        println!("vm: making a Debian with debootstrap, once");
        package::bootstrap(&root, INCLUDE)?;
        prepare(&root).map_err(explain)?;
        let aside = image.with_extension("part");
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-d"]).arg(&root).arg(&aside).arg(SIZE);
        if !succeeds(&mut make)? {
            return Err("mkfs.ext4 failed: see above".to_owned());
        }
        fs::rename(&aside, &image).map_err(|error| format!("{}: {error}", image.display()))?;
    }
    let mut unoptimized = cargo();
    unoptimized.args(["build", "--workspace", "--bin", "tyche"]);
    if !succeeds(&mut unoptimized)? || !build(&["tyche"])? {
        return Err("the program can't be built: see above".to_owned());
    }
    for (number, profile) in [(1, "debug"), (2, "release")] {
        let program = target_dir().join(profile).join("tyche");
        let package = package::deb(&program, &vm.join("package"))?;
        let to = vm.join(format!("package-{number}.deb"));
        fs::rename(&package, &to).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

/// Has it run the agent, and nothing that asks for a user.
fn prepare(root: &Path) -> std::io::Result<()> {
    let units = root.join("etc/systemd/system");
    fs::write(units.join("agent.service"), AGENT)?;
    symlink("../agent.service", units.join("multi-user.target.wants/agent.service"))?;
    for masked in ["serial-getty@ttyS0.service", "getty.target", "systemd-timesyncd.service"] {
        symlink("/dev/null", units.join(masked))?;
    }
    fs::write(root.join("etc/machine-id"), "")
}
