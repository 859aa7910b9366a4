//! Our initiator uses the disk of a guest's tcm_fc: on this machine, or in the guest.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tyche_fcoe::fc::wire::Wwn;
use tyche_testkit::process::{Done, finish};

use super::linux::{DISK_LEN, LinuxPort};
use super::{FILE_SYSTEMS, VERIFY};
use crate::attachment::{Attachment, Kernel};
use crate::rig::{Guest, HOST, Rig, Running, Session as GuestSession, Shape, run};

/// The name of our port, for the access list of the kernel's target.
const OURS: Wwn = Wwn(0x2000_0200_0000_0001);
/// Time limit for a load.
const LIMIT: Duration = Duration::from_secs(300);

/// Fills the beginning of the disk.
const FILL: &str = "dd if=/dev/zero bs=1M count=16 status=none | tr '\\0' 'x' | \
    dd of=$D bs=1M iflag=fullblock oflag=direct conv=fsync status=none";
/// Reads it back, and compares.
const CHECK: &str =
    "dd if=$D bs=64k count=256 iflag=direct status=none | tr -d x | cmp - /dev/null";
/// Whether requests of the device wait for their answers.
const IN_FLIGHT: &str = "grep -q '[1-9]' /sys/block/${D#/dev/}/inflight";

/// A session with the disk.
struct Session<'a> {
    rig: &'a Rig,
    disk: String,
    device: String,
}

impl<'a> Session<'a> {
    fn connect(rig: &'a Rig, target: Wwn) -> Self {
        Self::connect_with(rig, target, "1")
    }

    /// With so many queues.
    fn connect_with(rig: &'a Rig, target: Wwn, queues: &str) -> Self {
        let (disk, wwpn) = (target.to_string(), OURS.to_string());
        let fcoe = ["connect", "--fcoe", &disk, "--link", HOST, "--wwpn", &wwpn];
        let device = ["--as", "loop", "--queues", queues, "-o", "json"];
        let said = rig.tyche(&[&fcoe[..], &device].concat());
        let value: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
        Self { rig, disk, device: value["device"].as_str().unwrap().to_owned() }
    }

    /// Runs a script with the device as `$D`, which must succeed. Its mounts are its own.
    fn run(&self, script: &str) -> String {
        let mut command = self.rig.command("unshare");
        command.args(["--mount", "--", "bash", "-eu", "-o", "pipefail", "-c", script]);
        let done = finish(command.env("D", &self.device), LIMIT);
        let Done { stdout, stderr, .. } = &done;
        assert!(done.success(), "{script}\n{stdout}{stderr}");
        done.stdout
    }

    /// Starts a script with the device as `$D`.
    fn start(&self, script: &str) -> Running {
        let mut command = self.rig.command("bash");
        command.args(["-euc", script]).env("D", &self.device);
        Running::start(command.stdout(Stdio::piped()))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // It may have ended with the test.
        let mut command = self.rig.command(self.rig.program());
        let _ = command.args(["disconnect", &self.disk, "--force"]).output();
    }
}

fn boot(rig: &Rig, kernel: Kernel) -> Guest {
    rig.boot(0, &Shape::from(kernel))
}

/// Bytes that the disk occupies in the guest.
fn allocated(guest: &Guest) -> u64 {
    guest.run("stat -c %b /tmp/disk").trim().parse::<u64>().unwrap() * 512
}

/// Data, sizes and discards.
pub(super) fn disk(kernel: Kernel) {
    let rig = Rig::new();
    let guest = boot(&rig, kernel);
    let target = LinuxPort::target(&guest, OURS);
    let session = Session::connect(&rig, target.wwpn);
    let wanted = rig.path("wanted").display().to_string();
    session.run(&format!(
        "[ $(blockdev --getsize64 $D) = {DISK_LEN} ]\n\
         head -c 8M /dev/urandom >{wanted}\n\
         dd if={wanted} of=$D bs=1M oflag=direct conv=fsync status=none\n\
         dd if=$D bs=1M count=8 iflag=direct status=none | cmp - {wanted}"
    ));
    guest.run("cp /tmp/disk /share/disk");
    run(rig.command("cmp").args(["-n", "8M", &wanted]).arg(guest.shared("disk")));
    session.run(VERIFY);
    session.run("blkdiscard $D");
    let left = allocated(&guest);
    assert!(left < DISK_LEN / 16, "{left} bytes are left");
    session.run(&format!(
        "dd if={wanted} of=$D bs=1M oflag=direct conv=fsync status=none\n\
         blkdiscard --zeroout --length 32M $D\n\
         dd if=$D bs=1M count=32 iflag=direct status=none | cmp -n 32M - /dev/zero"
    ));
    drop(session);
    target.remove();
}

