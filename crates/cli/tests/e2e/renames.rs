//! Exports that get another name, or other properties, while their target runs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::load::Load;
use crate::pools::{
    MAKE, configure, export, files, kill_at, listed, names, pool, refuse, serve, set, starts, write,
};
use crate::refusals::refused;
use crate::rig::{DISK, Rig, Side, Target, rig, wait_until};

/// The export of that name.
fn found(rig: &Rig, name: &str) -> Value {
    let found = listed(rig).into_iter().find(|it| it["export"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", listed(rig)))
}

/// A target with an empty configuration, and a disk in a file that was added.
fn serve_added(rig: &Rig) -> (Target, String) {
    let path = rig.path("target.toml");
    fs::write(&path, "").unwrap();
    let config = path.display().to_string();
    let target = serve(rig, &config);
    rig.file("disk.img", 64 << 20);
    export(rig, &["add", &format!("{DISK}={}", rig.path("disk.img").display())]);
    (target, config)
}

/// Writes the first block of an export in memory and reads it back, past what the host has cached.
fn first_byte(rig: &Rig, name: &str) -> u8 {
    let link = ["--link", rig.cable.link(Side::Host), "--as", "fuse"];
    let session = rig.connect_disk(Side::Host, name, &link);
    let mut byte = [0];
    File::open(&session.device).unwrap().read_exact_at(&mut byte, 0).unwrap();
    session.disconnect();
    byte[0]
}

#[test]
fn an_export_that_is_renamed_stays_the_same_disk() {
    let rig = rig!(1500);
    let (target, config) = serve_added(&rig);
    let host = "7a26e711-2233-4455-a677-8899aabbccdd";
    export(&rig, &["deny", DISK, host]);
    write(&rig, DISK, 7);
    let before = found(&rig, DISK);
    let session = rig.connect_as("fuse", &[]);
    refuse(&rig, &["rename", DISK, "new"], 7, &["is connected by", "by its name"]);
    session.disconnect();
    let renamed = export(&rig, &["rename", DISK, "new"]);
    assert_eq!(renamed["schema"], "tyche.export-changed/1");
    assert_eq!((&renamed["export"], &renamed["changed"]), (&json!("new"), &json!(true)));
    let check = |rig: &Rig| {
        assert_eq!(names(rig), set(&["new"]));
        let now = found(rig, "new");
        assert_eq!((&now["uuid"], &now["denied"]), (&before["uuid"], &json!([host])));
        assert_eq!(first_byte(rig, "new"), 7);
    };
    check(&rig);
    assert_eq!(export(&rig, &["rename", DISK, "new"])["changed"], false, "it is renamed");
    let state = rig.path("state/targets/e2e/exports");
    assert_eq!(files(&state), set(&["new.json"]));
    refused(&rig, Side::Host, &["connect", DISK, "--link", rig.cable.link(Side::Host)], 3, &[DISK]);
    // Hosts that have written are known after a restart as well.
    target.kill();
    let target = serve(&rig, &config);
    check(&rig);
    assert!(!target.log().contains("may be lost"), "{}", target.log());
    // The former name is free, and the record of the other disk does not take its place.
    rig.file("other.img", 1 << 20);
    let other = format!("{DISK}={}", rig.path("other.img").display());
    export(&rig, &["add", &other]);
    assert_ne!(found(&rig, DISK)["uuid"], before["uuid"]);
    assert_eq!(first_byte(&rig, DISK), 0);
    refuse(&rig, &["rename", DISK, "new"], 10, &["`new`, added by command", "is there already"]);
    refuse(&rig, &["rename", "nothing", "else"], 3, &["exports `nothing`"]);
    refuse(&rig, &["rename", DISK, "/x"], 2, &["does not begin with"]);
    assert_eq!(export(&rig, &["rename", DISK, DISK])["changed"], false);
    export(&rig, &["remove", DISK]);
    assert_eq!(export(&rig, &["rename", "new", DISK])["changed"], true, "and back");
    assert_eq!(first_byte(&rig, DISK), 7);
    drop(target);
}

#[test]
fn a_disk_in_memory_keeps_its_content_under_another_name() {
    let rig = rig!(1500);
    let (_target, _) = serve_added(&rig);
    export(&rig, &["add", "memory=mem:1M"]);
    write(&rig, "memory", 3);
    export(&rig, &["rename", "memory", "more"]);
    assert_eq!(first_byte(&rig, "more"), 3);
    let read_only = ["set", "more", "read_only=true"];
    refuse(&rig, &read_only, 2, &["loses its content", "remove it"]);
    assert_eq!(first_byte(&rig, "more"), 3);
}

#[test]
fn exports_of_the_configuration_are_changed_there() {
    let rig = rig!(1500);
    let path = rig.file("own.img", 1 << 20);
    let own = format!("[[export]]\nname = \"own\"\npath = {path:?}\n");
    let config = rig.path("target.toml");
    fs::write(&config, &own).unwrap();
    let target = serve(&rig, config.to_str().unwrap());
    let uuid = found(&rig, "own")["uuid"].as_str().unwrap().to_owned();
    let there = ["target.toml", "give it that name", &uuid, "systemctl reload tyche-target"];
    refuse(&rig, &["rename", "own", "new"], 8, &there);
    refuse(&rig, &["set", "own", "iops=100"], 8, &["target.toml", "change it there"]);
    // Its record stays when it is gone from the file, and no other disk takes it.
    export(&rig, &["add", "memory=mem:1M"]);
    refuse(&rig, &["rename", "memory", "own"], 10, &["line 1", "is there already"]);
    fs::write(&config, "# Nothing.\n").unwrap();
    target.process.signal(Signal::HUP);
    wait_until("it is gone", || names(&rig) == set(&["memory"]));
    refuse(&rig, &["rename", "memory", "own"], 10, &["was another export", "another name"]);
}

#[test]
fn a_file_in_a_pool_has_the_name_of_its_export() {
    let rig = rig!(1500);
    let vols = pool(&rig, "xfs", 1 << 30);
    let target = serve(&rig, &configure(&rig, &vols, ""));
    export(&rig, &MAKE);
    write(&rig, DISK, 1);
    export(&rig, &["snapshot", DISK, "snap"]);
    fs::write(vols.join("theirs"), "theirs").unwrap();
    refuse(&rig, &["rename", DISK, "theirs"], 10, &["theirs is there, and is no export"]);
    assert_eq!(fs::read_to_string(vols.join("theirs")).unwrap(), "theirs");
    assert_eq!(names(&rig), set(&[DISK, "snap"]));
    export(&rig, &["rename", DISK, "a/b"]);
    assert_eq!(files(&vols), set(&["a%2fb", "snap", "theirs"]));
    assert_eq!(found(&rig, "snap")["origin"]["export"], "a/b");
    // The same commands mean the new name.
    let again = export(&rig, &["snapshot", "a/b", "snap"]);
    assert_eq!(again["changed"], false);
    export(&rig, &["clone", "a/b", "copy"]);
    assert_eq!(starts(&vols, &["a%2fb", "snap", "copy"]), [1, 1, 1]);
    export(&rig, &MAKE);
    assert_eq!(starts(&vols, &[DISK, "a%2fb"]), [0, 1]);
    // A file that has another name than its export keeps it.
    let theirs = format!("own={}", vols.join("own.img").display());
    File::create_new(vols.join("own.img")).unwrap().set_len(1 << 20).unwrap();
    export(&rig, &["add", &theirs]);
    export(&rig, &["rename", "own", "mine"]);
    export(&rig, &["remove", "a/b", "--delete"]);
    assert_eq!(files(&vols), set(&[DISK, "copy", "own.img", "snap", "theirs"]));
    drop(target);
}

/// Kills the target at each step, starts it again, and looks whether the export has the one name or
/// the other, with all that is kept of it; the command succeeds then.
#[test]
fn a_target_that_is_killed_has_the_one_name_or_the_other() {
    let rig = rig!(1500);
    let vols = pool(&rig, "ext4", 256 << 20);
    let config = configure(&rig, &vols, "");
    let state = rig.path("state/targets/e2e");
    let run = rig.path("run/state/e2e");
    let host = "7a26e711-2233-4455-a677-8899aabbccdd";
    let new = state.join("exports.json.new");
    let target = serve(&rig, &config);
    export(&rig, &MAKE);
    write(&rig, DISK, 7);
    export(&rig, &["deny", DISK, host]);
    let uuid = found(&rig, DISK)["uuid"].clone();
    target.process.signal(Signal::TERM);
    drop(target);
    let (records, [a, b]) = (state.join("exports"), [DISK, "other"]);
    for (step, (call, from, path, is_kept)) in [
        ("rename", 1, new.clone(), false),
        ("linkat", 1, vols.join(b), false),
        ("fsync", 1, vols.clone(), false),
        ("rename", 2, new.clone(), false),
        // It is kept from then on.
        ("fsync", 2, state.clone(), true),
        ("rename", 1, state.join("access.json.new"), true),
        ("rename", 1, records.join(format!("{a}.json")), true),
        ("fsync", 1, records.clone(), true),
        ("rename", 1, run.join(a), true),
        ("unlink", 1, vols.join(a), true),
        ("fsync", 2, vols.clone(), true),
        ("rename", 3, new, true),
    ]
    .into_iter()
    .enumerate()
    {
        let args = ["rename", a, b];
        println!("step {step}: {call} {from} {}", path.display());
        let about = kill_at(&rig, &config, (call, from, &path), &args);
        let target = serve(&rig, &config);
        let name = if is_kept { b } else { a };
        assert_same(&rig, (&vols, &records), (name, &uuid, host), &about);
        assert!(!target.log().contains("may be lost"), "{about}: {}", target.log());
        assert_eq!(export(&rig, &args)["changed"], !is_kept, "{about}");
        assert_same(&rig, (&vols, &records), (b, &uuid, host), &about);
        assert_eq!(export(&rig, &["rename", b, a])["changed"], true, "{about}");
        target.process.signal(Signal::TERM);
        drop(target);
        let kept = fs::read_to_string(state.join("exports.json")).unwrap();
        assert!(!kept.contains("leftover") && !kept.contains("\"renamed\""), "{about}: {kept}");
    }
}

/// Checks that the disk is there under that name, and nothing else.
fn assert_same(
    rig: &Rig,
    (vols, records): (&Path, &Path),
    (name, uuid, denied): (&str, &Value, &str),
    about: &str,
) {
    assert_eq!((names(rig), files(vols)), (set(&[name]), set(&[name])), "{about}");
    assert_eq!(files(records), set(&[&format!("{name}.json")]), "{about}");
    let now = found(rig, name);
    assert_eq!((&now["uuid"], &now["denied"]), (uuid, &json!([denied])), "{about}");
    assert_eq!(starts(vols, &[name]), [7], "{about}");
}

#[test]
fn limits_and_hosts_of_an_export_change_while_it_is_used() {
    let rig = rig!(1500);
    let (target, config) = serve_added(&rig);
    let session = rig.connect_as("fuse", &[]);
    let load = Load::start(&session.device);
    load.await_progress();
    let args = ["set", DISK, "iops=1000", "bytes_per_second=100M"];
    assert_eq!(export(&rig, &args)["changed"], true);
    assert_eq!(export(&rig, &args)["changed"], false);
    load.await_progress();
    let limits = |rig: &Rig| {
        let now = found(rig, DISK);
        (now["iops"].clone(), now["bytes_per_second"].clone())
    };
    assert_eq!(limits(&rig), (json!(1000), json!(100 << 20)));
    // Only together.
    let wrong = ["set", DISK, "iops=none", "allow=alpha"];
    refuse(&rig, &wrong, 8, &["this target has no key"]);
    assert_eq!(limits(&rig).0, 1000);
    let read_only = ["set", DISK, "read_only=true", "iops=none"];
    refuse(&rig, &read_only, 7, &["is connected by", "`read_only`", "disconnect it there"]);
    target.kill();
    let target = serve(&rig, &config);
    assert_eq!(limits(&rig), (json!(1000), json!(100 << 20)));
    export(&rig, &["set", DISK, "iops=none", "bytes_per_second=none"]);
    assert_eq!(limits(&rig), (Value::Null, Value::Null));
    load.await_progress();
    load.finish();
    let others = format!("hosts={}", "7a26e711-2233-4455-a677-8899aabbccdd");
    assert_eq!(export(&rig, &["set", DISK, &others])["sessions_ended"], 1);
    session.disconnect_by_force();
    let link = rig.cable.link(Side::Host);
    refused(
        &rig,
        Side::Host,
        &["connect", DISK, "--link", link],
        3,
        &["offers nothing to this host"],
    );
    export(&rig, &["set", DISK, "hosts=any"]);
    rig.connect_as("fuse", &[]).disconnect();
    drop(target);
}

#[test]
fn a_disk_that_nobody_has_is_opened_anew_with_other_properties() {
    let rig = rig!(1500);
    let (target, config) = serve_added(&rig);
    write(&rig, DISK, 5);
    let uuid = found(&rig, DISK)["uuid"].clone();
    export(&rig, &["set", DISK, "read_only=true", "block_size=4096", "iops=1000"]);
    let check = |rig: &Rig| {
        let now = found(rig, DISK);
        assert_eq!((&now["read_only"], &now["block_size"]), (&json!(true), &json!(4096)));
        assert_eq!((&now["iops"], &now["uuid"]), (&json!(1000), &uuid));
        assert_eq!(first_byte(rig, DISK), 5);
    };
    check(&rig);
    target.kill();
    let target = serve(&rig, &config);
    check(&rig);
    // What can't be opened so is served as before, when it can.
    let odd = rig.path("disk.img");
    File::options().write(true).open(&odd).unwrap().set_len(0).unwrap();
    let wrong = ["set", DISK, "read_only=false"];
    refuse(&rig, &wrong, 9, &["disk.img"]);
    File::options().write(true).open(&odd).unwrap().set_len(64 << 20).unwrap();
    wait_until("it is there", || found(&rig, DISK)["problem"].is_null());
    assert_eq!(found(&rig, DISK)["read_only"], true);
    export(&rig, &["set", DISK, "read_only=false", "shared=true", "write_back=true"]);
    write(&rig, DISK, 6);
    let now = found(&rig, DISK);
    assert_eq!((&now["shared"], &now["uuid"]), (&json!(true), &uuid));
    refuse(&rig, &["set", DISK, "colour=red"], 2, &["there is no such key; there are iops"]);
    refuse(&rig, &["set", DISK, "size=1G"], 2, &["`tyche export resize`"]);
    refuse(&rig, &["set", DISK, "iops=10", "iops=11"], 2, &["given twice"]);
    assert_eq!(export(&rig, &["set", DISK, "shared=true"])["changed"], false);
    drop(target);
}

/// Hosts of FCoE know a disk by its LUN, and do not notice another name.
#[test]
fn hosts_of_fcoe_go_on_under_another_name() {
    let rig = rig!(2500);
    let path = rig.path("target.toml");
    fs::write(&path, "").unwrap();
    let fcoe = ["--fcoe", rig.cable.link(Side::Target)];
    let target = rig.serve_on(&fcoe, &["--config", path.to_str().unwrap()]);
    rig.file("disk.img", 64 << 20);
    export(&rig, &["add", &format!("{DISK}={}", rig.path("disk.img").display())]);
    let link = rig.cable.link(Side::Host);
    let mut ports = Value::Null;
    wait_until("the target is found", || {
        ports = rig.ask(&["discover", "--fcoe", "--link", link])["ports"].take();
        ports.as_array().is_some_and(|ports| !ports.is_empty())
    });
    let disk = format!("{}:0", ports[0]["wwpn"].as_str().unwrap());
    let session = rig.connect_disk(Side::Host, &disk, &["--fcoe", "--link", link, "--as", "fuse"]);
    let load = Load::start(&session.device);
    load.await_progress();
    export(&rig, &["rename", DISK, "new"]);
    load.await_progress();
    assert_eq!(found(&rig, "new")["lun"], 0);
    refuse(&rig, &["set", "new", "read_only=true"], 7, &["is connected by"]);
    refuse(&rig, &["remove", "new"], 7, &["is connected by"]);
    load.finish();
    session.disconnect();
    assert_eq!(export(&rig, &["remove", "new"])["changed"], true);
    drop(target);
}
