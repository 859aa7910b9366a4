//! A target that is changed while it runs: by its file, which is read again, and by commands for
//! its links.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};
use tyche_testkit::process::finish;

use crate::hung::{HungDisk, serve_nested};
use crate::links::{HOSTS, TARGETS, await_live, connect_evenly, lay_cables, links};
use crate::load::{LOAD_SIZE, Load};
use crate::refusals::{expect, refused};
use crate::rig::{DISK, PATIENCE, Rig, Side, Target, rig, run, wait_until};
use crate::udp::{LINK, addressed};

/// The line of the log for a file that was read again and taken.
const READ: &str = "nothing else has changed that takes a restart";

/// A configuration with these links, the disk of a [`Load`], and further lines.
fn configuration(links: &[&str], more: &str) -> String {
    format!("link = {links:?}\n{more}[[export]]\nname = {DISK:?}\npath = \"sparse:{LOAD_SIZE}\"\n")
}

/// Writes a configuration as it should be: under another name, then renamed. Returns its path.
fn configure(rig: &Rig, text: &str) -> String {
    let (next, path) = (rig.path("target.toml.new"), rig.path("target.toml"));
    fs::write(&next, text).unwrap();
    fs::rename(&next, &path).unwrap();
    path.display().to_string()
}

/// Has the file read again, and waits until the log says that.
fn reload(target: &Target, said: &str) {
    let before = target.log().matches(said).count();
    target.process.signal(Signal::HUP);
    wait_until(said, || target.log().matches(said).count() > before);
}

fn link(rig: &Rig, args: &[&str]) -> Value {
    let changed = rig.ask_at(Side::Target, &[&["link"], args].concat());
    assert_eq!(changed["schema"], "tyche.target-link/1");
    changed
}

/// The names of the target's links, and of those that have a problem.
fn served(rig: &Rig) -> (Vec<String>, Vec<String>) {
    let links = links(rig, Side::Target);
    let name = |link: &Value| link["interface"].as_str().unwrap().to_owned();
    let has_problem = |link: &&Value| !link["problem"].is_null();
    let mut names: Vec<_> = links.iter().map(name).collect();
    names.sort();
    (names, links.iter().filter(has_problem).map(name).collect())
}

/// Bytes that hosts have written.
fn written(rig: &Rig) -> u64 {
    let hosts = rig.ask_at(Side::Target, &["hosts", "--all"]);
    let hosts = hosts["hosts"].as_array().unwrap();
    hosts.iter().map(|host| host["requests"]["written_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn links_of_the_file_come_and_go_under_load_and_a_typo_changes_nothing() {
    let rig = rig!();
    lay_cables(&rig, 3, 1500);
    let config = configure(&rig, &configuration(&TARGETS[..2], ""));
    let target = rig.serve_on(&[], &["--config", &config]);
    let session = connect_evenly(&rig);
    await_live(&rig, &HOSTS[..2]);
    let load = Load::start(&session.device);
    load.await_progress();
    let before = written(&rig);
    configure(&rig, &configuration(&TARGETS[1..3], ""));
    reload(&target, READ);
    target.await_log(&format!("link {} is removed", TARGETS[0]));
    await_live(&rig, &HOSTS[1..3]);
    load.await_progress();
    assert_eq!(served(&rig).0, TARGETS[1..3]);
    assert_eq!(served(&rig).1, [""; 0]);
    assert!(written(&rig) >= before, "what was written over the removed link counts");
    // A typo: the links that there are stay.
    configure(&rig, &configuration(&["tye-x1"], ""));
    reload(&target, READ);
    target.await_log(&format!("link {} is not in the configuration any more", TARGETS[2]));
    load.await_progress();
    await_live(&rig, &HOSTS[1..3]);
    assert_eq!(served(&rig).1, ["tye-x1"], "it is waited for");
    configure(&rig, &configuration(&["udp:1:2:3"], ""));
    reload(&target, "stay as they were");
    configure(&rig, &configuration(&TARGETS[2..3], ""));
    reload(&target, READ);
    target.await_log("link tye-x1 is not waited for any more");
    target.await_log(&format!("link {} is removed", TARGETS[1]));
    await_live(&rig, &HOSTS[2..3]);
    load.await_progress();
    load.finish();
    assert_eq!(served(&rig), (vec![TARGETS[2].to_owned()], Vec::new()));
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
}

#[test]
fn a_half_written_file_is_not_taken() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Target);
    let whole = configuration(&[link], "");
    let config = configure(&rig, &whole);
    let target = rig.serve_on(&[], &["--config", &config]);
    let exports = || {
        let list = rig.ask_at(Side::Target, &["export", "list"]);
        list["targets"][0]["exports"].as_array().map(Vec::len)
    };
    for (text, said) in [
        (&whole[..whole.len() - 1], "does not end with a newline"),
        ("", "is empty, and was not"),
        ("link = [\n", "line 1"),
    ] {
        fs::write(&config, text).unwrap();
        reload(&target, said);
        target.await_log("stay as they were");
        assert_eq!(exports(), Some(1), "{said}");
    }
    fs::write(&config, whole + "[[export]]\nname = \"two\"\npath = \"mem:1M\"\n").unwrap();
    reload(&target, READ);
    assert_eq!(exports(), Some(2));
}

