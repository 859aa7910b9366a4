//! Functions of a block device besides reading and writing.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::attachment::Attachment;
use crate::rig::{DISK, MIB, Rig, Session, Shape, allocated, run};

const SIZE: u64 = 128 * MIB;

/// Written data are read back, and an orderly disconnect removes everything.
pub(crate) fn smoke(attachment: Attachment) {
    let (_rig, _target, guest) = Rig::start(SIZE, attachment);
    let session = Session::connect(&guest, attachment, "");
    let queues = attachment.queues();
    session.run(&format!(
        "head -c 8M /dev/urandom >/tmp/wanted\n\
         dd if=/tmp/wanted of=$D bs=1M oflag=direct conv=fsync status=none\n\
         dd if=$D bs=1M count=8 iflag=direct status=none | cmp - /tmp/wanted\n\
         [ $(blockdev --getsize64 $D) = {SIZE} ]\n\
         [ $(blockdev --getro $D) = 0 ]\n\
         [ {queues} = 1 ] || [ $(ls /sys/block/${{D#/dev/}}/mq | wc -l) = {queues} ]"
    ));
    session.disconnect();
}

/// The default kind is the best that the kernel has, and `connect` says why it is no better.
pub(crate) fn auto(attachment: Attachment) {
    let (_rig, _target, guest) = Rig::start(SIZE, attachment);
    if attachment == Attachment::Loop {
        // Hides the other modules: the kernel has nothing better then.
        guest.run("modprobe --all fuse loop; umount /lib/modules");
    }
    let option = attachment.option();
    let said = guest.run(&format!("tyche connect {DISK} --link eth0 {option} -o json 2>&1"));
    assert!(said.contains(&format!("\"kind\":\"{}\"", attachment.name())), "{said}");
    assert!(said.contains(attachment.why_not_better()), "{said}");
    guest.run(&format!("tyche disconnect {DISK}"));
}

/// Discarded blocks take no room in the target's file, and read as zeros.
pub(crate) fn discard(attachment: Attachment) {
    let (rig, _target, guest) = Rig::start(SIZE, attachment);
    let session = Session::connect(&guest, attachment, "");
    let fill = "head -c 32M /dev/urandom >/tmp/random\n\
        dd if=/tmp/random of=$D bs=1M oflag=direct conv=fsync status=none\n\
        dd if=$D bs=1M count=32 iflag=direct status=none | cmp - /tmp/random";
    for discard in ["blkdiscard $D", "blkdiscard --zeroout --offset 0 --length 32M $D"] {
        session.run(fill);
        assert!(allocated(&rig.disk()) >= 32 * MIB);
        session.run(discard);
        session.run("dd if=$D bs=1M count=32 iflag=direct status=none | cmp -n 32M - /dev/zero");
    }
    session.run(fill);
    session.run("blkdiscard $D");
    let left = allocated(&rig.disk());
    assert!(left < MIB, "{left} bytes are left");
    session.disconnect();
}

/// A device reports whether the target's disk is rotational.
pub(crate) fn rotational(attachment: Attachment) {
    let rig = Rig::new();
    File::create_new(rig.disk()).unwrap().set_len(SIZE).unwrap();
    let disk = LoopDevice::new(&rig.disk());
    let guest = rig.boot(0, &Shape::from(attachment));
    let can = attachment.why_never_turning().is_none();
    for turns in [false, true] {
        disk.set_rotational(turns);
        let _target = rig.serve_exports(&[format!("{DISK}={}", disk.0)], &[]);
        let session = Session::connect(&guest, attachment, "");
        let said = session.run("cat /sys/block/${D#/dev/}/queue/rotational");
        assert_eq!(said.trim(), if turns && can { "1" } else { "0" });
        session.disconnect();
    }
    if let Some(reason) = attachment.why_never_turning() {
        println!("SKIPPED: {reason}");
    }
}

