//! PostgreSQL on an export, whose target is killed and whose network is cut under load: no
//! transaction is lost that a client was told of, and nothing is damaged. The same holds for a copy
//! of the export as a loss of power would leave it.
//!
//! Clients note in the guest's memory what was acknowledged to them (`postgres.sh`).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tyche_testkit::random::Random;

use crate::attachment::Attachment;
use crate::rig::{Guest, Job, MIB, Rig, Session, Target, run};

/// The kind of device.
const THIS: Attachment = Attachment::Ublk;
/// Large enough for XFS.
const SIZE: u64 = 512 * MIB;
/// Time limit for a step.
const LIMIT: Duration = Duration::from_secs(400);
/// How often the target is killed, and the network cut.
const ROUNDS: u32 = 3;
/// The network is cut for so long: longer than until the session notices.
const CUT: Duration = Duration::from_secs(4);
/// Requests between two events: dozens of transactions.
const REQUESTS: u32 = 200;
/// The unit in which the canary's disk forgets.
const PAGE: usize = 4096;

/// A file system: how it is made, and how it is checked.
struct FileSystem {
    make: &'static str,
    check: &'static str,
}

const EXT4: FileSystem = FileSystem { make: "mkfs.ext4 -q $D", check: "e2fsck -f -n $D" };
const BARE: FileSystem =
    FileSystem { make: "mkfs.ext4 -q -O ^has_journal $D", check: "e2fsck -f -n $D" };
const XFS: FileSystem = FileSystem { make: "mkfs.xfs -q $D", check: "xfs_repair -n $D" };

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn ext4() {
    survive(&EXT4);
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn xfs() {
    survive(&XFS);
}

/// A disk that has acknowledged flushes and forgotten half of what was flushed is found out. The
/// file system has no journal, so that it is the database that is held against its clients.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn canary() {
    let Some((rig, target, guest)) = start() else { return };
    let session = make_database(&guest, &BARE);
    let load = start_load(&session);
    // Its files have their places.
    session.await_requests(2 * REQUESTS);
    let older = snapshot(&rig, &target, "older");
    session.await_requests(REQUESTS);
    let (moment, newer) = (now(&guest), snapshot(&rig, &target, "newer"));
    end_load(&session, load);
    script(&session, "stop; umount /mnt");
    session.disconnect();
    drop(target);
    let forgotten = forget(&older, &newer);
    let _target = serve_copy(&rig, &newer);
    let session = Session::connect_to(&guest, THIS, "copy", "");
    let job = begin(&session, &format!("mount $D /mnt; check_database {moment}"));
    let done = job.finish(LIMIT);
    let log = guest.run("tail -n 5 /run/postgres.log || true");
    assert_ne!(done.code, 0, "nothing is found with {forgotten} pages forgotten: {}", done.output);
    println!("RESULT {forgotten} pages forgotten: {}", summary(&(done.output + &log)));
    script(&session, "pg pg_ctl stop --pgdata=$DATA --mode=immediate || true; umount /mnt || true");
    session.disconnect();
}

/// Runs the whole course on a file system.
fn survive(file_system: &FileSystem) {
    let began = Instant::now();
    let Some((rig, mut target, guest)) = start() else { return };
    let session = make_database(&guest, file_system);
    let load = start_load(&session);
    for _ in 0..ROUNDS {
        target.kill();
        target = rig.serve(&[]);
        session.await_requests(REQUESTS);
        rig.cut(0);
        thread::sleep(CUT);
        rig.mend(0);
        session.await_requests(REQUESTS);
    }
    let (moment, copy) = (now(&guest), snapshot(&rig, &target, "copy"));
    session.await_requests(REQUESTS);
    end_load(&session, load);
    let check = file_system.check;
    let said = script(
        &session,
        &format!(
            "stop; umount /mnt; quietly {check}\n\
             echo 3 >/proc/sys/vm/drop_caches; mount $D /mnt\n\
             check_database $(date +%s%6N); umount /mnt; quietly {check}"
        ),
    );
    println!("RESULT {ROUNDS} kills, {ROUNDS} cuts: {}", summary(&said));
    session.disconnect();
    drop(target);
    let _target = serve_copy(&rig, &copy);
    let session = Session::connect_to(&guest, THIS, "copy", "");
    let said = script(
        &session,
        &format!(
            "rm /run/postgres.log; mount $D /mnt\n\
             check_database {moment}; grep -q 'redo starts' /run/postgres.log\n\
             umount /mnt; quietly {check}"
        ),
    );
    println!("RESULT restored from a snapshot: {}", summary(&said));
    session.disconnect();
    println!("RESULT {} s", began.elapsed().as_secs());
}