#[test]
fn what_a_reload_would_do_is_said_beforehand() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Target);
    let config = configure(&rig, &configuration(&[link], ""));
    let check = |args: &[&str]| {
        let fixed = ["serve", "--check", "--name", "e2e", "--config", &config];
        let report = rig.ask_at(Side::Target, &[&fixed, args].concat());
        assert_eq!(report["schema"], "tyche.check/1");
        report
    };
    let report = check(&[]);
    assert_eq!((&report["running"], &report["steps"]), (&json!(false), &json!([])));
    let target = rig.serve_on(&[], &["--config", &config]);
    let report = check(&[]);
    assert_eq!((&report["running"], &report["steps"]), (&json!(true), &json!([])));
    let session = rig.connect_as("fuse", &[]);
    let text = configuration(&[link, "tye-x1"], "threads = 2\n").replace(DISK, "other");
    configure(&rig, &text);
    let report = check(&[]);
    let steps: Vec<_> = report["steps"].as_array().unwrap().iter().collect();
    let said = |step: &Value| ["action", "part", "name"].map(|key| step[key].clone());
    assert_eq!(said(steps[0]), ["add", "link", "tye-x1"]);
    assert_eq!(said(steps[1]), ["remove", "export", DISK]);
    assert!(steps[1]["note"].as_str().unwrap().contains("connected by"), "{report}");
    assert_eq!(said(steps[2]), ["add", "export", "other"]);
    assert_eq!(steps.len(), 3);
    let restart = json!([{ "key": "threads", "line": 2, "change": "`threads` has changed" }]);
    assert_eq!(report["restart"], restart);
    assert!(report["remarks"][0].as_str().unwrap().contains("no interface tye-x1"), "{report}");
    let args = ["serve", "--check", "--name", "e2e", "--config", &config];
    let text = run(&mut rig.tyche(Side::Target, &args));
    for line in ["a reload takes these steps:", "  add link tye-x1 (it", "(line 2)"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(served(&rig).0, [link], "nothing has changed");
    reload(&target, "`threads` has changed (line 2): that takes a restart");
    let report = check(&[]);
    assert_eq!(said(&report["steps"][0]), ["remove", "export", DISK], "it is connected");
    assert_eq!(report["steps"].as_array().unwrap().len(), 1);
    session.disconnect();
    rig.ask_at(Side::Target, &["export", "add", "added=mem:1M"]);
    let text = configuration(&[link], "") + "[[export]]\nname = \"added\"\npath = \"mem:2M\"\n";
    configure(&rig, &text);
    let report = check(&[]);
    let (left_out, said) = (report["left_out"][0].as_str().unwrap(), "mem:2M) counts instead");
    assert!(left_out.contains(said), "{report}");
    assert!(!target.log().contains(said), "it was only asked: {}", target.log());
    reload(&target, said);
    for (text, said) in [
        ("threads = 0\n", "line 1: `threads = 0`"),
        ("link = [\"eth0\", \"eth0\"]\n", "name each link once"),
        ("[[export]]\nname = \"a\"\npath = \"mem:x\"\n", "line 1 of"),
        ("silent = true\n", "`silent`"),
        ("threads = 2", "does not end with a newline"),
    ] {
        configure(&rig, text);
        refused(&rig, Side::Target, &args, 8, &[said]);
    }
}

