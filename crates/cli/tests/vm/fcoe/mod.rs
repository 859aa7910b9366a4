//! Fibre Channel over Ethernet, with the initiator and the target of Linux' own kernel at the other
//! end, or ours in the guest: ports without a fabric (VN2VN), through a bridge, and in the fabric
//! of the laboratory's forwarder.

mod disk;
mod fabric;
mod linux;
mod login;
mod port;
mod session;
mod takeover;

use crate::attachment::Kernel;

/// Writes at random, and reads back what was written.
const VERIFY: &str = "fio --name=load --filename=$D --rw=randwrite --bs=4k-64k --size=16M \
    --direct=1 --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 \
    --verify_state_save=0 --minimal";

/// The commands that make and check each file system.
const FILE_SYSTEMS: [(&str, &str); 2] =
    [("mkfs.ext4 -q -F", "e2fsck -f -n"), ("mkfs.xfs -q -f", "xfs_repair -n")];

/// The list of tests, for each kernel.
macro_rules! kernels {
    ($($name:ident = $kernel:ident),*; $tests:tt) => {
        $(
            mod $name {
                use super::*;

                const THIS: Kernel = Kernel::$kernel;

                kernels!(@ $tests);
            }
        )*
    };
    (@ [$($test:ident = $function:path),* $(,)?]) => {
        $(
            #[test]
            #[ignore = "needs a virtual machine: cargo xtask vm"]
            fn $test() {
                $function(THIS);
            }
        )*
    };
}

kernels! {
    on_6_1 = V6_1, on_6_12 = V6_12;
    [
        discover = login::discover,
        initiator = login::initiator,
        target = login::target,
        collision = login::collision,
        disk = disk::disk,
        filesystems = disk::filesystems,
        target_killed = disk::target_killed,
        lossy = disk::lossy,
        link_cut = disk::link_cut,
        mtu = disk::mtu,
        vlan = disk::vlan,
        session = session::disk,
        session_filesystems = session::filesystems,
        session_mtu = session::mtu,
        session_target_gone = session::target_gone,
        session_lossy = session::lossy,
        daemon_killed = takeover::daemon_killed,
        fabric = fabric::disk,
        fabric_session = fabric::session,
    ]
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn session_in_guest() {
    session::in_guest(Kernel::V6_12);
}
