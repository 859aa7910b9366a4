//! The kernel: its version, and the drivers of block devices.

use crate::shared::attach::Kind;
use crate::shared::error::Code;
use crate::shared::report::Finding;

use super::machine::Machine;

/// The oldest kernel that Tyche is made for.
const OLDEST: (u32, u32) = (5, 19);
/// The first kernel with all that ublk needs.
const UBLK: (u32, u32) = (6, 5);

/// Drivers of block devices: kind, module, and a file that is there if the driver is.
const DRIVERS: [(Kind, &str, &str); 3] = [
    (Kind::Ublk, "ublk_drv", "/dev/ublk-control"),
    (Kind::Nbd, "nbd", "/sys/block/nbd0"),
    (Kind::Loop, "fuse", "/dev/fuse"),
];

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let release = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = version(&release);
    if version.is_some_and(|version| version < OLDEST) {
        let what = format!("Linux {release} is older than 5.19, for which Tyche is made");
        let found = Finding::error("kernel-old", Code::Other, what);
        findings.push(found.remedy("install a newer kernel"));
    }
    if machine.number("/proc/sys/kernel/io_uring_disabled") == Some(2) {
        let what =
            "io_uring is disabled: files and devices can't be exported, and there is no ublk";
        let found = Finding::error("io-uring-disabled", Code::Permission, what);
        findings.push(found.remedy("sysctl kernel.io_uring_disabled=0, also in /etc/sysctl.d"));
    }
    findings.extend(drivers(machine, &release, version));
    findings
}

/// Major and minor number of a release such as `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|it: char| !it.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The presence of a driver.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// Its file is there.
    Ready,
    /// The module is loaded, and its file is not there.
    Hidden,
    /// It can be loaded.
    Loadable,
    Missing,
}

fn presence(machine: &Machine, release: &str, module: &str, file: &str) -> Presence {
    if machine.has(file) {
        return Presence::Ready;
    }
    if machine.has(&format!("/sys/module/{module}")) {
        return Presence::Hidden;
    }
    let lists = ["modules.dep", "modules.builtin"];
    let is_listed = |list: &str| {
        let listed = machine.read(&format!("/lib/modules/{release}/{list}")).unwrap_or_default();
        let file = format!("/{module}.ko");
        listed.lines().any(|line| line.split(':').next().unwrap_or_default().contains(&file))
    };
    if lists.into_iter().any(is_listed) { Presence::Loadable } else { Presence::Missing }
}

fn drivers(machine: &Machine, release: &str, version: Option<(u32, u32)>) -> Vec<Finding> {
    let wanted: Vec<_> = machine.entries().map(|(line, entry)| (line, entry.kind())).collect();
    let found = DRIVERS
        .map(|(kind, module, file)| (kind, module, file, presence(machine, release, module, file)));
    let mut findings = Vec::new();
    for (kind, module, file, presence) in found {
        if presence == Presence::Hidden && kind != Kind::Nbd {
            let what = format!("the driver {module} is loaded, and {file} is not there");
            let found = Finding::error("device-node-missing", Code::Device, what);
            findings.push(found.remedy("start udev, or pass the device to this container"));
        }
        let name = kind.name();
        let mut lines = wanted.iter().filter(|(_, wanted)| *wanted == kind);
        if let (Presence::Missing, Some((line, _))) = (presence, lines.next()) {
            let what = format!(
                "tychetab's line of {} wants {name}, and this kernel has no module {module}",
                line.export
            );
            let found = Finding::error("module-missing", Code::Device, what);
            findings.push(found.remedy("install a kernel that has it, or take out `as=`"));
        }
    }
    let is_there = |it: &(Kind, &str, &str, Presence)| {
        matches!(it.3, Presence::Ready | Presence::Loadable)
            || it.0 == Kind::Nbd && it.3 == Presence::Hidden
    };
    let best = found.iter().find(|it| is_there(it)).map(|it| it.0);
    match best {
        Some(Kind::Ublk) if version.is_some_and(|it| (OLDEST..UBLK).contains(&it)) => {
            let what = format!("ublk of Linux {release} lacks what Tyche needs of it: 6.5 has it");
            findings.push(Finding::note("ublk-old", what).remedy("a newer kernel is faster"));
        }
        Some(Kind::Ublk) => {}
        Some(kind) => {
            let what = format!("this kernel has no ublk: devices are of the kind {}", kind.name());
            let found = Finding::note("no-ublk", what);
            findings.push(found.remedy("Linux 6.5 or later with the module ublk_drv is faster"));
        }
        None => {
            let what = "this kernel has neither ublk nor nbd nor FUSE: no block device can be made";
            let found = Finding::warning("no-block-device", what);
            let remedy = "load one of the modules ublk_drv, nbd, fuse; `--as nbd-socket` and \
                          `vhost-user` need none";
            findings.push(found.remedy(remedy));
        }
    }
    findings
}