#[test]
fn a_link_that_gets_another_name_is_served_on() {
    let rig = addressed(rig!(1500));
    let named = [LINK, &format!("{LINK}:8650")];
    let config = configure(&rig, &configuration(&[named[0]], ""));
    let target = rig.serve_on(&[], &["--config", &config]);
    let session = rig.connect_over(Side::Host, &["--as", "fuse", "--link", LINK]);
    let load = Load::start(&session.device);
    load.await_progress();
    let steps = || {
        let args = ["serve", "--check", "--config", &config, "--name", "e2e"];
        rig.ask_at(Side::Target, &args[..])["steps"].clone()
    };
    for (before, now) in [(named[0], named[1]), (named[1], named[0])] {
        assert_eq!(steps(), json!([]), "it has come to rest");
        configure(&rig, &configuration(&[now], ""));
        let planned = steps();
        println!("{planned}");
        assert_eq!(planned.as_array().map(Vec::len), Some(2));
        assert!(planned[0]["note"].as_str().unwrap().contains("by another name"), "{planned}");
        reload(&target, READ);
        assert!(target.log().contains(&format!("link {before} is {now} now")), "{}", target.log());
    }
    assert_eq!(steps(), json!([]));
    assert_eq!(served(&rig), (vec![named[1].to_owned()], vec![]));
    load.await_progress();
    load.finish();
    session.disconnect();
}

#[test]
fn links_are_added_to_a_target_and_removed_under_load_and_kept() {
    let rig = rig!();
    lay_cables(&rig, 2, 1500);
    let config = configure(&rig, &configuration(&TARGETS[..1], ""));
    let state = rig.path("state/targets/e2e/links.json");
    let target = rig.serve_on(&[], &["--config", &config]);
    let session = connect_evenly(&rig);
    await_live(&rig, &HOSTS[..1]);
    let load = Load::start(&session.device);
    let added = link(&rig, &["add", "e2e", TARGETS[1]]);
    assert_eq!((&added["changed"], &added["defined_by"]), (&json!(true), &json!("command")));
    assert_eq!(link(&rig, &["add", "e2e", TARGETS[1]])["changed"], false);
    assert_eq!(link(&rig, &["add", "e2e", TARGETS[0]])["changed"], false);
    await_live(&rig, &HOSTS[..2]);
    load.await_progress();
    assert_eq!(fs::read_to_string(&state).unwrap().matches("tye-").count(), 1);
    let before = written(&rig);
    let removed = link(&rig, &["del", "e2e", TARGETS[0]]);
    assert_eq!((&removed["changed"], &removed["defined_by"]), (&json!(true), &json!("file")));
    assert_eq!(link(&rig, &["del", "e2e", TARGETS[0]])["changed"], false);
    assert_eq!(served(&rig), (vec![TARGETS[1].to_owned()], Vec::new()));
    await_live(&rig, &HOSTS[1..2]);
    load.await_progress();
    assert!(written(&rig) >= before, "what was written over the removed link counts");
    let last = ["link", "del", "e2e", TARGETS[1]];
    refused(&rig, Side::Target, &last, 7, &["is the last link", "--force"]);
    // Without any link, requests wait.
    assert_eq!(link(&rig, &["del", "e2e", TARGETS[1], "--force"])["changed"], true);
    assert_eq!(served(&rig).0, [""; 0]);
    assert_eq!(link(&rig, &["add", "e2e", TARGETS[1]])["changed"], true);
    load.await_progress();
    // The file wins.
    reload(&target, READ);
    await_live(&rig, &HOSTS[..2]);
    load.await_progress();
    load.finish();
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
    target.kill();
    let target = rig.serve_on(&[], &["--config", &config]);
    assert_eq!(served(&rig).0, TARGETS[..2], "what was added is there after a restart");
    // What is in the file as well is the file's from now on.
    configure(&rig, &configuration(&TARGETS[..2], ""));
    reload(&target, READ);
    assert_eq!(fs::read_to_string(&state).unwrap().trim(), "[]");
    configure(&rig, &configuration(&TARGETS[..1], ""));
    reload(&target, READ);
    target.await_log(&format!("link {} is removed", TARGETS[1]));
    assert_eq!(served(&rig).0, TARGETS[..1]);
}

