//! PostgreSQL on an export, whose target is killed and whose network is cut under load: no
//! transaction is lost that a client was told of, and nothing is damaged. The same holds for a
//! snapshot of the export, which is what a loss of power would leave.
//!
//! Clients note in the guest's memory what was acknowledged to them (`postgres.sh`).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tyche_testkit::random::Random;

use crate::attachment::Attachment;
use crate::rig::{DISK, Guest, Job, MIB, Rig, Session, Target, run};

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
    let Some((pool, _target, guest)) = start() else { return };
    let session = make_database(&guest, &BARE);
    let load = start_load(&session);
    // Its files have their places.
    session.await_requests(2 * REQUESTS);
    pool.export(&["snapshot", DISK, "older"]);
    session.await_requests(REQUESTS);
    let moment = now(&guest);
    pool.export(&["snapshot", DISK, "newer"]);
    end_load(&session, load);
    script(&session, "stop; umount /mnt");
    session.disconnect();
    pool.export(&["clone", "newer", "copy"]);
    let forgotten = forget(&pool.file("older"), &pool.file("copy"));
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
    let Some((pool, mut target, guest)) = start() else { return };
    let session = make_database(&guest, file_system);
    let load = start_load(&session);
    for _ in 0..ROUNDS {
        target.kill();
        target = pool.serve();
        session.await_requests(REQUESTS);
        pool.rig.cut(0);
        thread::sleep(CUT);
        pool.rig.mend(0);
        session.await_requests(REQUESTS);
    }
    let moment = now(&guest);
    println!("RESULT {}", pool.export(&["snapshot", DISK, "snapshot"]).trim());
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
    pool.export(&["clone", "snapshot", "copy"]);
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

/// A pool on a file system of its own, which is unmounted in the end.
struct Pool {
    rig: Rig,
}

impl Pool {
    fn new() -> Self {
        let pool = Self { rig: Rig::new() };
        let (image, point) = (pool.rig.path("pool.img"), pool.rig.path("pool"));
        File::create_new(&image).unwrap().set_len(8 * SIZE).unwrap();
        fs::create_dir(&point).unwrap();
        run(Command::new("mkfs.xfs").arg("-q").arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point));
        let config = format!("[[pool]]\nname = \"fast\"\npath = \"dir:{}\"\n", point.display());
        fs::write(pool.rig.path("target.toml"), config).unwrap();
        pool
    }

    fn serve(&self) -> Target {
        let config = self.rig.path("target.toml");
        self.rig.serve_exports(&[], &["--config", config.to_str().unwrap()])
    }

    /// `tyche export` at the target.
    fn export(&self, args: &[&str]) -> String {
        self.rig.tyche(&[&["export"], args].concat())
    }

    /// The file of an export.
    fn file(&self, export: &str) -> PathBuf {
        self.rig.path("pool").join(export)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        let unmounted = unmount.arg(self.rig.path("pool")).stderr(Stdio::inherit()).status();
        println!("the pool is unmounted: {unmounted:?}");
    }
}

/// A target with a pool, and a guest that has PostgreSQL, unless that was not unpacked.
fn start() -> Option<(Pool, Target, Guest)> {
    let archive = THIS.kernel().image().with_file_name("postgres.tar");
    if !archive.exists() {
        println!("SKIPPED: PostgreSQL is not unpacked, which `cargo xtask vm postgres` does");
        return None;
    }
    let pool = Pool::new();
    let target = pool.serve();
    pool.export(&["add", "--pool", "fast", "--size", &SIZE.to_string(), DISK]);
    let guest = pool.rig.boot(0, &THIS.into());
    guest.put(&archive, "postgres.tar");
    fs::write(guest.shared("postgres.sh"), include_str!("postgres.sh")).unwrap();
    Some((pool, target, guest))
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

/// Has the newer disk forget half of the pages that were written since the older one; returns how
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
