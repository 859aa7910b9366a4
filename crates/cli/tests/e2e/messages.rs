//! Messages about users' mistakes: one line that names both sides of a conflict, the invalid value,
//! or the thing that was not found.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::refusals::{expect, refused};
use crate::rig::{DISK, PATIENCE, Rig, Running, Side, finish, rig, run, wait_until};

const MIB: u64 = 1 << 20;

/// Checks that `tyche serve` refuses these arguments.
fn serve_refused(rig: &Rig, args: &[&str], code: i32, parts: &[&str]) {
    let fixed = ["serve", "--link", rig.cable.link(Side::Target)];
    refused(rig, Side::Target, &[&fixed, args].concat(), code, parts);
}

#[test]
fn a_file_that_is_exported_twice_is_named_by_both_lines() {
    let rig = rig!(1500);
    let disk = rig.file("disk.img", MIB);
    let config = rig.path("target.toml");
    let export =
        |name: &str| format!("[[export]]\nname = \"{name}\"\npath = \"{}\"\n", disk.display());
    fs::write(&config, format!("name = \"a\"\n{}\n{}", export("one"), export("two"))).unwrap();
    let path = config.to_str().unwrap();
    let lines = [format!("line 2 of {path}"), format!("line 6 of {path}")];
    serve_refused(&rig, &["--config", path], 8, &[&lines[0], &lines[1], "read-only"]);
    let exports = ["one", "two"].map(|name| format!("--export={name}={}", disk.display()));
    let [one, two] = exports.each_ref().map(String::as_str);
    serve_refused(&rig, &[one, two], 2, &["one=", "two=", "the same disk"]);
    // Readers may share a file.
    drop(rig.serve(&[one, two, "--read-only"]));
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let rig = rig!(1500);
    let config = rig.path("target.toml");
    let path = config.to_str().unwrap();
    fs::write(&config, "[limits]\nmemory = 0\n").unwrap();
    serve_refused(&rig, &["--config", path], 8, &["line 2", "memory = 0", "1.0 MiB to 16.0 TiB"]);
    fs::write(&config, "name = \"..\"\n").unwrap();
    let export = ["--export", "disk=mem:1M"];
    serve_refused(&rig, &[&export[..], &["--config", path]].concat(), 8, &["`..`"]);
    let run_dir = rig.path("run");
    fs::create_dir_all(run_dir.join("exports")).unwrap();
    File::create(run_dir.join("here")).unwrap();
    for name in [".", "..", "a/b", "../a", ""] {
        serve_refused(&rig, &[&export[..], &["--name", name]].concat(), 2, &[name, "name"]);
    }
    assert!(run_dir.join("here").exists() && run_dir.join("exports").exists());
    let much = ["--export", "disk=mem:4000T", "--name", "x"];
    serve_refused(&rig, &much, 9, &["3.9 PiB", "lower it"]);

    serve_refused(&rig, &["--export", "disk=mem:100", "--name", "x"], 2, &["size 100"]);

    let link = rig.cable.link(Side::Host);
    for (option, value, says) in [
        ("--ctrl-loss-tmo", "-2", "or -1: for ever"),
        ("--host-id", "host1", "a host ID is a UUID"),
        ("--host-id", "00000000-0000-0000-0000-000000000000", "a host ID is a UUID"),
    ] {
        let args = ["connect", DISK, "--link", link, option, value];
        let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
        expect(&done, &args, 2, &[option, value, says]);
    }
}

/// Linux allows a host name of 64 bytes, one more than a target's name has.
#[test]
fn a_machine_whose_name_is_too_long_for_a_target_is_told_to_give_another() {
    let rig = rig!(1500);
    let name = "h".repeat(64);
    let script = format!("printf {name} >/proc/sys/kernel/hostname; exec \"$@\"");
    let serve = ["serve", "--link", rig.cable.link(Side::Target), "--export", "disk=mem:1M"];
    let in_machine = ["--uts", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_tyche")];
    let args = [&in_machine[..], &serve].concat();
    let mut command = rig.at(Side::Target, Path::new("unshare"), &args);
    let said = [&name[..], "a name has 1 to 63 bytes", "it is this machine's: give --name"];
    expect(&finish(&mut command, PATIENCE), &serve, 2, &said);
}

#[test]
fn a_path_too_narrow_for_any_frame_is_named_with_the_mtu_here() {
    let rig = rig!(1500);
    rig.cable.insert_bridge(1500, 1000);
    let _target = rig.serve_file(64 * MIB);
    let link = rig.cable.link(Side::Host);
    let args = ["connect", DISK, "--link", link, "--timeout", "2"];
    let mtu = format!("that of {link} is 1500");
    refused(&rig, Side::Host, &args, 6, &["no frame of 1232 bytes", &mtu]);
}

#[test]
fn a_discovery_that_finds_nothing_says_so() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Host);
    let args = ["discover", "--link", link, "--timeout", "0.2"];
    let discover = || finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    expect(&discover(), &args, 3, &[&format!("no target answers on {link}"), "0x88b5"]);
    let json = rig.ask(&args);
    assert_eq!(json["exports"].as_array().map(Vec::len), Some(0), "{json}");

    // Nobody has the address that is named: not even a refusal comes back.
    let addresses = [(Side::Target, "10.8.0.1/24"), (Side::Host, "10.8.0.2/24")];
    for (side, address) in addresses {
        rig.cable.ip(side, &["address", "add", address, "dev", rig.cable.link(side)]);
    }
    let named = ["discover", "--link", "udp:10.8.0.9", "--timeout", "0.2"];
    let done = finish(&mut rig.tyche(Side::Host, &named), PATIENCE);
    let remedies = ["`tyche serve --link udp:10.8.0.9:8650`", "address and port", "firewalls"];
    expect(&done, &named, 3, &remedies);
    assert!(!done.stderr.contains("Ethernet"), "{}", done.stderr);

    let config = rig.path("target.toml");
    let export = "[[export]]\nname = \"disk\"\npath = \"mem:1M\"\n";
    let hosts = "hosts = [\"11111111-2222-4333-8444-555555555555\"]\n";
    fs::write(&config, format!("{export}{hosts}")).unwrap();
    let _target = rig.serve(&["--config", config.to_str().unwrap()]);
    expect(&discover(), &args, 3, &["`e2e` answers", "nothing to this host"]);
}

