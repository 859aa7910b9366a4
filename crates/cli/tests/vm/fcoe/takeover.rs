//! Our initiator, in a guest, uses a disk of our target, and dies.

use std::fs::File;

use serde_json::Value;

use crate::attachment::{Attachment, Kernel};
use crate::recovery::kill_under_load;
use crate::rig::{MIB, Rig, Session, Shape};

const SIZE: u64 = 64 * MIB;

/// Kills the daemon under load, and runs the same command again: the device is taken over.
pub(super) fn daemon_killed(kernel: Kernel) {
    let attachment = match kernel {
        Kernel::V6_1 => Attachment::Nbd,
        Kernel::V6_12 | Kernel::V7 => Attachment::Ublk,
    };
    let rig = Rig::new();
    File::create_new(rig.disk()).unwrap().set_len(SIZE).unwrap();
    let _target = rig.serve_fcoe(&["--e-d-tov", "0.1"]);
    let guest = rig.boot(0, &Shape::from(attachment));
    let said = guest.run("tyche discover --fcoe --link eth0 -o json");
    let found: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let disk = found["ports"][0]["luns"][0]["disk"].as_str().unwrap_or_else(|| panic!("{said}"));
    // With several queues, nbd holds back what was in flight (docs/reference.md).
    let queues = if attachment == Attachment::Nbd { 1 } else { 2 };
    let args = format!("--fcoe --link eth0 --e-d-tov 0.1 --queues {queues}");
    kill_under_load(Session::connect_over(&guest, attachment, disk, &args));
}
