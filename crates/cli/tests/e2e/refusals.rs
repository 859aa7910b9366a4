//! Refused commands: messages and exit codes.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::files::Files;
use crate::rig::{DISK, Done, PATIENCE, Rig, Side, finish, parsed, rig, run};

const SIZE: u64 = 256 << 20;
/// A host that is not this machine.
const OTHER_HOST: &str = "11111111-2222-4333-8444-555555555555";

/// Runs one of our commands, which must fail with `code`, in words that contain `parts`. As JSON,
/// with `-o json`, it must fail with the same words.
pub(crate) fn refused(rig: &Rig, side: Side, args: &[&str], code: i32, parts: &[&str]) {
    expect(&finish(&mut rig.tyche(side, args), PATIENCE), args, code, parts);
    if args[0] != "serve" {
        let args = [args, &["-o", "json"]].concat();
        let done = finish(&mut rig.tyche(side, &args), PATIENCE);
        let value: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(value["schema"], "tyche.error/1", "{}", done.stdout);
        let message = value["error"].as_str().unwrap();
        assert!(done.stderr.contains(message), "{} and {}", done.stdout, done.stderr);
        assert_eq!(done.status.code(), Some(code));
    }
}

pub(crate) fn expect(done: &Done, args: &[&str], code: i32, parts: &[&str]) {
    println!("tyche {}\n  {}  exit code {:?}", args.join(" "), done.stderr, done.status.code());
    for part in parts {
        assert!(done.stderr.contains(part), "{part:?} is missing in {:?}", done.stderr);
    }
    assert_eq!(done.status.code(), Some(code), "{}", done.stderr);
}

#[test]
fn unknown_exports_and_interfaces_are_named() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let link = rig.cable.link(Side::Host);
    let unknown = ["connect", "nothing", "--link", link];
    refused(&rig, Side::Host, &unknown, 3, &["nothing", DISK]);
    let unknown = ["connect", DISK, "--link", "eth77"];
    refused(&rig, Side::Host, &unknown, 3, &["eth77", link]);
    let unknown = ["serve", "--link", "eth77", "--export", "a=mem:1M", "--name", "a"];
    refused(&rig, Side::Target, &unknown, 3, &["eth77", rig.cable.link(Side::Target)]);
    refused(&rig, Side::Host, &["disconnect", "nothing"], 3, &["nothing", "tyche list"]);
}

#[test]
fn an_interface_that_is_down_is_named_with_the_remedy() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Host);
    rig.cable.ip(Side::Host, &["link", "set", link, "down"]);
    let remedy = format!("ip link set {link} up");
    refused(&rig, Side::Host, &["connect", DISK, "--link", link], 5, &["down", &remedy]);
}

#[test]
fn a_target_that_does_not_answer_is_waited_for_no_longer_than_told() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Host);
    let began = Instant::now();
    let args = ["connect", DISK, "--link", link, "--timeout", "1"];
    expect(
        &finish(&mut rig.tyche(Side::Host, &args), PATIENCE),
        &args,
        6,
        &[&format!("no target is heard on {link}"), "1 s"],
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_missing_privilege_is_named() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Host);
    let drop = ["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"];
    let tyche = env!("CARGO_BIN_EXE_tyche");
    let args = ["connect", DISK, "--link", link];
    let args = [&drop[..], &[tyche], &args].concat();
    let mut command = rig.at(Side::Host, Path::new("setpriv"), &args);
    expect(&finish(&mut command, PATIENCE), &args, 4, &["CAP_NET_RAW"]);
}

#[test]
fn a_path_that_drops_jumbo_frames_is_found_and_worked_around() {
    let rig = rig!(9000);
    rig.cable.insert_bridge(9000, 1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect(&[]);
    let link = &session.value["links"][0];
    println!("connect: {link}");
    assert_eq!(link["frame_len_max"], 9014);
    let found = link["frame_len"].as_u64().unwrap();
    assert!((1024..=1514).contains(&found), "{found}");
    let list = run(&mut rig.tyche(Side::Host, &["list"]));
    println!("{list}");
    assert!(list.contains(&found.to_string()), "the list names the size: {list}");
    let log = rig.logs();
    println!("{log}");
    let words = format!("longer than {found}");
    assert!(log.contains("9014 bytes") && log.contains(&words), "{log}");

    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    let files = Files::new(6, 32 << 20);
    files.write(&rig.mount(&session.device, "rw")).unwrap();
    rig.unmount();
    session.disconnect();
    rig.assert_kept(&files, &[]);
}

#[test]
fn a_second_writer_is_told_who_the_first_is() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect(&["--host-name", "first-host"]);
    let link = rig.cable.link(Side::Host);
    let args = ["connect", DISK, "--link", link, "--host-id", OTHER_HOST];
    refused(&rig, Side::Host, &args, 7, &["first-host"]);
    // The first session is unaffected; when it has ended, the other one may connect.
    File::open(&session.device).unwrap();
    assert_eq!(rig.ask(&["list"])["sessions"][0]["state"], "live");
    session.disconnect();
    rig.connect(&["--host-id", OTHER_HOST]).disconnect();
}