/// A tree in each file system, compared after mounting again.
pub(super) fn filesystems(kernel: Kernel) {
    let rig = Rig::new();
    let guest = boot(&rig, kernel);
    let target = LinuxPort::target(&guest, OURS);
    let session = Session::connect_with(&rig, target.wwpn, "3");
    let (tree, point) = (rig.path("tree"), rig.path("point"));
    let (tree, point) = (tree.display(), point.display());
    session.run(&format!(
        "mkdir {point}; mkdir {tree}; cp -a /usr/share/doc/{{a,b}}* {tree}\n\
         head -c 16M /dev/urandom >{tree}/large"
    ));
    for (make, check) in FILE_SYSTEMS {
        session.run(&format!(
            "{make} $D; mount $D {point}\n\
             cp -a {tree} {point}; umount {point}\n\
             {check} $D; blockdev --flushbufs $D\n\
             mount $D {point}; diff -r --no-dereference {tree} {point}/tree\n\
             rm -r {point}/tree; sync; fstrim -v {point}; umount {point}\n\
             {check} $D"
        ));
    }
    drop(session);
    target.remove();
}

/// Reads what it has written while the target is logged out, and while its link is down. Nothing is
/// in flight when that begins: a command that the kernel's target has then may keep it busy for
/// ever (FC.md, "Linux").
pub(super) fn target_gone(kernel: Kernel) {
    let rig = Rig::new();
    let guest = boot(&rig, kernel);
    let target = LinuxPort::target(&guest, OURS);
    let session = Session::connect_with(&rig, target.wwpn, "2");
    session.run(FILL);
    let read_without_target = || {
        let load = session.start(CHECK);
        session.run(&format!("until {IN_FLIGHT}; do sleep 0.1; done"));
        load
    };
    target.remove();
    let mut load = read_without_target();
    target.create();
    assert!(load.end().success());
    guest.run("ip link set eth0 down");
    let mut load = read_without_target();
    guest.run("ip link set eth0 up");
    assert!(load.end().success());
    drop(session);
    target.remove();
}

/// Frames as long as the guest's interface takes them, with an interface of ours that takes more.
pub(super) fn mtu(kernel: Kernel) {
    let rig = Rig::new();
    let guest = boot(&rig, kernel);
    let target = LinuxPort::target(&guest, OURS);
    for mtu in [1500, 2500, 9000] {
        target.remove();
        guest.run(&format!("ip link set eth0 mtu {mtu}"));
        target.create();
        let session = Session::connect(&rig, target.wwpn);
        session.run(VERIFY);
    }
    target.remove();
}

/// A block device of the guest's ublk driver with two queues, over the guest's second interface:
/// data, a tree in a file system, discards, and reads while the link is down. Nothing is in flight
/// when it goes down: that may hang the kernel's target (FC.md, "Linux").
pub(super) fn in_guest(kernel: Kernel) {
    let rig = Rig::new();
    let guest = rig.boot(0, &Shape { interfaces: 2, ..Shape::from(kernel) });
    guest.run("ip link set eth1 mtu 2500 up");
    let target = LinuxPort::target(&guest, OURS);
    let args = format!("--fcoe --link eth1 --wwpn {OURS} --queues 2");
    let disk = target.wwpn.to_string();
    let session = GuestSession::connect_over(&guest, Attachment::Ublk, &disk, &args);
    session.run_within(LIMIT, &format!("[ $(blockdev --getsize64 $D) = {DISK_LEN} ]; {VERIFY}"));
    session.run_within(
        LIMIT,
        "mkdir -p /tmp/tree; cp -a /lib/modules/$(uname -r)/kernel/net/{sched,ipv4} /tmp/tree\n\
         mkfs.ext4 -q $D; mount $D /mnt; cp -a /tmp/tree /mnt; umount /mnt\n\
         e2fsck -f -n $D; echo 3 >/proc/sys/vm/drop_caches\n\
         mount $D /mnt; diff -r /tmp/tree /mnt/tree; umount /mnt; blkdiscard $D",
    );
    let left = allocated(&guest);
    assert!(left < DISK_LEN / 16, "{left} bytes are left");
    session.run_within(LIMIT, FILL);
    guest.run("ip link set eth1 down");
    let load = session.start(CHECK);
    session.wait_until(IN_FLIGHT);
    guest.run("ip link set eth1 up");
    load.succeed(LIMIT);
    session.disconnect();
    target.remove();
}

/// Loses frames both ways: nothing wrong is read. The kernel's target keeps writes that have lost
/// data, and would wait for them at the logout (FC.md, "Linux"): the guest ends first.
pub(super) fn lossy(kernel: Kernel) {
    let rig = Rig::new();
    let guest = boot(&rig, kernel);
    let target = LinuxPort::target(&guest, OURS);
    let session = Session::connect(&rig, target.wwpn);
    rig.lose_fcoe(0, 5, 5);
    session.run(VERIFY);
    drop(guest);
    drop(session);
}