/// A loop device of this machine.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &Path) -> Self {
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(file));
        Self(device.trim_end().to_owned())
    }

    fn set_rotational(&self, turns: bool) {
        let name = self.0.trim_start_matches("/dev/");
        let flag = format!("/sys/block/{name}/queue/rotational");
        fs::write(flag, if turns { "1" } else { "0" }).unwrap();
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A device that is connected read-only reports that, and refuses writes.
pub(crate) fn read_only(attachment: Attachment) {
    let (rig, _target, guest) = Rig::start(SIZE, attachment);
    let session = Session::connect(&guest, attachment, "--read-only");
    session.run(
        "[ $(blockdev --getro $D) = 1 ]\n\
         ! dd if=/dev/zero of=$D bs=4k count=1 oflag=direct\n\
         ! blkdiscard $D\n\
         dd if=$D bs=1M count=8 iflag=direct status=none | cmp -n 8M - /dev/zero",
    );
    assert_eq!(allocated(&rig.disk()), 0);
    session.disconnect();
}

/// Partitions appear, and udev gives them stable names.
pub(crate) fn partitions(attachment: Attachment) {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/udev");
    let (_rig, _target, guest) = Rig::start(SIZE, attachment);
    for file in ["59-tyche.rules", "60-tyche.rules"] {
        guest.put(&rules.join(file), file);
    }
    guest.run(
        "mkdir -p /run/udev/rules.d; cp /share/*-tyche.rules /run/udev/rules.d\n\
         /usr/lib/systemd/systemd-udevd --daemon\n\
         udevadm trigger --action=add; udevadm settle --timeout=60",
    );
    let session = Session::connect(&guest, attachment, "");
    // The UUID that the daemon passes to the rule is the export's UUID at the target.
    let link = ". /run/tyche/devices/${D#/dev/}; L=/dev/disk/by-id/tyche-$TYCHE_UUID";
    session.run(&format!("{link}; tyche discover --link eth0 -o json | grep $TYCHE_UUID"));
    session.wait_until(&format!("{link}; [ $(readlink -f $L) = $D ]"));
    // The default scheduler is none: requests are ordered at the target's disk.
    session.wait_until("! cat /sys/block/ublkb*/queue/scheduler | grep -v -F '[none]'");
    if let Some(reason) = attachment.why_whole() {
        // The device below has no partitions either, and udev makes no names for it.
        session.run("[ $(readlink -f /dev/mapper/tyche-disk) = $D ]; mkfs.ext4 -q -L label $D");
        session.wait_until("[ $(readlink -f /dev/disk/by-label/label) = $D ]");
        session.run("udevadm info -q all /dev/ublkb0 | grep SYSTEMD_READY=0");
        session.run("[ $(cat /sys/block/ublkb0/partscan) = 0 ]");
        session.run("blkid -p $D; ! blkid -p /dev/ublkb0");
        session.run("printf 'label: gpt\nsize=64MiB\n,\n' | sfdisk --quiet --wipe always $D");
        session.disconnect();
        let session = Session::connect(&guest, attachment, "");
        session
            .run("[ $(sfdisk --dump $D | grep -c size=) = 2 ]; ! ls -d /sys/block/ublkb0/ublkb0p*");
        session.disconnect();
        println!("SKIPPED: {reason}");
        return;
    }
    session.run("printf 'label: gpt\nsize=64MiB\n,\n' | sfdisk --quiet $D");
    session.wait_until(&format!("{link}; [ -b $L-part1 ] && [ -b $L-part2 ]"));
    session.run(&format!(
        "{link}\n\
         [ $(blockdev --getsize64 $L-part1) = $((64 << 20)) ]\n\
         mkfs.ext4 -q $L-part1; mount $L-part1 /mnt\n\
         echo hello >/mnt/file; umount /mnt; e2fsck -f -n $L-part1"
    ));
    session.disconnect();
    // The kernel finds existing partitions, immediately or a moment later.
    let session = Session::connect(&guest, attachment, "");
    session.wait_until(&format!("{link}; [ -b $L-part1 ] && [ -b $L-part2 ]"));
    session.disconnect();
    guest.wait_until("! ls /dev/disk/by-id/tyche-* 2>/dev/null");
    guest.run("udevadm control --exit");
}
