//! Fibre Channel over Ethernet in a fabric: the laboratory's forwarder runs on a bridge between
//! both ends.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::files::Files;
use crate::refusals::{expect, refused};
use crate::rig::{
    LAB, PATIENCE, Rig, Running, Side, Target, check_ext4, finish, rig, run, wait_until,
};

const SIZE: u64 = 256 << 20;
const MTU: u32 = 2500;
/// Options of all commands in a fabric.
const FABRIC: [&str; 2] = ["--fcoe-mode", "fabric"];
/// Options by which losses are noticed soon.
const SOON: [&str; 2] = ["--e-d-tov", "0.1"];

/// Starts the forwarder, which is noticed to be silent after 2.5 periods.
fn forwarder(rig: &Rig) -> Running {
    let mut command = rig.cable.middle().command(&*LAB);
    command.args(["fcf", "br", "--period", "1"]).args(SOON).stdout(Stdio::piped());
    let mut forwarder = Running::start(&mut command);
    let line = forwarder.line();
    assert!(line.starts_with("tyche-lab: forwarding on br"), "{line:?}");
    forwarder
}

/// Serves the file of the rig.
fn serve(rig: &Rig) -> Target {
    let fcoe = ["--fcoe", rig.cable.link(Side::Target)];
    let export = rig.export();
    rig.serve_on(&[&fcoe[..], &FABRIC, &SOON].concat(), &["--export", &export])
}

fn discover<'a>(rig: &Rig, args: &[&'a str]) -> Vec<&'a str> {
    let link = rig.cable.link(Side::Host);
    [&["discover", "--fcoe", "--link", link][..], args].concat()
}

/// The WWPN of the only target, once it can be found.
fn await_target(rig: &Rig) -> String {
    let mut ports = Vec::new();
    wait_until("the target is found", || {
        let found = rig.ask(&discover(rig, &FABRIC));
        ports = found["ports"].as_array().unwrap().clone();
        !ports.is_empty()
    });
    let [port] = &ports[..] else { panic!("{ports:?}") };
    assert_eq!((&port["target"], &port["initiator"]), (&true.into(), &false.into()));
    assert_eq!((&port["wwnn"], &port["problem"]), (&Value::Null, &Value::Null), "{port}");
    assert_eq!(port["luns"][0]["properties"]["size"], SIZE, "{port}");
    port["wwpn"].as_str().unwrap().to_owned()
}

fn connect(rig: &Rig, port: &str, args: &[&str]) -> PathBuf {
    let fcoe = ["--fcoe", "--link", rig.cable.link(Side::Host), "--as", "loop"];
    rig.connect_disk(Side::Host, port, &[&fcoe[..], &FABRIC, &SOON, args].concat()).device
}

#[test]
fn a_copy_goes_on_when_the_forwarder_comes_back_and_the_target_and_after_all_logins_were_ended() {
    let rig = rig!(MTU);
    rig.cable.insert_bridge(MTU, MTU);
    let mut fabric = Some(forwarder(&rig));
    rig.file("disk.img", SIZE);
    let mut target = Some(serve(&rig));
    let port = await_target(&rig);
    let device = connect(&rig, &port, &[]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&device));
    let files = Files::new(7, 4 << 20);
    let mut incidents = 0;
    files.write_disturbed(&rig.mount(&device, "rw,sync"), 3, || {
        match incidents {
            0 => {
                drop(fabric.take());
                fabric = Some(forwarder(&rig));
            }
            1 => fabric.as_ref().unwrap().signal(Signal::HUP),
            _ => {
                target.take().unwrap().kill();
                target = Some(serve(&rig));
            }
        }
        incidents += 1;
    });
    assert_eq!(incidents, 3);
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    rig.unmount();
    rig.disconnect_all();
    let device = connect(&rig, &port, &["--read-only"]);
    files.assert_intact(&rig.mount(&device, "ro"));
    rig.unmount();
    check_ext4(&device);
    rig.disconnect_all();
}

#[test]
fn messages_tell_a_fabric_from_a_network_without_one() {
    let rig = rig!(MTU);
    rig.cable.insert_bridge(MTU, MTU);
    let (host, none) = (rig.cable.link(Side::Host), "20:00:02:00:5e:10:00:01");
    let connect = ["connect", none, "--fcoe", "--link", host, "--ctrl-loss-tmo", "5"];
    // With JSON, an empty list is no error.
    let lists = |args: &[&str], parts: &[&str]| {
        let args = discover(&rig, args);
        expect(&finish(&mut rig.tyche(Side::Host, &args), PATIENCE), &args, 3, parts);
    };
    lists(&FABRIC, &["no forwarder (FCF)", host]);
    let in_fabric = [&connect[..], &FABRIC].concat();
    refused(&rig, Side::Host, &in_fabric, 6, &["no forwarder (FCF) of a fabric answers"]);
    let _fabric = forwarder(&rig);
    lists(&[], &["a fabric answers", "--fcoe-mode fabric lists its ports"]);
    lists(&FABRIC, &["shows no other port"]);
    refused(&rig, Side::Host, &in_fabric, 6, &["is not heard", "zones"]);
}