/// A target and a guest that has PostgreSQL, unless that was not unpacked.
fn start() -> Option<(Rig, Target, Guest)> {
    let archive = THIS.kernel().image().with_file_name("postgres.tar");
    if !archive.exists() {
        println!("SKIPPED: PostgreSQL is not unpacked, which `cargo xtask vm postgres` does");
        return None;
    }
    let (rig, target, guest) = Rig::start(SIZE, THIS);
    guest.put(&archive, "postgres.tar");
    fs::write(guest.shared("postgres.sh"), include_str!("postgres.sh")).unwrap();
    Some((rig, target, guest))
}

/// Starts a script that knows the functions of `postgres.sh`, with the device as `$D`.
fn begin<'a>(session: &Session<'a>, text: &str) -> Job<'a> {
    session.start(&format!(". /share/postgres.sh\n{text}"))
}

/// Runs such a script, which must succeed.
fn script(session: &Session<'_>, text: &str) -> String {
    begin(session, text).succeed(LIMIT)
}

/// Connects the disk, and makes a file system and a database on it.
fn make_database<'a>(guest: &'a Guest, file_system: &FileSystem) -> Session<'a> {
    let session = Session::connect(guest, THIS, "--keep-alive-tmo 1");
    let make = file_system.make;
    script(&session, &format!("install_postgres; {make}; mount $D /mnt; make_database"));
    session
}

/// Starts transactions, and waits until they are under way.
fn start_load<'a>(session: &Session<'a>) -> Job<'a> {
    let load = begin(session, "load");
    session.await_requests(REQUESTS);
    load
}

/// Ends the transactions, none of which may have failed.
fn end_load(session: &Session<'_>, load: Job<'_>) {
    session.guest.run("touch /run/end");
    println!("{}", load.succeed(LIMIT).trim());
}

/// The guest's time in microseconds, by the clock of the clients.
fn now(guest: &Guest) -> String {
    guest.run("date +%s%6N").trim().to_owned()
}

/// Copies the export at a moment: a disk as a loss of power would leave it.
fn snapshot(rig: &Rig, target: &Target, name: &str) -> PathBuf {
    let copy = rig.path(name).with_extension("img");
    target.while_stopped(|| {
        let mut command = Command::new("cp");
        command.args(["--reflink=auto", "--sparse=always"]).arg(rig.disk()).arg(&copy);
        run(&mut command);
    });
    copy
}

/// Serves a copy as another export, of a target of its own.
fn serve_copy(rig: &Rig, copy: &Path) -> Target {
    rig.serve_as("copies", None, format!("copy={}", copy.display()))
}

/// Has the newer copy forget half of the pages that were written since the older one; returns how
/// many.
fn forget(older: &Path, newer: &Path) -> u64 {
    let older = File::open(older).unwrap();
    let newer = File::options().read(true).write(true).open(newer).unwrap();
    let (mut random, mut forgotten) = (Random(1), 0);
    let (mut before, mut after) = (vec![0; 256 * PAGE], vec![0; 256 * PAGE]);
    for at in (0..SIZE).step_by(before.len()) {
        older.read_exact_at(&mut before, at).unwrap();
        newer.read_exact_at(&mut after, at).unwrap();
        for (number, (old, new)) in (0..).zip(before.chunks(PAGE).zip(after.chunks(PAGE))) {
            if old != new && random.chance(2) {
                newer.write_all_at(old, at + number * PAGE as u64).unwrap();
                forgotten += 1;
            }
        }
    }
    forgotten
}

/// Lines as one.
fn summary(said: &str) -> String {
    said.trim().replace('\n', ", ")
}
