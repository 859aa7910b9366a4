//! Exports that come and go while a target runs: by commands, and by its configuration.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::load::Load;
use crate::refusals::{expect, refused};
use crate::rig::{DISK, PATIENCE, Rig, Side, Target, finish, rig, run, wait_until};

const SIZE: u64 = 64 << 20;

/// `tyche export` at the target.
fn export(rig: &Rig, args: &[&str]) -> Value {
    rig.ask_at(Side::Target, &[&["export"], args].concat())
}

/// A file of its own, as an argument of `export add`.
fn disk(rig: &Rig, name: &str) -> String {
    rig.file(&format!("{name}.img"), SIZE);
    format!("{name}={}", rig.path(&format!("{name}.img")).display())
}

/// Writes a configuration with these lines, and returns its path.
pub(crate) fn configure(rig: &Rig, lines: &str) -> String {
    let path = rig.path("target.toml");
    fs::write(&path, lines).unwrap();
    path.display().to_string()
}

/// A table of a configuration.
pub(crate) fn table(rig: &Rig, name: &str) -> String {
    let path = rig.path(&format!("{name}.img"));
    if !path.exists() {
        rig.file(&format!("{name}.img"), SIZE);
    }
    format!("[[export]]\nname = {name:?}\npath = {path:?}\n")
}

pub(crate) fn serve(rig: &Rig, config: &str) -> Target {
    rig.serve(&["--config", config])
}

