//! Block devices on stock kernels: `cargo xtask vm` prepares and runs these tests. Otherwise they
//! are ignored.
//!
//! Each test boots a guest, runs a target on this machine, and connects over raw Ethernet in
//! between. The list of tests is written once, and runs for every attachment on its kernel.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod attachment;
mod counts;
mod device;
mod fcoe;
mod filesystems;
mod first_day;
mod interfaces;
#[path = "../lab/mod.rs"]
mod lab;
mod mirror;
mod nics;
mod peers;
mod postgres;
mod rdma;
mod recovery;
mod rig;
mod systemd;
mod thin;
mod vhost_user;

/// Instantiates the list of tests for attachments: a module for each.
macro_rules! list {
    ($($name:ident = $attachment:ident),*; $($test:ident = $function:path),* $(,)?) => {
        list!(@ [$($name = $attachment),*] [$($test = $function),*]);
    };
    (@ [] $tests:tt) => {};
    (@ [$name:ident = $attachment:ident $(, $more:tt = $rest:tt)*] $tests:tt) => {
        mod $name {
            use crate::attachment::Attachment::$attachment as THIS;
            list!(# $tests);
        }
        list!(@ [$($more = $rest),*] $tests);
    };
    (# [$($test:ident = $function:path),*]) => {
        $(
            #[test]
            #[ignore = "needs a virtual machine: cargo xtask vm"]
            fn $test() {
                match THIS.kernel().why_absent() {
                    Some(reason) => println!("SKIPPED: {reason}"),
                    None => $function(THIS),
                }
            }
        )*
    };
}

list! {
    loops = Loop, nbd = Nbd, ublk = Ublk, queues = Queues, growable = Growable, ublk_7 = Ublk7;
    smoke = crate::device::smoke,
    auto = crate::device::auto,
    discard = crate::device::discard,
    rotational = crate::device::rotational,
    read_only = crate::device::read_only,
    partitions = crate::device::partitions,
    ext4 = crate::filesystems::ext4,
    xfs = crate::filesystems::xfs,
    btrfs = crate::filesystems::btrfs,
    resize = crate::filesystems::resize,
    memory_pressure = crate::filesystems::memory_pressure,
    daemon_killed = crate::recovery::daemon_killed,
    killed_at_start = crate::recovery::killed_at_start,
    unanswered = crate::recovery::unanswered,
    killed_at_end = crate::recovery::killed_at_end,
    given_up = crate::recovery::given_up,
    target_killed = crate::recovery::target_killed,
    keys = crate::recovery::keys,
    link_cut = crate::recovery::link_cut,
    forced = crate::recovery::forced,
    link_cut_mounted = crate::recovery::link_cut_mounted,
    failed_unused = crate::recovery::failed_unused,
}