/// By a command, and by a file that lacks it.
#[test]
fn the_only_link_of_a_session_is_not_taken_from_it_unawares() {
    let rig = rig!();
    lay_cables(&rig, 2, 1500);
    let config = configure(&rig, &configuration(&TARGETS[..2], ""));
    let target = rig.serve_on(&[], &["--config", &config]);
    let session = rig.connect_over(Side::Host, &["--as", "fuse", "--link", HOSTS[0]]);
    let load = Load::start(&session.device);
    load.await_progress();
    let only = ["link", "del", "e2e", TARGETS[0]];
    refused(
        &rig,
        Side::Target,
        &only,
        7,
        &["is the only link of ", &format!(" ({DISK})"), "tyche link add", "--force"],
    );
    configure(&rig, &configuration(&TARGETS[1..2], ""));
    let plan = || {
        let args = ["serve", "--check", "--config", &config, "--name", "e2e"];
        rig.ask_at(Side::Target, &args)["steps"].clone()
    };
    let planned = plan();
    let note = planned[0]["note"].as_str().unwrap();
    assert!(note.starts_with("the only link of ") && note.contains(DISK), "{planned}");
    reload(&target, READ);
    target.await_log(&format!("link {} is not in the configuration any more", TARGETS[0]));
    target.await_log("without it being the only link of");
    load.await_progress();
    assert_eq!(served(&rig).0, TARGETS[..2]);
    // One that no session has goes at once.
    link(&rig, &["del", "e2e", TARGETS[1], "--timeout", "10"]);
    link(&rig, &["add", "e2e", TARGETS[1]]);
    rig.ask(&["link", "add", DISK, HOSTS[1]]);
    await_live(&rig, &HOSTS[..2]);
    assert_eq!(plan()[0]["note"], Value::Null);
    reload(&target, READ);
    target.await_log(&format!("link {} is removed", TARGETS[0]));
    await_live(&rig, &HOSTS[1..2]);
    load.await_progress();
    // A user may have it so all the same, and the session comes back.
    rig.ask(&["link", "del", DISK, HOSTS[0]]);
    link(&rig, &["add", "e2e", TARGETS[0]]);
    refused(&rig, Side::Target, &["link", "del", "e2e", TARGETS[1]], 7, &["is the only link of"]);
    assert_eq!(link(&rig, &["del", "e2e", TARGETS[1], "--force"])["changed"], true);
    rig.ask(&["link", "add", DISK, HOSTS[0]]);
    load.await_progress();
    load.finish();
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    session.disconnect();
}

