//! Pools: disks that are made, cloned and deleted by command while the target runs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::refusals::refused;
use crate::rig::{DISK, PATIENCE, Rig, Running, Side, Target, finish, rig, run, wait_until};

/// Bytes of a block of the tests.
const BLOCK: usize = 4096;
/// Bytes of a disk whose blocks are numbered.
const SIZE: u64 = 128 << 20;

/// The disks of the pool `fast`, on a file system of that kind of its own.
pub(crate) fn pool(rig: &Rig, kind: &str, size: u64) -> PathBuf {
    let (image, point) = (rig.file("pool.img", size), rig.path("pool"));
    fs::create_dir(&point).unwrap();
    run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image));
    run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point));
    let vols = point.join("vols");
    fs::create_dir(&vols).unwrap();
    vols
}

/// Writes a configuration with the pool and these lines; returns its path.
pub(crate) fn configure(rig: &Rig, vols: &Path, lines: &str) -> String {
    let path = rig.path("target.toml");
    let pool = format!("[[pool]]\nname = \"fast\"\npath = \"dir:{}\"\n", vols.display());
    fs::write(&path, pool + lines).unwrap();
    path.display().to_string()
}

pub(crate) fn serve(rig: &Rig, config: &str) -> Target {
    rig.serve(&["--config", config])
}

/// `tyche export` at the target.
pub(crate) fn export(rig: &Rig, args: &[&str]) -> Value {
    rig.ask_at(Side::Target, &[&["export"], args].concat())
}

pub(crate) fn refuse(rig: &Rig, args: &[&str], code: i32, said: &[&str]) {
    refused(rig, Side::Target, &[&["export"], args].concat(), code, said);
}

/// The first target's exports, by name.
pub(crate) fn listed(rig: &Rig) -> Vec<Value> {
    export(rig, &["list"])["targets"][0]["exports"].as_array().unwrap().clone()
}

