//! The state that a target keeps, and the errors of hosts if it or the disk has changed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};
use rustix::process::Signal;
use serde_json::Value;

use crate::keys::Keys;
use crate::refusals::refused;
use crate::rig::{DISK, PATIENCE, Rig, Session, Side, finish, rig, run, wait_until};

const SIZE: u64 = 16 << 20;
/// A host that is not this machine.
const OTHER_HOST: &str = "11111111-2222-4333-8444-555555555555";

fn write(session: &Session<'_>, offset: u64, byte: u8) {
    let file = File::options().write(true).open(&session.device).unwrap();
    file.write_all_at(&[byte; 4096], offset).unwrap();
}

fn flush(session: &Session<'_>) -> std::io::Result<()> {
    File::options().write(true).open(&session.device).unwrap().sync_all()
}

/// The state of the only session in `list`.
fn state(rig: &Rig) -> Value {
    rig.ask(&["list"])["sessions"][0]["state"].take()
}

#[test]
fn memory_under_a_lasting_uuid_is_not_taken_for_the_disk_that_it_was() {
    let rig = rig!(1500);
    let config = rig.path("target.toml");
    let text =
        format!("[[export]]\nname = \"{DISK}\"\npath = \"mem:16M\"\nuuid = \"{OTHER_HOST}\"\n");
    fs::write(&config, text).unwrap();
    let serve = ["--config", config.to_str().unwrap()];
    let target = rig.serve(&serve);
    let session = rig.connect_as("fuse", &[]);
    // All of it was flushed: no lost cache would be told of.
    write(&session, 0, 1);
    flush(&session).unwrap();
    target.kill();
    let _target = rig.serve(&serve);
    wait_until("the session has failed", || state(&rig) == "failed");
    let error = flush(&session).unwrap_err();
    println!("flush: {error}; {}", rig.ask(&["list"])["sessions"][0]["problem"]);
    session.disconnect_by_force();
}

#[test]
fn who_wrote_last_is_known_though_the_state_was_put_back() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let stale = rig.connect_as("fuse", &[]);
    write(&stale, 0, 1);
    let records = rig.path("state/targets/e2e/exports");
    let saved = rig.path("saved");
    run(Command::new("cp").arg("-a").arg(&records).arg(&saved));
    stale.signal(Signal::STOP);
    target.kill();

    let target = rig.serve_again();
    let other = rig.connect_as("fuse", &["--host-id", OTHER_HOST]);
    write(&other, 0, 2);
    target.kill();
    fs::remove_dir_all(&records).unwrap();
    fs::rename(&saved, &records).unwrap();

    let target = rig.serve_again();
    target.await_log("is a copy");
    stale.signal(Signal::CONT);
    wait_until("the stale session is refused", || {
        let list = rig.ask(&["list"]);
        let sessions = list["sessions"].as_array().unwrap();
        sessions.iter().any(|it| it["pid"] == stale.pid() && it["state"] == "failed")
    });
    let mut block = [0; 4096];
    File::open(rig.path("disk.img")).unwrap().read_exact_at(&mut block, 0).unwrap();
    assert_eq!(block, [2; 4096]);
    stale.disconnect_by_force();
    other.disconnect_by_force();
}

#[test]
fn a_file_that_was_replaced_is_a_question() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let session = rig.connect_as("fuse", &[]);
    let uuid = || rig.ask(&["list"])["sessions"][0]["disk"]["uuid"].take();
    let before = uuid();
    assert!(before.is_string());
    write(&session, 0, 1);
    target.kill();
    let (disk, copy) = (rig.path("disk.img"), rig.path("copy.img"));
    fs::copy(&disk, &copy).unwrap();
    fs::rename(&copy, &disk).unwrap();
    let (export, link) = (rig.export(), rig.cable.link(Side::Target));
    let serve = ["serve", "--name", "e2e", "--link", link, "--export", &export];
    let accept = format!("--accept-changed-disk {DISK}");
    refused(&rig, Side::Target, &serve, 8, &["disk.img", "inode", &accept]);
    let unknown = [&serve[..], &["--accept-changed-disk", "nothing"]].concat();
    refused(&rig, Side::Target, &unknown, 2, &["nothing"]);

    let target = rig.serve(&["--export", &export, "--accept-changed-disk", DISK]);
    wait_until("the device of the other disk has failed", || state(&rig) == "failed");
    session.disconnect_by_force();
    let session = rig.connect_as("fuse", &[]);
    assert_eq!(uuid(), before, "it is the export that it was");
    session.disconnect();
    target.kill();
    rig.serve(&["--export", &export]).kill();
}

