//! Programs of the system that the demo and the tests run, and the Debian packages they are in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::{Result, succeeds};

/// A program, and the package that contains it.
pub(crate) type Need = (&'static str, &'static str);

/// Programs that the demo runs.
pub(crate) const DEMO: &[Need] = &[
    ("btrfs", "btrfs-progs"),
    ("e2fsck", "e2fsprogs"),
    ("fusermount3", "fuse3"),
    ("ip", "iproute2"),
    ("losetup", "mount"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mount", "mount"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("xfs_repair", "xfsprogs"),
];

/// Programs that only the tests run: NBD clients, programs that unpack and check real trees, one
/// that shows frames, a compiler for a program that uses the library from C, and one that checks
/// metrics and rules.
pub(crate) const TEST: &[Need] = &[
    ("cc", "gcc"),
    ("fio", "fio"),
    ("git", "git"),
    ("nbd-client", "nbd-client"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("promtool", "prometheus"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("script", "bsdutils"),
    ("setpriv", "util-linux"),
    ("strace", "strace"),
    ("tar", "tar"),
    ("timeout", "coreutils"),
    ("tshark", "tshark"),
    ("unshare", "util-linux"),
];

/// Programs that run a virtual machine.
pub(crate) const VM: &[Need] = &[
    ("addr2line", "binutils"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("dpkg-deb", "dpkg"),
    ("ldd", "libc-bin"),
    ("nft", "nftables"),
    ("objdump", "binutils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// Programs that the tests run in guests, and next to them.
pub(crate) const GUEST: &[Need] = &[
    ("blkdiscard", "util-linux"),
    ("btrfs", "btrfs-progs"),
    ("e2fsck", "e2fsprogs"),
    ("ethtool", "ethtool"),
    ("fio", "fio"),
    ("ip", "iproute2"),
    ("lvcreate", "lvm2"),
    ("mdadm", "mdadm"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("modprobe", "kmod"),
    ("nsenter", "util-linux"),
    ("partx", "util-linux"),
    ("/etc/libibverbs.d/rxe.driver", "ibverbs-providers"),
    ("rdma", "iproute2"),
    ("resize2fs", "e2fsprogs"),
    ("/usr/lib/x86_64-linux-gnu/librdmacm.so.1", "librdmacm1"),
    ("sfdisk", "fdisk"),
    ("sg_reset", "sg3-utils"),
    ("strace", "strace"),
    ("thin_check", "thin-provisioning-tools"),
    ("udevadm", "udev"),
    ("xfs_repair", "xfsprogs"),
];

/// Programs that Tyche is compared with in a guest.
pub(crate) const PEERS: &[Need] =
    &[("nbd-client", "nbd-client"), ("nbdkit", "nbdkit"), ("vblade", "vblade")];

/// Directories of programs that may be missing in a root shell's `PATH`.
const SYSTEM: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Installs the packages of missing programs; prints them first.
pub(crate) fn install(needs: &[Need]) -> Result<()> {
    let missing: Vec<_> = needs.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    if !is_there("apt-get") {
        return Err(format!("install these programs first: {}", programs.join(", ")));
    }
    let (programs, names) = (programs.join(", "), packages.join(" "));
    eprintln!("xtask: {programs} missing; installing {names} with apt-get");
    let mut install = apt_get(&["install", "--yes", "--no-install-recommends"]);
    install.args(&packages);
    // A fresh system has no package lists yet.
    if succeeds(&mut install)? || (update().is_ok() && succeeds(&mut install)?) {
        return Ok(());
    }
    Err(format!("could not install {names}: see above; as root, `apt-get install {names}`"))
}

/// Installs the package of the backports to this Debian, if apt knows them.
pub(crate) fn install_backport(package: &str) -> Result<()> {
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let Some(suite) = name.map(|name| format!("{name}-backports")) else { return Ok(()) };
    let policy = Command::new("apt-cache").arg("policy").output();
    let policy = policy.map_err(|error| format!("apt-cache: {error}"))?;
    if !String::from_utf8_lossy(&policy.stdout).contains(&format!("{suite}/main")) {
        return Ok(());
    }
    eprintln!("xtask: installing {package} of {suite} with apt-get");
    let mut install = apt_get(&["install", "--yes", "--no-install-recommends"]);
    install.args(["--target-release", &suite, package]);
    let installed = succeeds(&mut install)?;
    if installed { Ok(()) } else { Err(format!("could not install {package}: see above")) }
}

/// Downloads packages to a directory, with those of their dependencies that this machine lacks.
/// Installs nothing.
pub(crate) fn download(packages: &[&str], dir: &Path) -> Result<()> {
    let mut download = apt_get(&["install", "--yes", "--no-install-recommends"]);
    // A package is downloaded even if it is installed.
    download.args(["--reinstall", "--download-only", "--option"]);
    download.arg(format!("Dir::Cache::Archives={}/", dir.display())).args(packages);
    // A fresh system has no package lists yet; old ones name packages that are no more.
    if succeeds(&mut download)? || (update().is_ok() && succeeds(&mut download)?) {
        return Ok(());
    }
    Err(format!("could not download {}: see above", packages.join(" ")))
}

/// Renews apt's lists of packages.
pub(crate) fn update() -> Result<()> {
    let updated = succeeds(&mut apt_get(&["update"]))?;
    if updated { Ok(()) } else { Err("apt-get update failed: see above".to_owned()) }
}

fn apt_get(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet").args(args);
    command
}

fn is_there(program: &str) -> bool {
    find(program).is_some()
}

/// The path of a program.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(SYSTEM.iter().map(|dir| Path::new(dir).into()));
    dirs.map(|dir| dir.join(program)).find(|it| it.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_they_are() {
        assert!(is_there("sh"));
        assert!(!is_there("no-such-program-of-tyche"));
    }
}