pub(crate) fn names(rig: &Rig) -> BTreeSet<String> {
    listed(rig).iter().map(|it| it["export"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn files(vols: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(vols).unwrap();
    files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}

pub(crate) fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Writes of numbered blocks to a disk, several at a time, until there are as many as it has.
#[derive(Default)]
struct Numbered {
    state: Mutex<Writes>,
    over: AtomicBool,
}

#[derive(Default)]
struct Writes {
    /// By number: how many from the first on had completed when it began.
    before: Vec<usize>,
    done: BTreeSet<usize>,
    /// The number from the first on that have completed.
    complete: usize,
}

impl Numbered {
    fn state(&self) -> MutexGuard<'_, Writes> {
        self.state.lock().unwrap()
    }

    /// Writes one block after the other.
    fn write(&self, device: &File) {
        while !self.over.load(SeqCst) {
            let number = {
                let mut state = self.state();
                let complete = state.complete;
                state.before.push(complete);
                state.before.len() - 1
            };
            if number >= SIZE as usize / BLOCK {
                return;
            }
            device.write_all_at(&block(number), (number * BLOCK) as u64).unwrap();
            let mut state = self.state();
            state.done.insert(number);
            while let complete = state.complete
                && state.done.remove(&complete)
            {
                state.complete += 1;
            }
        }
    }
}

/// A block with its number everywhere.
fn block(number: usize) -> Vec<u8> {
    (number as u64 + 1).to_le_bytes().repeat(BLOCK / 8)
}

/// The numbers of the blocks of a file, which are whole.
fn numbers(file: &Path) -> BTreeSet<usize> {
    let data = fs::read(file).unwrap();
    assert_eq!(data.len() as u64, SIZE);
    let blocks = data.chunks(BLOCK).enumerate();
    let written = blocks.filter(|(_, data)| *data != [0; BLOCK]);
    let number = |(number, data): (usize, &[u8])| {
        assert!(*data == block(number), "block {number} is torn");
        number
    };
    written.map(number).collect()
}

/// Takes snapshots while blocks are written, and checks that each has what had completed before the
/// command, nothing that has begun since, and no write without those that had completed before it.
fn take_snapshots(rig: &Rig, vols: &Path, (prefix, depth): (&str, usize)) -> f64 {
    let session = rig.connect_disk(
        Side::Host,
        prefix,
        &["--link", rig.cable.link(Side::Host), "--as", "fuse"],
    );
    let device = File::options().write(true).open(&session.device).unwrap();
    let (numbered, mut longest, mut under_way) = (Numbered::default(), 0.0_f64, 0);
    thread::scope(|scope| {
        for _ in 0..depth {
            scope.spawn(|| numbered.write(&device));
        }
        for round in 0..10 {
            let least = numbered.state().complete + 20;
            wait_until("blocks are written", || {
                let state = numbered.state();
                state.complete >= least || state.before.len() > SIZE as usize / BLOCK
            });
            let snapshot = format!("{prefix}-{round}");
            let complete = numbered.state().complete;
            let taken = export(rig, &["snapshot", prefix, &snapshot]);
            let begun = numbered.state().before.clone();
            assert_eq!(taken["schema"], "tyche.export-cloned/1");
            longest = longest.max(taken["pause_s"].as_f64().unwrap());
            let found = numbers(&vols.join(&snapshot));
            let missing = (0..).find(|number| !found.contains(number)).unwrap();
            assert!(missing >= complete, "{snapshot}: completed, and missing: {missing}");
            for number in &found {
                let before = begun.get(*number).unwrap_or_else(|| {
                    panic!("{snapshot}: block {number} of {} was written later", begun.len())
                });
                assert!(missing >= *before, "{snapshot}: {missing} is missing, and not {number}");
            }
            under_way += usize::from(begun.len() > found.len());
        }
        numbered.over.store(true, SeqCst);
    });
    drop(device);
    session.disconnect();
    println!("{prefix}: {under_way} of 10 snapshots under load, the longest pause {longest} s");
    longest
}

/// Snapshots of disks with and without a write cache, with blocks of both sizes: smaller ones than
/// those of the file system go through the page cache once blocks are shared.
fn snapshots_are_of_one_moment(kind: &str) {
    let rig = rig!(9000);
    let vols = pool(&rig, kind, 2 << 30);
    let target = serve(&rig, &configure(&rig, &vols, ""));
    let size = SIZE.to_string();
    for (name, more, depth) in [
        ("a", &["--block-size", "4096"][..], 1),
        ("b", &["--block-size", "4096"], 8),
        ("c", &["--write-back", "--block-size", "4096"], 8),
        ("d", &["--block-size", "512"], 4),
    ] {
        export(&rig, &[&["add", name, "--pool", "fast", "--size", &size], more].concat());
        take_snapshots(&rig, &vols, (name, depth));
        // What has blocks in common is not the same.
        let own = numbers(&vols.join(name));
        assert!(own.len() > numbers(&vols.join(format!("{name}-0"))).len());
    }
    drop(target);
}

#[test]
fn snapshots_are_of_one_moment_on_xfs() {
    snapshots_are_of_one_moment("xfs");
}

#[test]
fn snapshots_are_of_one_moment_on_btrfs() {
    snapshots_are_of_one_moment("btrfs");
}

/// Writes the first block of an export.
pub(crate) fn write(rig: &Rig, name: &str, byte: u8) {
    let link = ["--link", rig.cable.link(Side::Host), "--as", "fuse"];
    let session = rig.connect_disk(Side::Host, name, &link);
    let device = File::options().write(true).open(&session.device).unwrap();
    device.write_all_at(&[byte; BLOCK], 0).unwrap();
    drop(device);
    session.disconnect();
}

/// The first bytes of files.
pub(crate) fn starts(vols: &Path, names: &[&str]) -> Vec<u8> {
    names.iter().map(|name| fs::read(vols.join(name)).unwrap()[0]).collect()
}

/// The command that makes [`DISK`] in the pool.
pub(crate) const MAKE: [&str; 6] = ["add", DISK, "--pool", "fast", "--size", "64M"];

#[test]
fn disks_are_made_where_nothing_else_is() {
    let rig = rig!(1500);
    let vols = pool(&rig, "ext4", 16 << 20);
    let _target = serve(&rig, &configure(&rig, &vols, ""));
    let added = export(&rig, &MAKE);
    assert_eq!((&added["changed"], &added["size"]), (&json!(true), &json!(64 << 20)));
    assert_eq!(export(&rig, &MAKE)["changed"], false);
    let larger = ["add", DISK, "--pool", "fast", "--size", "65M"];
    refuse(&rig, &larger, 10, &["is there already, with 64.0 MiB", "tyche export resize"]);
    refuse(&rig, &[&MAKE[..], &["--read-only"]].concat(), 10, &["with other values of: read_only"]);
    refuse(&rig, &["add", "x", "--pool", "slow", "--size", "1M"], 3, &["`slow` (fast)"]);
    refuse(&rig, &["add", "x", "--pool", "fast", "--size", "1000"], 2, &["a multiple of 512"]);
    refuse(&rig, &["add", "/x", "--pool", "fast", "--size", "1M"], 2, &["does not begin with"]);
    refuse(&rig, &["add", "x"], 2, &["write NAME=PATH", "or give --pool and --size"]);
    fs::write(vols.join("theirs"), "theirs").unwrap();
    refuse(&rig, &["add", "theirs", "--pool", "fast", "--size", "1M"], 10, &["is no export"]);
    assert_eq!(fs::read_to_string(vols.join("theirs")).unwrap(), "theirs");
    assert_eq!((names(&rig), files(&vols)), (set(&[DISK]), set(&[DISK, "theirs"])));
    rig.file("outside.img", 1 << 20);
    let outside = format!("outside={}", rig.path("outside.img").display());
    export(&rig, &["add", &outside]);
    refuse(&rig, &["remove", "outside", "--delete"], 2, &["is in no pool"]);
    refuse(&rig, &["snapshot", "outside", "x"], 9, &["is in no pool", "lvcreate"]);
    assert!(rig.path("outside.img").exists());
    // The same name again is another disk, and a file that stays is not made again.
    write(&rig, DISK, 1);
    export(&rig, &["remove", DISK, "--delete"]);
    export(&rig, &MAKE);
    assert_eq!(starts(&vols, &[DISK]), [0]);
    write(&rig, DISK, 2);
    export(&rig, &["remove", DISK]);
    refuse(&rig, &MAKE, 10, &["disk", "is no export"]);
    let path = vols.join(DISK);
    export(&rig, &["add", &format!("{DISK}={}", path.display())]);
    assert_eq!(starts(&vols, &[DISK]), [2]);
    let again = format!("again={}", path.display());
    refuse(&rig, &["add", &again], 8, &["export the same disk"]);
}

#[test]
fn disks_are_cloned_and_deleted() {
    let rig = rig!(1500);
    let vols = pool(&rig, "xfs", 1 << 30);
    let own = format!("[[export]]\nname = \"own\"\npath = {:?}\n", vols.join("own.img"));
    File::create_new(vols.join("own.img")).unwrap().set_len(1 << 20).unwrap();
    let config = configure(&rig, &vols, &own);
    let target = serve(&rig, &config);
    export(&rig, &MAKE);
    write(&rig, DISK, 1);
    let taken = export(&rig, &["snapshot", DISK, "snap"]);
    assert_eq!(taken["warnings"], json!([]), "there is room for both");
    assert_eq!((&taken["changed"], &taken["read_only"]), (&json!(true), &json!(true)));
    assert_eq!(taken["origin"]["export"], DISK);
    let again = export(&rig, &["snapshot", DISK, "snap"]);
    assert_eq!((&again["changed"], &again["pause_s"]), (&json!(false), &Value::Null));
    assert_eq!(again["origin"], taken["origin"], "it is the same");
    refuse(&rig, &["clone", DISK, "snap"], 10, &["`snap`", "is none of that disk"]);
    fs::write(vols.join("theirs"), "theirs").unwrap();
    refuse(&rig, &["snapshot", DISK, "theirs"], 10, &["is no export"]);
    write(&rig, DISK, 2);
    assert_eq!(export(&rig, &["clone", "snap", "copy"])["read_only"], false);
    write(&rig, "copy", 3);
    assert_eq!(starts(&vols, &[DISK, "snap", "copy"]), [2, 1, 3]);
    // One of the configuration's own, whose file is there, too.
    export(&rig, &["snapshot", "own", "of-own"]);
    assert_tree(&rig);
    // All is there after a restart, and files stay unless they are to be deleted.
    target.kill();
    let _target = serve(&rig, &config);
    assert_eq!(names(&rig), set(&["own", "of-own", DISK, "snap", "copy"]));
    let report = export(&rig, &["list"]);
    let pool = &report["targets"][0]["pools"][0];
    assert_eq!(pool["provisioned"], json!((3 * 64 + 2) << 20));
    assert!(pool["used"].as_u64().unwrap() < pool["size"].as_u64().unwrap(), "{pool}");
    let disk = listed(&rig).into_iter().find(|it| it["export"] == DISK).unwrap();
    assert_eq!(disk["pool"], "fast");
    assert!((BLOCK as u64..1 << 20).contains(&disk["allocated"].as_u64().unwrap()), "{disk}");
    export(&rig, &["remove", DISK, "--delete"]);
    export(&rig, &["remove", "copy"]);
    refuse(&rig, &["remove", "own", "--delete"], 8, &["remove it there"]);
    assert_eq!(files(&vols), set(&["own.img", "of-own", "theirs", "snap", "copy"]));
    assert_eq!(starts(&vols, &["snap", "copy"]), [1, 3], "they do not depend on the other");
}

/// Checks how `export list --tree` shows exports and their clones.
fn assert_tree(rig: &Rig) {
    let text = run(&mut rig.tyche(Side::Target, &["export", "list", "--tree"]));
    let shown = |line: &str| {
        let rest = line.strip_prefix("e2e     ")?;
        let name = rest.trim_start();
        Some((rest.len() - name.len(), name.split(' ').next()?.to_owned()))
    };
    let tree: Vec<_> = text.lines().filter_map(shown).collect();
    for part in [&[(0, "own"), (2, "of-own")][..], &[(0, DISK), (2, "snap"), (4, "copy")]] {
        let part: Vec<_> = part.iter().map(|(depth, name)| (*depth, (*name).to_owned())).collect();
        assert!(tree.windows(part.len()).any(|it| *it == part), "{part:?} in {text}");
    }
    assert!(text.contains("snapshot of disk, ") && text.contains("clone of snap, "), "{text}");
}

#[test]
fn a_full_pool_fails_writes_and_makes_no_clones_without_reflinks() {
    let rig = rig!(1500);
    let vols = pool(&rig, "ext4", 16 << 20);
    let other = "[[pool]]\nname = \"other\"\npath = \"dir:/nonexistent\"\n";
    let config = configure(&rig, &vols, other);
    let _target = serve(&rig, &config);
    let check = ["serve", "--name", "e2e", "--check", "--config", &config];
    let text = run(&mut rig.tyche(Side::Target, &check));
    assert!(text.contains("pool other: there is no directory /nonexistent now"), "{text}");
    let made = ["add", "x", "--pool", "other", "--size", "1M"];
    refuse(&rig, &made, 9, &["/nonexistent: there is no such directory: make it, or mount it"]);
    // More is promised than there is: that is said, and done.
    let warns = |args: &[&str], said: &str| {
        let args = [&["export"], args].concat();
        let done = finish(&mut rig.tyche(Side::Target, &args), PATIENCE);
        assert!(done.success(), "{args:?}: {}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        let parts = ["pool fast has 1", &format!("its exports have {said} together")];
        assert!(parts.iter().all(|part| done.stderr.contains(part)), "{}", done.stderr);
    };
    warns(&["add", DISK, "--pool", "fast", "--size", "64M"], "64.0 MiB");
    warns(&["resize", DISK, "1G"], "1.0 GiB");
    let again = export(&rig, &["add", DISK, "--pool", "fast", "--size", "1G"]);
    assert_eq!((&again["changed"], &again["warnings"]), (&json!(false), &json!([])));
    refuse(&rig, &["snapshot", DISK, "x"], 9, &["makes no clones", "XFS with reflinks", "btrfs"]);
    assert_eq!(files(&vols), set(&[DISK]));
    let session = rig.connect_as("fuse", &[]);
    let device = File::options().write(true).open(&session.device).unwrap();
    let data = vec![7; 1 << 20];
    let failed = (0..32).find_map(|mib| device.write_all_at(&data, mib << 20).err()).unwrap();
    assert_eq!(failed.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{failed}");
    drop(device);
    let text = run(&mut rig.tyche(Side::Target, &["list"]));
    assert!(text.contains("full: writes of hosts fail when it is full"), "{text}");
    session.disconnect();
    // Room comes back with the file.
    export(&rig, &["remove", DISK, "--delete"]);
    wait_until("there is room", || {
        let list = export(&rig, &["list"]);
        let pool = &list["targets"][0]["pools"][0];
        pool["used"].as_u64().unwrap() * 2 < pool["size"].as_u64().unwrap()
    });
}

/// Serves until it is killed at that system call for that path, from that number on in a thread.
fn serve_until(rig: &Rig, config: &str, (call, from, path): (&str, u32, &Path)) -> Running {
    let inject = format!("inject={call}:signal=KILL:when={from}+");
    let (trace, link) = (format!("trace={call}"), rig.cable.link(Side::Target));
    let log = rig.path("strace.log");
    let args = [
        "-f",
        "-o",
        log.to_str().unwrap(),
        "-P",
        path.to_str().unwrap(),
        "-e",
        &trace,
        "-e",
        &inject,
        env!("CARGO_BIN_EXE_tyche"),
        "serve",
        "--name",
        "e2e",
        "--link",
        link,
        "--config",
        config,
    ];
    let mut command = rig.at(Side::Target, Path::new("strace"), &args);
    command.stdout(Stdio::piped()).stderr(File::create(rig.path("target.log")).unwrap());
    let mut running = Running::start(&mut command);
    assert!(running.line().starts_with("tyche: serving "));
    running
}

/// Has a target be killed at that call of a command, which gets no answer then. Returns this in
/// words.
pub(crate) fn kill_at(rig: &Rig, config: &str, step: (&str, u32, &Path), args: &[&str]) -> String {
    let about = format!("{args:?} killed at {} {}", step.0, step.1);
    let mut running = serve_until(rig, config, step);
    let command = [&["export"], args].concat();
    let done = finish(&mut rig.tyche(Side::Target, &command), PATIENCE);
    assert!(!done.success(), "{about}: {}", done.stdout);
    wait_until(&about, || !running.is_running());
    about
}

/// Kills the target at each step of each command, starts it again, and looks whether what it serves
/// is what was answered, or all of it; the command succeeds then.
#[test]
fn a_target_that_is_killed_has_made_all_or_nothing() {
    let rig = rig!(1500);
    let vols = pool(&rig, "xfs", 1 << 30);
    let config = configure(&rig, &vols, "");
    let state = rig.path("state/targets/e2e");
    let (new, kept) = (state.join("exports.json.new"), state.join("exports.json"));
    let target = serve(&rig, &config);
    export(&rig, &["add", DISK, "--pool", "fast", "--size", "16M"]);
    target.process.signal(Signal::TERM);
    drop(target);
    // Each replacement of the state: the file is synced, renamed, and the directory synced.
    let making = |file: &str| {
        let file = vols.join(file);
        [
            ("rename", 1, new.clone(), false),
            ("linkat", 1, file.clone(), false),
            ("fsync", 1, vols.clone(), false),
            ("rename", 2, new.clone(), false),
            // It is kept from then on.
            ("fsync", 2, state.clone(), true),
        ]
    };
    let add: &[&str] = &["add", "new", "--pool", "fast", "--size", "16M"];
    let snapshot: &[&str] = &["snapshot", DISK, "new"];
    let clone: &[&str] = &["clone", DISK, "new"];
    let remove: &[&str] = &["remove", "new", "--delete"];
    for (args, (call, from, path, is_kept)) in
        [add, snapshot, clone].into_iter().flat_map(|args| making("new").map(|step| (args, step)))
    {
        let about = kill_at(&rig, &config, (call, from, &path), args);
        let _target = serve(&rig, &config);
        let wanted = if is_kept { set(&[DISK, "new"]) } else { set(&[DISK]) };
        assert_eq!((names(&rig), files(&vols)), (wanted.clone(), wanted), "{about}");
        assert_eq!(export(&rig, args)["changed"], !is_kept, "{about}");
        assert_eq!(names(&rig), set(&[DISK, "new"]), "{about}");
        export(&rig, remove);
        assert_eq!(files(&vols), set(&[DISK]), "{about}");
        assert_eq!(fs::read_to_string(&kept).unwrap().matches("leftover").count(), 0, "{about}");
    }
    for (call, from, path, is_there) in [
        ("rename", 1, new, true),
        ("fsync", 1, state, false),
        ("unlink", 1, vols.join("new"), false),
        ("fsync", 1, vols.clone(), false),
    ] {
        let target = serve(&rig, &config);
        export(&rig, snapshot);
        drop(target);
        let about = kill_at(&rig, &config, (call, from, &path), remove);
        let _target = serve(&rig, &config);
        let wanted = if is_there { set(&[DISK, "new"]) } else { set(&[DISK]) };
        assert_eq!((names(&rig), files(&vols)), (wanted.clone(), wanted), "{about}");
        if is_there {
            export(&rig, remove);
        }
    }
}
