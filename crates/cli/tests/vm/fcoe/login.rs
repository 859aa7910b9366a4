//! Ports of ours and of Linux find each other, log in, stay, and log out.

use std::time::{Duration, Instant};

use serde_json::Value;
use tyche_fcoe::fc::neighbour::Functions;
use tyche_fcoe::fc::port::Cause;
use tyche_fcoe::fc::wire::PortId;

use super::linux::LinuxPort;
use super::port::OurPort;
use crate::attachment::Kernel;
use crate::rig::{HOST, Rig, Shape, wait_until};

const INITIATOR: Functions = Functions { initiator: true, target: false };
const TARGET: Functions = Functions { initiator: false, target: true };

/// Silence after which a neighbour is gone, and a little more.
const SILENCE: Duration = Duration::from_secs(25);

/// `tyche discover --fcoe` shows Linux' ports, as initiator and as target.
pub(super) fn discover(kernel: Kernel) {
    let rig = Rig::new();
    let guest = rig.boot(0, &Shape::from(kernel));
    let initiator = LinuxPort::initiator(&guest);
    await_discovery(&rig, &initiator, false);
    initiator.remove();
    let target = LinuxPort::target(&guest, initiator.wwpn);
    await_discovery(&rig, &target, true);
    target.remove();
}

fn await_discovery(rig: &Rig, port: &LinuxPort<'_>, target: bool) {
    let id = port.id();
    let said = rig.tyche(&["discover", "--fcoe", "--link", HOST, "-o", "json"]);
    let value: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let [found] = &value["ports"].as_array().unwrap()[..] else { panic!("{said}") };
    assert_eq!(found["wwpn"], port.wwpn.to_string(), "{said}");
    assert_eq!(found["n_port_id"], PortId::new(id).to_string(), "{said}");
    assert_eq!((&found["initiator"], &found["target"]), (&true.into(), &target.into()), "{said}");
    assert_eq!(found["size"], 2158, "{said}");
}

/// Our target and libfc's initiator.
pub(super) fn initiator(kernel: Kernel) {
    logins(kernel, TARGET);
}

/// Our initiator and tcm_fc's target.
pub(super) fn target(kernel: Kernel) {
    logins(kernel, INITIATOR);
}

/// Makes and ends logins in every way, from both sides.
fn logins(kernel: Kernel, functions: Functions) {
    let rig = Rig::new();
    let guest = rig.boot(0, &Shape::from(kernel));
    let theirs = Functions { initiator: functions.target, target: functions.initiator };
    let start = || OurPort::start(&rig, functions, None);
    let ours = start();
    ours.await_address();
    let linux = match functions.target {
        true => LinuxPort::initiator(&guest),
        false => LinuxPort::target(&guest, ours.wwpn),
    };
    let await_login = |ours: &OurPort, after: &str| {
        let began = Instant::now();
        let login = ours.await_login(linux.wwpn, theirs);
        println!("login after {after}: {:.1} s", began.elapsed().as_secs_f32());
        assert_eq!(login.payload_max, 2112);
        linux.await_login(ours.wwpn);
    };
    await_login(&ours, "Linux' start");
    ours.expect_calm(SILENCE);

    linux.remove();
    assert_eq!(ours.await_logout(linux.wwpn), Cause::Logout);
    linux.create();
    await_login(&ours, "Linux' logout");

    let wwpn = ours.wwpn;
    ours.end();
    linux.await_logout(wwpn);
    let ours = start();
    await_login(&ours, "our logout");

    ours.kill();
    let ours = start();
    await_login(&ours, "our death");

    guest.run("ip link set eth0 down; ip link set eth0 up");
    ours.await_logout(linux.wwpn);
    await_login(&ours, "Linux' link was down");

    rig.cut(0);
    assert_eq!(ours.await_logout(linux.wwpn), Cause::Gone);
    linux.await_logout(wwpn);
    rig.mend(0);
    await_login(&ours, "a cut");

    ours.end();
    linux.remove();
}

/// Ports that want the same N_Port_ID get different ones, whoever has it first.
pub(super) fn collision(kernel: Kernel) {
    let rig = Rig::new();
    let guest = rig.boot(0, &Shape::from(kernel));
    let linux = LinuxPort::initiator(&guest);
    let wanted = PortId::new(linux.id());
    let ours = OurPort::start(&rig, TARGET, Some(wanted));
    let login = ours.await_login(linux.wwpn, INITIATOR);
    assert_eq!(login.id, wanted, "it was first");
    linux.remove();
    ours.end();

    let ours = OurPort::start(&rig, TARGET, Some(wanted));
    assert_eq!(ours.await_address(), wanted);
    linux.create();
    let login = ours.await_login(linux.wwpn, INITIATOR);
    assert_ne!(login.id, wanted);
    wait_until("Linux has the other", || linux.id() == login.id.to_u32());
    linux.await_login(ours.wwpn);
    ours.end();
    linux.remove();
}
