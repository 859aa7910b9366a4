//! File systems: made, filled, compared, checked, trimmed, and grown.

use std::fs::File;
use std::time::Duration;

use crate::attachment::Attachment;
use crate::rig::{DISK, MIB, Rig, Session, Shape, allocated};

/// Large enough for the file system with the largest minimum.
const SIZE: u64 = 512 * MIB;
/// Time limit for a whole tree through an emulated machine.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn ext4(attachment: Attachment) {
    tree(attachment, "mkfs.ext4 -q $D", "e2fsck -f -n $D");
}

pub(crate) fn xfs(attachment: Attachment) {
    tree(attachment, "mkfs.xfs -q $D", "xfs_repair -n $D");
}

pub(crate) fn btrfs(attachment: Attachment) {
    tree(attachment, "mkfs.btrfs -q $D", "btrfs check $D");
}

/// Copies a tree to a new file system, compares it after mounting again, checks the file system,
/// and checks that the target's file shrinks when the tree is removed.
fn tree(attachment: Attachment, make: &str, check: &str) {
    let (rig, _target, guest) = Rig::start(SIZE, attachment);
    let session = Session::connect(&guest, attachment, "");
    session.run_within(
        LIMIT,
        &format!(
            "mkdir -p /tmp/tree\n\
             cp -a /lib/modules/$(uname -r)/kernel/net/{{netfilter,sched,ipv4,ipv6}} /tmp/tree\n\
             [ $(find /tmp/tree -type f | wc -l) -gt 300 ]\n\
             head -c 16M /dev/urandom >/tmp/tree/large\n\
             {make}; mount $D /mnt\n\
             cp -a /tmp/tree /mnt; umount /mnt\n\
             {check}\n\
             echo 3 >/proc/sys/vm/drop_caches\n\
             mount $D /mnt; diff -r /tmp/tree /mnt/tree"
        ),
    );
    let full = allocated(&rig.disk());
    session.run_within(LIMIT, "rm -r /mnt/tree; sync; fstrim -v /mnt; umount /mnt");
    let trimmed = allocated(&rig.disk());
    assert!(full > trimmed + 16 * MIB, "fstrim frees nothing: {full} bytes, then {trimmed}");
    session.run(check);
    session.disconnect();
}

/// Grows the target's file while a file system on the device is mounted, and then the file system:
/// the file first by another program, then by `tyche export resize`.
///
/// If the kernel cannot do that, the daemon reports it, and the new size is there after connecting
/// again.
pub(crate) fn resize(attachment: Attachment) {
    let (rig, target, guest) = Rig::start(64 * MIB, attachment);
    let mut session = Session::connect(&guest, attachment, "");
    session.run(
        "mkfs.ext4 -q $D; mount $D /mnt\n\
         head -c 16M /dev/urandom >/tmp/wanted; cp /tmp/wanted /mnt/before",
    );
    File::options().write(true).open(rig.disk()).unwrap().set_len(SIZE / 2).unwrap();
    target.hang_up();
    if attachment.why_rigid().is_none() {
        session.wait_until(&format!("[ $(blockdev --getsize64 $D) = {} ]", SIZE / 2));
    }
    rig.tyche(&["export", "resize", DISK, &SIZE.to_string()]);
    if let Some(words) = attachment.why_rigid() {
        session.wait_until(&format!("grep -q '{words}' /var/log/tyche/*.log"));
        session.run("umount /mnt");
        session.disconnect();
        session = Session::connect(&guest, attachment, "");
        session.run("mount $D /mnt");
        println!("SKIPPED: while it is connected: {words}");
    }
    session.wait_until(&format!("[ $(blockdev --getsize64 $D) = {SIZE} ]"));
    session.run_within(
        LIMIT,
        "resize2fs $D\n\
         [ $(df --output=size /mnt | tail -n 1) -gt $((400 * 1024)) ]\n\
         for i in {1..12}; do cp /tmp/wanted /mnt/after$i; done\n\
         umount /mnt; e2fsck -f -n $D\n\
         mount $D /mnt; cmp /tmp/wanted /mnt/before; cmp /tmp/wanted /mnt/after12; umount /mnt",
    );
    session.disconnect();
}

/// A guest with little memory writes many times as much through a file system: writing out dirty
/// pages must not wait for dirty pages to be written out.
pub(crate) fn memory_pressure(attachment: Attachment) {
    let shape = Shape { memory_mib: 512, ..Shape::from(attachment) };
    let (rig, _target, guest) = Rig::start(5 << 30, shape);
    let session = Session::connect(&guest, attachment, "");
    // First through the page cache, then through mapped pages, which are not throttled.
    session.run_within(
        Duration::from_secs(1200),
        "mkfs.ext4 -q $D; mount $D /mnt\n\
         fio --name=cached --filename=/mnt/cached --rw=write --bs=1M --size=3840M \\\n\
         --ioengine=psync --end_fsync=1\n\
         fio --name=mapped --filename=/mnt/mapped --rw=write --bs=1M --size=256M \\\n\
         --ioengine=mmap --end_fsync=1\n\
         umount /mnt; e2fsck -f -n $D",
    );
    assert!(allocated(&rig.disk()) > 4 << 30);
    session.disconnect();
}