#[test]
fn a_read_only_export_is_not_written() {
    let rig = rig!(1500);
    rig.file("disk.img", SIZE);
    let _target = rig.serve(&["--read-only", "--export", &rig.export()]);
    let session = rig.connect_as("fuse", &[]);
    assert_eq!(session.value["disk"]["read_only"], true, "{}", session.value);
    let began = Instant::now();
    let error = File::options().write(true).open(&session.device).unwrap_err();
    println!("open for writing: {error} after {:?}", began.elapsed());
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{error}");
    session.disconnect();

    let session = rig.connect(&[]);
    let name = session.device.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(fs::read_to_string(format!("/sys/block/{name}/ro")).unwrap().trim(), "1");
    let began = Instant::now();
    let mut mkfs = Command::new("mkfs.ext4");
    let done = finish(mkfs.args(["-q", "-F"]).arg(&session.device), PATIENCE);
    println!("mkfs.ext4: {} after {:?}", done.stderr.trim(), began.elapsed());
    assert!(!done.success());
    session.disconnect();
}

#[test]
fn a_broken_configuration_is_named_by_line_and_key() {
    let rig = rig!(1500);
    let config = rig.path("broken.toml");
    let path = config.to_str().unwrap().to_owned();
    let serve = ["serve", "--link", rig.cable.link(Side::Target), "--config", &path];
    let cases: [(&str, &[&str]); 4] = [
        (
            "[[export]]\nname = \"a\"\npath = \"mem:1M\"\nread_onyl = true\n",
            &["line 4", "read_onyl"],
        ),
        ("name = \"a\"\n\n[[export]]\nname = 5\npath = \"mem:1M\"\n", &["line 4", "name = 5"]),
        ("[[export]]\nname = \"a\"\n", &["line 1", "path"]),
        ("name = \"a\n", &["line 1"]),
    ];
    for (text, parts) in cases {
        fs::write(&config, text).unwrap();
        refused(&rig, Side::Target, &serve, 8, &[&[path.as_str()], parts].concat());
    }
    let missing = ["serve", "--config", "/nonexistent/tyche.toml"];
    refused(&rig, Side::Target, &missing, 8, &["/nonexistent/tyche.toml"]);
}

#[test]
fn a_disk_in_use_or_missing_is_named() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let export = format!("again={}", rig.path("disk.img").display());
    let link = rig.cable.link(Side::Target);
    let twice = ["serve", "--link", link, "--export", &export, "--name", "second"];
    refused(&rig, Side::Target, &twice, 9, &["disk.img"]);
    let nothing = ["serve", "--link", link, "--export", "a=/nonexistent/disk", "--name", "third"];
    refused(&rig, Side::Target, &nothing, 9, &["/nonexistent/disk"]);
}

#[test]
fn json_is_valid_when_there_is_nothing() {
    let rig = rig!(1500);
    for verb in ["list", "stats"] {
        let value = rig.ask(&[verb]);
        assert_eq!(value["schema"], format!("tyche.{verb}/1"));
        assert_eq!(value["sessions"].as_array().map(Vec::len), Some(0), "{value}");
    }
    let link = rig.cable.link(Side::Host);
    let value = rig.ask(&["discover", "--link", link, "--timeout", "0.2"]);
    println!("{value}");
    assert_eq!(value["schema"], "tyche.discover/1");
}

#[test]
fn json_says_what_became_of_each_line_of_tychetab() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let (tab, link) = (rig.path("tab"), rig.cable.link(Side::Host));
    fs::write(&tab, format!("{DISK} {link} as=fuse\nnothing {link} timeout=5\n")).unwrap();
    let option = format!("--tab={}", tab.display());
    let connect = || {
        let args = ["connect-all", &option, "-o", "json"];
        let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
        assert_eq!(done.status.code(), Some(3), "{}", done.stderr);
        parsed(&done.stdout)
    };
    let value = connect();
    let [connected, failed] = [0, 1].map(|line| &value["exports"][line]);
    assert_eq!(
        (&connected["schema"], &connected["state"]),
        (&json!("tyche.connect/1"), &json!("live"))
    );
    assert_eq!(
        (&failed["schema"], &failed["code"]),
        (&json!("tyche.error/1"), &json!("not_found"))
    );
    assert_eq!(failed["export"], "nothing");
    assert_eq!(connect()["connected_already"], json!([DISK]));
    let ended = rig.ask(&["disconnect", DISK]);
    assert_eq!(ended["sessions"], json!([connected["session"]]), "{ended}");
}