#[test]
fn links_that_are_waited_for_are_opened_once_and_can_be_given_up() {
    let rig = rig!();
    lay_cables(&rig, 1, 1500);
    let config = configure(&rig, &configuration(&TARGETS[..3], ""));
    let target = rig.serve_on(&[], &["--config", &config]);
    let waits = link(&rig, &["add", "e2e", TARGETS[1]]);
    assert_eq!(waits["changed"], false);
    assert!(waits["waits_for"].as_str().unwrap().contains("no interface"), "{waits}");
    refused(&rig, Side::Target, &["link", "add", "e2e", "tye-x1"], 3, &["tye-x1"]);
    refused(&rig, Side::Target, &["link", "add", "e2e", "udp:1:2:3"], 2, &["udp:1:2:3"]);
    let last = ["link", "del", "e2e", TARGETS[0]];
    refused(&rig, Side::Target, &last, 7, &["is the last link"]);
    assert_eq!(link(&rig, &["del", "e2e", TARGETS[2]])["changed"], true);
    rig.cable.add(&[(TARGETS[1], HOSTS[1]), (TARGETS[2], HOSTS[2])], 1500);
    target.await_log(&format!("{} is there: it is served", TARGETS[1]));
    let list = finish(&mut rig.tyche(Side::Target, &["list", "--check"]), PATIENCE);
    assert!(list.success(), "{}{}", list.stdout, list.stderr);
    assert_eq!(served(&rig).0, TARGETS[..2]);
    assert_eq!(target.log().matches("it is served").count(), 1);
    let unknown = ["link", "add", "e3e", TARGETS[2]];
    refused(&rig, Side::Target, &unknown, 3, &["nothing here is called `e3e`"]);
}

#[test]
fn a_name_of_a_session_and_a_target_is_refused_until_one_is_meant() {
    let rig = rig!(1500);
    let [here, there] = [Side::Target, Side::Host].map(|side| rig.cable.link(side));
    let export = format!("{DISK}=mem:8M");
    let _target = rig.serve_as(DISK, &["--link", here], &["--export", &export]);
    let session = rig.connect(&[]);
    let udp = "udp:127.0.0.1:47002";
    refused(&rig, Side::Target, &["link", "add", DISK, udp], 2, &["a session and a target"]);
    assert_eq!(link(&rig, &["add", DISK, udp, "--target"])["changed"], true);
    let device = session.device.to_str().unwrap();
    let forced = ["link", "del", device, there, "--force"];
    refused(&rig, Side::Host, &forced, 2, &["for the last link of a target"]);
    assert_eq!(link(&rig, &["del", DISK, udp, "--target"])["changed"], true);
    session.disconnect();
    // All interfaces are served: nothing is to be named.
    let _all = rig.serve_as("all", &[], &["--export", "b=mem:1M"]);
    let all = ["link", "add", "all", udp];
    refused(&rig, Side::Target, &all, 2, &["serves every interface that is up"]);
    assert!(Path::new(&rig.path("state/targets/disk/links.json")).exists());
}

/// A change that waits for a disk does not hold up the next one.
#[test]
fn a_removed_link_whose_disk_hangs_is_named_and_ends_by_itself() {
    let rig = rig!();
    let (_, inner, outer) = serve_nested(&rig, LOAD_SIZE);
    let session = rig.connect_at((Side::Host, "h2"), "fuse", &[]);
    let file = File::options().write(true).open(&session.device).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    let hung = HungDisk::hang(&inner);
    let writing = thread::spawn(move || file.write_all_at(&[2; 4096], 0));
    wait_until("it is with the disk", || rig.stats().0["operations"] != 0);
    link(&rig, &["add", "outer", "udp:127.0.0.1:47003"]);
    let del = ["link", "del", "outer", "t2", "--force", "--timeout", "0.2"];
    let done = finish(&mut rig.tyche(Side::Target, &del), PATIENCE);
    expect(&done, &del, 9, &["takes no more requests", "ends when they are finished"]);
    let outers = || {
        let list = rig.ask_at(Side::Target, &["list"]);
        let targets = list["targets"].as_array().unwrap();
        let outer = targets.iter().find(|it| it["name"] == "outer").unwrap();
        outer["links"].as_array().unwrap().clone()
    };
    let is_ending =
        |link: &Value| link["problem"].as_str().is_some_and(|it| it.contains("removed"));
    assert!(outers().iter().any(is_ending), "{:?}", outers());
    let again = ["link", "add", "outer", "t2"];
    refused(&rig, Side::Target, &again, 9, &["was removed, and has not ended"]);
    drop(hung);
    wait_until("it has ended", || outers().len() == 1);
    link(&rig, &["add", "outer", "t2"]);
    writing.join().unwrap().unwrap();
    session.disconnect();
    drop(outer);
}