#[test]
fn a_compromise_is_told_of_once_however_often_connecting_is_tried() {
    let rig = rig!(1500);
    let args = ["connect", DISK, "--foreground", "--retry", "0.1", "--timeout", "0.5", "--link"];
    let log = rig.path("foreground.log");
    let mut command = rig.tyche(Side::Host, &[&args[..], &[rig.cable.link(Side::Host)]].concat());
    // The same error is in the log once; in the other lines, which are for developers, again.
    command.env("RUST_LOG", "info,tyche_cli::daemons::connect::retry=debug");
    command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let mut process = Running::start(&mut command);
    let said = |what: &str| fs::read_to_string(&log).unwrap().matches(what).count();
    wait_until("it has tried twice", || said("trying again") >= 2);
    let _target = rig.serve_file(64 * MIB);
    wait_until("it is connected", || said("connected") == 1);
    wait_until("it is listed", || rig.ask(&["list"])["sessions"][0]["state"] == "live");
    assert!(said("would be better") + said("a loop device over FUSE is used") <= 1);
    process.signal(Signal::TERM);
    process.end();
}

#[test]
fn tychetab_has_one_name_on_all_command_lines() {
    let rig = rig!(1500);
    let _target = rig.serve_file(64 * MIB);
    let tab = rig.path("tab");
    fs::write(&tab, format!("{DISK} {} as=fuse\n", rig.cable.link(Side::Host))).unwrap();
    let option = format!("--tab={}", tab.display());
    for args in [&["connect-all", &option][..], &["connect", DISK, &option]] {
        assert!(run(&mut rig.tyche(Side::Host, args)).contains("/fuse/"));
        run(&mut rig.tyche(Side::Host, &["disconnect", DISK]));
    }
}

#[test]
fn the_log_of_a_target_says_who_has_come_who_was_refused_and_who_has_gone() {
    let rig = rig!(1500);
    let target = rig.serve_file(MIB);
    let session = rig.connect(&["--host-name", "first-host"]);
    let host = session.value["host"].as_str().unwrap().to_owned();
    wait_until("the host has come", || {
        let line = format!("host first-host ({host}) has connected disk for writing");
        target.log().lines().any(|it| it.contains(&line) && it.contains("from="))
    });
    let list = run(&mut rig.tyche(Side::Target, &["list"]));
    assert!(list.contains("first-host (writes)"), "{list}");
    let link = rig.cable.link(Side::Host);
    let other = "8f0b2b39-0d4a-4b4b-9f6e-5d3e3a0f7a11";
    let held = ["connect", DISK, "--link", link, "--host-id", other, "--host-name", "second"];
    refused(&rig, Side::Host, &held, 7, &["held by host first-host"]);
    wait_until("the refusal is said", || {
        let lines = target.log();
        let mut lines = lines.lines().filter(|it| it.contains("refused disk to host"));
        lines.any(|it| it.contains("second") && it.contains("first-host"))
    });
    session.disconnect();
    wait_until("the host has gone", || {
        target.log().contains(&format!("host first-host ({host}) has left disk after"))
    });
}

#[test]
fn sighup_says_what_has_grown_and_what_takes_a_restart() {
    let rig = rig!(1500);
    let (disk, config) = (rig.file("disk.img", MIB), rig.path("target.toml"));
    let export =
        |name: &str, path: &str| format!("[[export]]\nname = \"{name}\"\npath = \"{path}\"\n");
    let one = export(DISK, disk.to_str().unwrap());
    fs::write(&config, &one).unwrap();
    let target = rig.serve(&["--config", config.to_str().unwrap()]);
    fs::write(&config, one + "[limits]\nmemory = \"7MiB\"\n").unwrap();
    File::options().write(true).open(&disk).unwrap().set_len(2 * MIB).unwrap();
    target.process.signal(Signal::HUP);
    for part in [
        "`limits` has changed (line 4): that takes a restart",
        "export disk has grown from 1.0 MiB to 2",
    ] {
        wait_until(part, || target.log().contains(part));
    }
}
