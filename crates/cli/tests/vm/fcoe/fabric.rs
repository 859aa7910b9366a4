//! In a fabric: our target and libfc's initiator, which is in that mode by default; our initiator
//! and tcm_fc.

use std::fs::File;

use serde_json::Value;
use tyche_fcoe::fc::wire::Wwn;

use super::VERIFY;
use super::disk::{AWAIT_WRITES, LIMIT};
use super::linux::LinuxPort;
use crate::attachment::Kernel;
use crate::rig::{HOST, MIB, Rig, Shape, run};

const SIZE: u64 = 64 * MIB;
const FABRIC: [&str; 2] = ["--fcoe-mode", "fabric"];
/// The name of our port, for the access list of the kernel's target.
const OURS: Wwn = Wwn(0x2000_0200_0000_0001);

/// Writes a little at a time, at random, and reads back what was written: a frame that the
/// forwarder has no room for would have the kernel's target keep its write for good (FC.md,
/// "Linux").
const GENTLE: &str = "fio --name=load --filename=$D --rw=randwrite --bs=4k-16k --size=8M \
    --direct=1 --ioengine=libaio --iodepth=2 --verify=crc32c --verify_fatal=1 \
    --verify_state_save=0 --minimal";

/// Kills the forwarder, and the target, under load, and starts them again.
pub(super) fn disk(kernel: Kernel) {
    let rig = Rig::new();
    File::create_new(rig.disk()).unwrap().set_len(SIZE).unwrap();
    let forwarder = rig.forward();
    let target = rig.serve_fcoe(&FABRIC);
    let guest = rig.boot(0, &Shape::from(kernel));
    let port = LinuxPort::initiator_in_fabric(&guest);
    let device = port.await_disk();
    let load = || guest.start(&format!("D={device}\n{VERIFY}"));
    let await_writes = || guest.start(&format!("D={device}\n{AWAIT_WRITES}")).succeed(LIMIT);
    load().succeed(LIMIT);
    let running = load();
    await_writes();
    drop(forwarder);
    let _forwarder = rig.forward();
    running.succeed(LIMIT);
    let running = load();
    await_writes();
    target.kill();
    let _target = rig.serve_fcoe(&FABRIC);
    running.succeed(LIMIT);
    port.remove();
}

/// Writes to the disk of the kernel's target, and reads it back.
pub(super) fn session(kernel: Kernel) {
    let rig = Rig::new();
    let _forwarder = rig.forward();
    let guest = rig.boot(0, &Shape::from(kernel));
    let target = LinuxPort::target_in_fabric(&guest, OURS);
    target.await_online();
    let wwpn = target.wwpn.to_string();
    let ours = OURS.to_string();
    let fcoe = ["connect", "--fcoe", &wwpn, "--link", HOST, "--wwpn", &ours, "--as", "loop"];
    let said = rig.tyche(&[&fcoe[..], &FABRIC, &["-o", "json"]].concat());
    let value: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let device = value["device"].as_str().unwrap();
    let mut load = rig.command("bash");
    run(load.args(["-euc", GENTLE]).env("D", device));
    rig.tyche(&["disconnect", &wwpn]);
}
