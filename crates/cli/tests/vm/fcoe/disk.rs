//! Our target serves a disk to libfc's initiator.

use std::fs::File;
use std::time::Duration;

use super::linux::LinuxPort;
use super::{FILE_SYSTEMS, VERIFY};
use crate::attachment::Kernel;
use crate::rig::{Guest, MIB, Rig, Shape, Target, allocated};

/// XFS takes no less than 300 MiB.
const SIZE: u64 = 384 * MIB;
/// Time limit for a load.
pub(super) const LIMIT: Duration = Duration::from_secs(300);

/// Waits until so many more writes were answered: a load is running.
pub(super) const AWAIT_WRITES: &str = "\
    written() { read -r _ _ _ _ w _ </sys/block/${D#/dev/}/stat; echo $w; }\n\
    start=$(written); until [ $(written) -gt $((start + 50)) ]; do sleep 0.05; done";

/// A target, and a guest with its disk. The guest ends first.
struct Served {
    guest: Guest,
    target: Target,
    rig: Rig,
}

impl Served {
    fn start(kernel: Kernel) -> Self {
        let rig = Rig::new();
        File::create_new(rig.disk()).unwrap().set_len(SIZE).unwrap();
        let target = rig.serve_fcoe(&[]);
        let guest = rig.boot(0, &Shape::from(kernel));
        Self { guest, target, rig }
    }

    /// Runs a script with the device as `$D`, which must succeed.
    fn run(&self, device: &str, script: &str) -> String {
        self.guest.start(&format!("D={device}\n{script}")).succeed(LIMIT)
    }
}

/// Data, sizes, caches, discards and resets.
pub(super) fn disk(kernel: Kernel) {
    let served = Served::start(kernel);
    let port = LinuxPort::initiator(&served.guest);
    let device = port.await_disk();
    served.run(
        &device,
        &format!(
            "[ $(blockdev --getsize64 $D) = {SIZE} ]; [ $(blockdev --getro $D) = 0 ]\n\
             head -c 8M /dev/urandom >/tmp/wanted\n\
             dd if=/tmp/wanted of=$D bs=1M oflag=direct conv=fsync status=none\n\
             dd if=$D bs=1M count=8 iflag=direct status=none | cmp - /tmp/wanted"
        ),
    );
    assert!(allocated(&served.rig.disk()) >= 8 * MIB);
    served.run(
        &device,
        "sg_reset -d $D; dd if=$D bs=1M count=8 iflag=direct status=none | cmp - /tmp/wanted",
    );
    served.run(&device, VERIFY);
    served.run(
        &device,
        "blkdiscard $D; dd if=$D bs=1M count=32 iflag=direct status=none | cmp -n 32M - /dev/zero",
    );
    let left = allocated(&served.rig.disk());
    assert!(left < MIB, "{left} bytes are left");
    port.remove();
}

/// A tree in each file system, compared after mounting again.
pub(super) fn filesystems(kernel: Kernel) {
    let served = Served::start(kernel);
    let port = LinuxPort::initiator(&served.guest);
    let device = port.await_disk();
    served.run(
        &device,
        "mkdir -p /tmp/tree\n\
         cp -a /lib/modules/$(uname -r)/kernel/net/{netfilter,sched,ipv4} /tmp/tree\n\
         head -c 16M /dev/urandom >/tmp/tree/large",
    );
    for (make, check) in FILE_SYSTEMS {
        served.run(
            &device,
            &format!(
                "{make} $D; mount $D /mnt\n\
                 cp -a /tmp/tree /mnt; umount /mnt\n\
                 {check} $D\n\
                 echo 3 >/proc/sys/vm/drop_caches\n\
                 mount $D /mnt; diff -r /tmp/tree /mnt/tree\n\
                 rm -r /mnt/tree; sync; fstrim -v /mnt; umount /mnt\n\
                 {check} $D"
            ),
        );
    }
    port.remove();
}

/// Kills the target under load, and starts it again: requests wait for it.
pub(super) fn target_killed(kernel: Kernel) {
    let mut served = Served::start(kernel);
    let port = LinuxPort::initiator(&served.guest);
    let device = port.await_disk();
    for _ in 0..2 {
        let load = served.guest.start(&format!("D={device}\n{VERIFY}"));
        served.run(&device, AWAIT_WRITES);
        served.target.kill();
        served.target = served.rig.serve_fcoe(&[]);
        load.succeed(LIMIT);
    }
    port.remove();
}

/// Cuts the cable under load for so long that both ends notice, and mends it.
pub(super) fn link_cut(kernel: Kernel) {
    let served = Served::start(kernel);
    let port = LinuxPort::initiator(&served.guest);
    let device = port.await_disk();
    let load = served.guest.start(&format!("D={device}\n{VERIFY}"));
    served.run(&device, AWAIT_WRITES);
    served.rig.cut(0);
    served.guest.run("sleep 10");
    served.rig.mend(0);
    load.succeed(LIMIT);
    port.remove();
}

/// Frames as long as the guest's interface takes them: some have less data than FCoE's longest.
pub(super) fn mtu(kernel: Kernel) {
    let served = Served::start(kernel);
    for mtu in [1500, 2500, 9000] {
        served.guest.run(&format!("ip link set eth0 mtu {mtu}"));
        let port = LinuxPort::initiator(&served.guest);
        let device = port.await_disk();
        served.run(&device, VERIFY);
        port.remove();
        served.guest.wait_until("! compgen -G '/sys/block/sd*/capability' >/dev/null");
    }
}

/// Loses frames both ways: nothing wrong is read, and nothing stays behind.
pub(super) fn lossy(kernel: Kernel) {
    let served = Served::start(kernel);
    let port = LinuxPort::initiator(&served.guest);
    let device = port.await_disk();
    served.rig.lose_fcoe(0, 5, 5);
    served.run(&device, VERIFY);
    port.remove();
}

/// A VLAN, both of whose ends are in a guest: the target is in a network namespace of its own.
pub(super) fn vlan(kernel: Kernel) {
    let rig = Rig::new();
    let guest = rig.boot(0, &Shape { interfaces: 2, ..Shape::from(kernel) });
    guest.run(
        "modprobe 8021q; ip netns add target; ip link set eth1 netns target\n\
         for at in 'ip link' 'ip -n target link'; do\n\
         link=eth0; [ \"$at\" = 'ip link' ] || link=eth1\n\
         $at set $link mtu 9000 up; $at add link $link name $link.10 type vlan id 10\n\
         $at set $link.10 mtu 2500 up\n\
         done",
    );
    let export = "--export disk=sparse:64M";
    let target = guest
        .start(&format!("ip netns exec target tyche serve --name vlan --fcoe eth1.10 {export}"));
    let port = LinuxPort::initiator_on(&guest, "eth0.10");
    let device = port.await_disk();
    guest.start(&format!("D={device}\n{VERIFY}")).succeed(LIMIT);
    port.remove();
    guest.run("kill $(pidof tyche)");
    target.succeed(LIMIT);
}