/// The names of what is exported, with what says so.
pub(crate) fn listed(rig: &Rig) -> Vec<(String, String)> {
    let list = export(rig, &["list"]);
    assert_eq!(list["schema"], "tyche.export-list/1");
    let exports = list["targets"][0]["exports"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    exports.iter().map(|it| (text(&it["export"]), text(&it["defined_by"]))).collect()
}

fn by_command(name: &str) -> (String, String) {
    (name.to_owned(), "command".to_owned())
}

fn by_file(name: &str) -> (String, String) {
    (name.to_owned(), "file".to_owned())
}

#[test]
fn an_export_is_added_used_and_removed_while_its_target_runs() {
    let rig = rig!(1500);
    let config = configure(&rig, "");
    let target = serve(&rig, &config);
    assert_eq!(listed(&rig), []);
    let added = export(&rig, &["add", &disk(&rig, DISK)]);
    assert_eq!(added["schema"], "tyche.export-changed/1");
    assert_eq!((&added["changed"], &added["size"]), (&json!(true), &json!(SIZE)));
    let session = rig.connect_as("fuse", &[]);
    let load = Load::start(&session.device);
    load.await_progress();
    // It is there after its target was killed.
    target.kill();
    let target = serve(&rig, &config);
    load.await_progress();
    load.finish();
    assert_eq!(listed(&rig), [by_command(DISK)]);
    assert_eq!(export(&rig, &["add", &again(&rig)])["changed"], false);
    let other = ["export", "add", &again(&rig), "--read-only"];
    refused(&rig, Side::Target, &other, 10, &["is there already, with other values of: "]);
    let remove = ["export", "remove", DISK];
    refused(&rig, Side::Target, &remove, 7, &["is connected by", "--force"]);
    session.disconnect();
    assert_eq!(export(&rig, &["remove", DISK])["changed"], true);
    refused(&rig, Side::Target, &remove, 3, &["exports `disk`"]);
    target.kill();
    let _target = serve(&rig, &config);
    assert_eq!(listed(&rig), []);
    // Nobody has it open any more.
    export(&rig, &["add", &again(&rig), "--read-only"]);
}

/// The argument that has added the disk.
fn again(rig: &Rig) -> String {
    format!("{DISK}={}", rig.path("disk.img").display())
}

#[test]
fn an_export_is_removed_under_a_load_if_that_is_forced() {
    let rig = rig!(1500);
    let target = serve(&rig, &configure(&rig, ""));
    export(&rig, &["add", &disk(&rig, DISK)]);
    let session = rig.connect_as("fuse", &[]);
    let device = File::options().write(true).open(&session.device).unwrap();
    let writing =
        std::thread::spawn(move || while device.write_all_at(&[7; 4096], 4096).is_ok() {});
    wait_until("it is written", || {
        rig.stats().0["requests"]["writes"].as_u64().is_some_and(|writes| writes > 100)
    });
    let removed = export(&rig, &["remove", DISK, "--force"]);
    assert_eq!((&removed["sessions_ended"], &removed["size"]), (&json!(1), &Value::Null));
    writing.join().unwrap();
    session.disconnect_by_force();
    export(&rig, &["add", &again(&rig)]);
    rig.connect_as("fuse", &[]).disconnect();
    drop(target);
}

#[test]
fn what_cannot_be_exported_is_refused_and_changes_nothing() {
    let rig = rig!(1500);
    let config = configure(&rig, &table(&rig, "a"));
    let _target = serve(&rig, &config);
    let add = |what: &str| ["export".to_owned(), "add".to_owned(), what.to_owned()];
    let a = rig.path("a.img").display().to_string();
    for (what, code, said) in [
        ("b=/nonexistent".to_owned(), 9, "/nonexistent"),
        (format!("b={a}"), 8, "export the same disk"),
        ("a=mem:1M".to_owned(), 10, "other values of: path"),
        ("/b=mem:1M".to_owned(), 2, "does not begin with"),
    ] {
        let args = add(&what);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        refused(&rig, Side::Target, &args, code, &[said]);
    }
    let wrong = ["export", "add", "b=mem:1M", "--allow", "alpha"];
    refused(&rig, Side::Target, &wrong, 8, &["this target has no key"]);
    let unknown = ["export", "add", "b=mem:1M", "--target", "x"];
    refused(&rig, Side::Target, &unknown, 3, &["no target `x`"]);
    let theirs = ["export", "remove", "a"];
    refused(&rig, Side::Target, &theirs, 8, &["target.toml", "remove it there"]);
    assert_eq!(listed(&rig), [by_file("a")]);
}

#[test]
fn the_configuration_is_read_again_whole_and_wins() {
    let rig = rig!(1500);
    let config = configure(&rig, &[table(&rig, "a"), table(&rig, DISK)].concat());
    let target = serve(&rig, &config);
    export(&rig, &["add", &disk(&rig, "c")]);
    let reload = |lines: &[String], said: &str| {
        configure(&rig, &lines.concat());
        let before = target.log().matches(said).count();
        target.process.signal(Signal::HUP);
        wait_until(said, || target.log().matches(said).count() > before);
    };
    let read = "nothing else has changed that takes a restart";
    let [a, c, d] = ["a", "c", "d"].map(|name| table(&rig, name));
    reload(&[a.clone(), d.clone()], read);
    let mut now = listed(&rig);
    now.sort();
    assert_eq!(now, [by_file("a"), by_command("c"), by_file("d")]);
    // One that is connected stays.
    reload(&[a.clone(), table(&rig, DISK)], read);
    let session = rig.connect_as("fuse", &[]);
    reload(&[a.clone(), c.clone()], read);
    assert!(target.log().contains("is served until"), "{}", target.log());
    let mut now = listed(&rig);
    now.sort();
    assert_eq!(now, [by_file("a"), by_file("c"), by_file(DISK)], "c is the file's now");
    session.disconnect();
    reload(&[a.clone(), c.clone()], read);
    let mut now = listed(&rig);
    now.sort();
    assert_eq!(now, [by_file("a"), by_file("c")]);
    // A link is served without a word to the others.
    let udp = format!("link = [{:?}, \"udp:127.0.0.1:47001\"]\n", rig.cable.link(Side::Target));
    reload(&[udp, a.clone(), c.clone()], "udp:127.0.0.1:47001 is served");
    let links = rig.ask(&["stats"])["targets"][0]["links"].take();
    let has = |name: &str| links.as_array().unwrap().iter().any(|it| it["interface"] == name);
    assert!(has("udp:127.0.0.1:47001") && has(rig.cable.link(Side::Target)), "{links}");
    // A mistake changes nothing.
    reload(&[a.clone(), a.clone()], "stay as they were");
    reload(&["[[export]\n".to_owned()], "stay as they were");
    assert_eq!(listed(&rig).len(), 2);
    reload(&[a.replace("\n\n", "\n") + "read_only = true\n", c], "has other properties");
}

#[test]
fn a_target_has_to_be_named_where_there_are_two() {
    let rig = rig!(1500);
    let config = configure(&rig, "");
    let _one =
        rig.serve_as("one", &["--link", rig.cable.link(Side::Target)], &["--config", &config]);
    let _two = rig.serve_as("two", &["--link", "udp:127.0.0.1:0"], &["--config", &config]);
    let add = ["export", "add", "a=mem:1M"];
    expect(&finish(&mut rig.tyche(Side::Target, &add), PATIENCE), &add, 2, &["give --target"]);
    let text = run(&mut rig.tyche(Side::Target, &[&add[..], &["--target", "two"]].concat()));
    assert_eq!(text, "two exports a (1.0 MiB)\n");
    let text = run(&mut rig.tyche(Side::Target, &["export", "list", "--target", "two"]));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = text.lines().map(words).collect();
    assert_eq!(
        lines,
        ["TARGET EXPORT SIZE DISK ALLOWED CONNECTED", "two a 1.0 MiB mem:1M added any"]
    );
}

#[test]
fn what_hosts_have_done_is_counted() {
    let rig = rig!(1500);
    let target = serve(&rig, &configure(&rig, &table(&rig, DISK)));
    let hosts = |args: &[&str]| {
        let mut report = rig.ask_at(Side::Target, &[&["hosts"], args].concat());
        assert_eq!(report["schema"], "tyche.hosts/1");
        report["hosts"].as_array_mut().unwrap().clone()
    };
    assert_eq!(hosts(&[]), [] as [Value; 0]);
    let session = rig.connect_as("fuse", &[]);
    let (file, data) = (File::options().read(true).write(true).open(&session.device), [7; 65536]);
    let file = file.unwrap();
    (0..4).for_each(|n| file.write_all_at(&data, n << 20).unwrap());
    file.sync_all().unwrap();
    drop(file);
    let seen = hosts(&[]);
    let [host] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((&host["id"], &host["export"]), (&session.value["host"], &json!(DISK)));
    assert_eq!((&host["connected"], &host["writer"]), (&json!(true), &json!(true)));
    assert_eq!(host["links"], json!([rig.cable.link(Side::Target)]));
    let requests = &host["requests"];
    assert!(requests["written_bytes"].as_u64().unwrap() >= 4 << 16, "{host}");
    assert!(requests["write_ns"].as_u64() > Some(0) && requests["flushes"].as_u64() > Some(0));
    let report = rig.stats().1;
    assert_eq!(report["exports"][0]["requests"], *requests, "it is the only host");
    session.disconnect();
    assert_eq!(hosts(&[]), [] as [Value; 0]);
    let left = &hosts(&["--all"])[0];
    assert_eq!((&left["connected"], &left["connected_s"]), (&json!(false), &Value::Null));
    assert_eq!(left["requests"]["written_bytes"], requests["written_bytes"]);
    refused(&rig, Side::Target, &["hosts", "nobody"], 3, &["no target `nobody`"]);
    drop(target);
}
