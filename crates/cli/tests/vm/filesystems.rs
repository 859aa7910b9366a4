//! File systems: made, filled, compared, checked, and trimmed.

use std::time::Duration;

use crate::attachment::Attachment;
use crate::rig::{Rig, Session, Shape, allocated};

const MIB: u64 = 1 << 20;
/// Enough for the file system that wants most.
const SIZE: u64 = 512 * MIB;
/// For a whole tree through an emulated machine.
const LIMIT: Duration = Duration::from_secs(300);

/// What was written is there, and everything goes away in good order.
pub(crate) fn smoke(attachment: Attachment) {
    let rig = Rig::new();
    let _target = rig.serve_new(64 * MIB);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let session = Session::connect(&guest, attachment, "");
    session.run(
        "head -c 8M /dev/urandom >/tmp/wanted\n\
         dd if=/tmp/wanted of=$D bs=1M oflag=direct conv=fsync status=none\n\
         dd if=$D bs=1M count=8 iflag=direct status=none | cmp - /tmp/wanted\n\
         [ $(blockdev --getsize64 $D) = 67108864 ]",
    );
    session.disconnect();
}

pub(crate) fn ext4(attachment: Attachment) {
    tree(attachment, "mkfs.ext4 -q $D", "e2fsck -f -n $D");
}

pub(crate) fn xfs(attachment: Attachment) {
    tree(attachment, "mkfs.xfs -q $D", "xfs_repair -n $D");
}

pub(crate) fn btrfs(attachment: Attachment) {
    tree(attachment, "mkfs.btrfs -q $D", "btrfs check $D");
}

/// Copies a tree to a new file system, compares it after mounting anew, checks the file system,
/// and has the target's file shrink when the tree is removed.
fn tree(attachment: Attachment, make: &str, check: &str) {
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let session = Session::connect(&guest, attachment, "");
    let tree = "tree=/lib/modules/$(uname -r)/kernel/net";
    session.run_within(
        LIMIT,
        &format!(
            "{make}; mount $D /mnt; {tree}\n\
             [ $(find $tree -type f | wc -l) -gt 300 ]\n\
             cp -a $tree /mnt/tree; umount /mnt\n\
             echo 3 >/proc/sys/vm/drop_caches\n\
             {check}\n\
             mount $D /mnt; diff -r $tree /mnt/tree"
        ),
    );
    let full = allocated(&rig.disk());
    session.run_within(LIMIT, "rm -r /mnt/tree; sync; fstrim -v /mnt; umount /mnt");
    let trimmed = allocated(&rig.disk());
    assert!(full > trimmed + 4 * MIB, "fstrim frees nothing: {full} bytes, then {trimmed}");
    session.run(check);
    session.disconnect();
}
