//! Real block devices on stock kernels: `cargo xtask vm` makes what these tests need and runs
//! them. Everywhere else they are ignored.
//!
//! Each boots a guest, has a target on this machine, and connects over raw Ethernet in between.
//! The list is written once, and run for every attachment on the kernel that it is for.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod attachment;
mod filesystems;
mod rig;

/// Runs the list for attachments: a module of tests for each.
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
                $function(THIS);
            }
        )*
    };
}

list! {
    loops = Loop;
    smoke = crate::filesystems::smoke,
    ext4 = crate::filesystems::ext4,
    xfs = crate::filesystems::xfs,
    btrfs = crate::filesystems::btrfs,
}