/// Makes a directory unwritable in one of several ways; returns the remedy's words.
fn obstruct(rig: &Rig, way: &str) -> &'static str {
    let dir = rig.path("state");
    fs::create_dir_all(&dir).unwrap();
    match way {
        "full" => {
            run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=16k", "none"]).arg(&dir));
            // Fills the file system to the last page.
            while File::create(dir.join("fill"))
                .and_then(|file| file.write_all_at(&[1; 4096], 0))
                .is_ok_and(|()| fs::rename(dir.join("fill"), filled(&dir)).is_ok())
            {}
            "make room in"
        }
        "read-only" => {
            run(Command::new("mount").args(["-t", "tmpfs", "-o", "ro", "none"]).arg(&dir));
            "writable"
        }
        _ => {
            fs::remove_dir_all(&dir).unwrap();
            fs::write(&dir, "").unwrap();
            "Not a directory"
        }
    }
}

fn filled(dir: &std::path::Path) -> std::path::PathBuf {
    let count = fs::read_dir(dir).unwrap().count();
    dir.join(format!("filled{count}"))
}

fn readers_get_in(rig: &Rig) {
    let session = rig.connect_as("fuse", &["--read-only"]);
    let mut block = [1; 4096];
    File::open(&session.device).unwrap().read_exact_at(&mut block, 0).unwrap();
    assert_eq!(block, [0; 4096]);
    session.disconnect();
}

#[test]
fn state_that_can_t_be_written_is_in_nobody_s_way_who_reads() {
    for way in ["full", "read-only", "gone"] {
        let rig = rig!(1500);
        obstruct(&rig, way);
        let target = rig.serve_file(SIZE);
        readers_get_in(&rig);
        println!("{way}: {}", target.log());
        target.await_log("no host may write");
    }
}

#[test]
fn state_that_can_t_be_written_refuses_writers_with_the_remedy() {
    for way in ["full", "read-only", "gone"] {
        let rig = rig!(1500);
        let remedy = obstruct(&rig, way);
        let _target = rig.serve_file(SIZE);
        let link = rig.cable.link(Side::Host);
        let connect = ["connect", DISK, "--link", link, "--as", "fuse"];
        let words = "the target cannot keep on its disk who writes, and so lets nobody write";
        refused(&rig, Side::Host, &connect, 7, &[words, remedy]);
        let message = finish(&mut rig.tyche(Side::Host, &connect), PATIENCE).stderr;
        assert_eq!(message.matches("who writes").count(), 1, "it is said once: {message}");
        readers_get_in(&rig);
    }
}

/// Tells the programs of a side that their machine was put back to an earlier state, as the
/// kernel's driver does: an administrator of a network namespace may send uevents in it.
fn put_back(rig: &Rig, side: Side) {
    let event =
        b"change@/devices/x\0ACTION=change\0DEVPATH=/devices/x\0SUBSYSTEM=x\0NEW_VMGENID=1\0";
    let mut message = Vec::new();
    let len = u32::try_from(16 + event.len()).unwrap();
    for field in [len, 0x10 | 1 << 16, 1, 0] {
        message.extend_from_slice(&field.to_ne_bytes());
    }
    message.extend_from_slice(event);
    rig.cable.end(side).on_thread(|| {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(KOBJECT_UEVENT)).unwrap();
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&socket, &message, SendFlags::empty(), &kernel).unwrap();
    });
}

/// The keys of its channels may be in use elsewhere: it makes others.
#[test]
fn a_host_that_is_put_back_to_an_earlier_state_goes_on_with_other_keys() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    rig.file("disk.img", SIZE);
    let _target = keys.serve(&rig, &["--export", &rig.export()]);
    let session = rig.connect_as("fuse", &keys.connect());
    write(&session, 0, 1);
    put_back(&rig, Side::Host);
    let said = "this machine was restored to an earlier state";
    wait_until("it has learned of it", || rig.logs().matches(said).count() >= 2);
    write(&session, 4096, 2);
    flush(&session).unwrap();
    session.disconnect();
}

#[test]
fn a_machine_that_is_put_back_to_an_earlier_state_tells_its_hosts() {
    let rig = rig!(1500);
    rig.file("disk.img", SIZE);
    let export = rig.export();
    let target = rig.serve(&["--write-back", "--export", &export]);
    let session = rig.connect_as("fuse", &[]);
    write(&session, 0, 1);
    flush(&session).unwrap();
    let record = rig.path("state/targets/e2e/exports/disk.json");
    let before = fs::read_to_string(&record).unwrap();
    put_back(&rig, Side::Target);
    wait_until("it is on the disk", || fs::read_to_string(&record).unwrap() != before);
    println!("{}", target.log());
    // The device fails, for no flush could report that flushed writes are gone.
    let file = File::options().write(true).open(&session.device).unwrap();
    let written = file.write_all_at(&[2; 4096], 4096);
    written.and_then(|()| file.sync_all()).unwrap_err();
    wait_until("the session has failed", || state(&rig) == "failed");
    session.disconnect_by_force();
}
