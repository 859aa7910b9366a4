//! Many exports that are added, connected and removed while sessions write to disks of their own
//! and verify them: under kills of the target at random moments, and without any, when the target
//! must not grow.
//!
//! The tests of each run are short. Those of a thousand exports are ignored, and are run by
//! `cargo xtask exports`. `TYCHE_SEED` repeats the choices of a run, which prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tyche_testkit::random::Random;

use crate::exports::{configure, listed, serve, table};
use crate::memory::resident;
use crate::rig::{PATIENCE, Rig, Side, Target, finish, parsed, rig, run, wait_until};

/// Size of an export that comes and goes.
const SIZE: u64 = 1 << 20;
/// Bytes that are written to each of them.
const WRITTEN: usize = 64 << 10;
/// Exports that are there at a time, besides those of the sessions.
const THERE_MAX: usize = 24;
/// How many changes without a kill it takes until the list of exports is looked at, on average.
const LISTED_ONE_IN: u64 = 8;
/// Requests of a session in a second: they leave the machine to the exports that come and go.
const RATE: u64 = 100;
/// Bytes of each of these requests.
const REQUEST: u64 = 16 << 10;
/// Time limit for a part of a round of fio, with kills.
const ROUND_LIMIT: Duration = Duration::from_secs(180);
/// The most that a target may grow for each export that was added, connected and removed, in
/// bytes: twice what was seen. A session uses a hundred times as much.
const GROWTH_MAX: u64 = 4 << 10;
/// Growth of a target that is no leak, in bytes: what its threads' allocators keep.
const KEPT_MAX: u64 = 1 << 20;

/// The set of exports after a restart is the one that was answered.
#[test]
fn the_set_of_exports_is_the_one_that_was_answered() {
    let rig = rig!(9000);
    kill_while_exports_change(&rig, 30, 2);
}

#[test]
fn a_target_does_not_grow_with_exports_that_come_and_go() {
    let rig = rig!(9000);
    measure_while_exports_change(&rig, 40, 2);
}

#[test]
#[ignore = "takes a quarter of an hour: cargo xtask exports"]
fn the_set_of_a_thousand_exports_is_the_one_that_was_answered() {
    let rig = rig!(alone, 9000);
    kill_while_exports_change(&rig, 1000, 8);
}

#[test]
#[ignore = "takes a quarter of an hour: cargo xtask exports"]
fn a_target_does_not_grow_with_a_thousand_exports_that_come_and_go() {
    let rig = rig!(alone, 9000);
    measure_while_exports_change(&rig, 1000, 8);
}

/// Adds, connects and removes that many exports, beside so many sessions, while the target is
/// killed and started again. What was answered counts, what was written is there, and nothing is
/// left of what was removed.
fn kill_while_exports_change(rig: &Rig, exports: u64, sessions: usize) {
    let mut churn = Churn::start(rig, sessions);
    churn.kills_one_in = Some(10);
    let verifiers = Verifiers::start(rig, sessions, &mut churn.random);
    let began = Instant::now();
    churn.run(exports, &verifiers);
    let rounds = verifiers.finish();
    println!(
        "RESULT {exports} exports added, connected and removed in {:.0} s, beside {sessions} \
         sessions with {rounds} rounds of fio: {} kills, {} requests without an answer",
        began.elapsed().as_secs_f64(),
        churn.kills,
        churn.unanswered,
    );
    assert!(rounds >= sessions as u64);
    rig.disconnect_all();
    churn.assert_nothing_is_left(sessions);
}

/// Adds, connects and removes that many exports, beside so many sessions: the target has no more
/// memory, files and threads in the end than after a tenth of them.
fn measure_while_exports_change(rig: &Rig, exports: u64, sessions: usize) {
    let mut churn = Churn::start(rig, sessions);
    let verifiers = Verifiers::start(rig, sessions, &mut churn.random);
    let first = exports / 10;
    churn.run(first, &verifiers);
    let before = Used::by(churn.target());
    churn.run(exports, &verifiers);
    // Connections of requests to its control socket end a little after their answers.
    let is_as_before = |now: Used| now.files <= before.files && now.threads <= before.threads;
    wait_until("it has no more files and threads than before", || {
        is_as_before(Used::by(churn.target()))
    });
    let after = Used::by(churn.target());
    let rounds = verifiers.finish();
    let grown = after.memory.saturating_sub(before.memory);
    println!(
        "RESULT a target beside {sessions} sessions with {rounds} rounds of fio: after {first} \
         exports that came and went {before}, after {exports} {after}: {} bytes for each",
        grown / (exports - first),
    );
    assert!(grown <= KEPT_MAX + GROWTH_MAX * (exports - first), "{before}, then {after}");
    rig.disconnect_all();
    churn.assert_nothing_is_left(sessions);
}

/// The name of a session's export.
fn of_session(number: usize) -> String {
    format!("session{number}")
}

/// A target whose exports change.
struct Churn<'a> {
    rig: &'a Rig,
    config: String,
    target: Option<Target>,
    random: Random,
    /// The exports that are there, by what was answered; and whether they have been connected.
    there: BTreeMap<String, bool>,
    added: u64,
    /// How many steps a kill comes in, on average.
    kills_one_in: Option<u64>,
    kills: u64,
    unanswered: u64,
}

impl<'a> Churn<'a> {
    /// Starts a target with an export for each session.
    fn start(rig: &'a Rig, sessions: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let given = std::env::var("TYCHE_SEED").map(|it| it.parse().unwrap());
        let seed = given.unwrap_or(now.as_nanos() as u64);
        println!("to repeat this run: TYCHE_SEED={seed}");
        let tables: String = (0..sessions).map(|it| table(rig, &of_session(it))).collect();
        let config = configure(rig, &tables);
        let target = Some(serve(rig, &config));
        Self {
            rig,
            config,
            target,
            random: Random(seed),
            there: BTreeMap::new(),
            added: 0,
            kills_one_in: None,
            kills: 0,
            unanswered: 0,
        }
    }

    fn target(&self) -> &Target {
        self.target.as_ref().expect("it runs between two steps")
    }

    /// Adds exports until it has added that many, connects each and removes it.
    fn run(&mut self, exports: u64, verifiers: &Verifiers) {
        while self.added < exports || !self.there.is_empty() {
            verifiers.assert_running();
            let room = self.added < exports && self.there.len() < THERE_MAX;
            if room && (self.there.is_empty() || self.random.chance(3)) {
                self.add();
                continue;
            }
            let number = self.random.below(self.there.len() as u64) as usize;
            let (name, connected) = self.there.iter().nth(number).expect("one of them");
            let (name, connected) = (name.clone(), *connected);
            if connected { self.remove(&name) } else { self.connect(&name) }
        }
    }

    fn add(&mut self) {
        let name = format!("e{}", self.added);
        self.added += 1;
        let file = self.rig.file(&format!("{name}.img"), SIZE);
        self.change(&["export", "add", &format!("{name}={}", file.display())], &name, true);
        self.there.insert(name, false);
    }

    fn remove(&mut self, name: &str) {
        self.change(&["export", "remove", name], name, false);
        self.there.remove(name);
        fs::remove_file(self.rig.path(&format!("{name}.img"))).unwrap();
    }

    /// Asks for a change until it is made. A request that is not answered may have had its effect;
    /// one that is answered has it, whatever happens to the target.
    fn change(&mut self, args: &[&str], name: &str, wanted: bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let command = |rig: &Rig| finish(&mut rig.tyche(Side::Target, args), PATIENCE);
            let (done, killed) = self.disturbed(20, command);
            if done.success() && !killed && !self.random.chance(LISTED_ONE_IN) {
                return;
            }
            let names = listed(self.rig).into_iter().map(|it| it.0);
            let now: Vec<_> = names.filter(|it| it.starts_with('e')).collect();
            let is_there = now.iter().any(|it| it == name);
            if done.success() {
                assert_eq!(is_there, wanted, "{args:?}: {}", done.stdout);
            } else {
                // A target that has little time may hear of a disconnect late.
                let is_late = done.stderr.contains("is connected by");
                assert!(killed || is_late, "{args:?}: {}", done.stderr);
                assert!(Instant::now() < deadline, "{args:?}: {}", done.stderr);
                self.unanswered += u64::from(!is_late);
            }
            let mut others: Vec<_> = now.iter().filter(|it| *it != name).collect();
            others.sort();
            let answered: Vec<_> = self.there.keys().filter(|it| *it != name).collect();
            assert_eq!(others, answered, "after {args:?}, killed: {killed}");
            if is_there == wanted {
                return;
            }
        }
    }

    /// Connects an export, writes to it, and disconnects it.
    fn connect(&mut self, name: &str) {
        let bytes = self.random.bytes(WRITTEN);
        self.disturbed(600, |rig| use_once(rig, name, &bytes));
        let mut found = vec![0; WRITTEN];
        let file = File::open(self.rig.path(&format!("{name}.img"))).unwrap();
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == bytes, "{name} does not have what was written");
        *self.there.get_mut(name).expect("it was chosen from these") = true;
    }

    /// Runs `action`, sometimes with a kill of the target after less than so many milliseconds;
    /// says whether there was one.
    fn disturbed<T: Send>(
        &mut self,
        within_ms: u64,
        action: impl FnOnce(&Rig) -> T + Send,
    ) -> (T, bool) {
        let rig = self.rig;
        let random = &mut self.random;
        if !self.kills_one_in.is_some_and(|it| random.chance(it)) {
            return (action(rig), false);
        }
        self.kills += 1;
        let pause = Duration::from_millis(random.below(within_ms));
        thread::scope(|scope| {
            let action = scope.spawn(|| action(rig));
            thread::sleep(pause);
            self.target.take().expect("it runs between two steps").kill();
            self.target = Some(serve(rig, &self.config));
            (action.join().unwrap(), true)
        })
    }

    /// Checks what the target keeps on disk and shows.
    fn assert_nothing_is_left(&self, sessions: usize) {
        let kept = fs::read_dir(self.rig.path("state/targets/e2e/exports")).unwrap();
        let names = kept.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut kept: Vec<_> = names.map(|it| it.trim_end_matches(".json").to_owned()).collect();
        kept.sort();
        let wanted: Vec<_> = (0..sessions).map(of_session).collect();
        assert_eq!(kept, wanted, "records of what is gone");
        assert_eq!(listed(self.rig).len(), sessions);
    }
}

/// Connects an export, writes these bytes to its beginning, reads them again, and disconnects it.
fn use_once(rig: &Rig, name: &str, bytes: &[u8]) {
    let link = rig.cable.link(Side::Host);
    let args = ["connect", name, "--link", link, "--as", "fuse", "-o", "json"];
    let value = parsed(&run(&mut rig.tyche(Side::Host, &args)));
    let device = value["device"].as_str().unwrap();
    let file = File::options().read(true).write(true).open(device).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
    let mut found = vec![0; bytes.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == bytes, "{name}: not what was written");
    drop(file);
    run(&mut rig.tyche(Side::Host, &["disconnect", device]));
}

/// Memory without that of files, open files and threads of a process.
#[derive(Debug)]
struct Used {
    memory: u64,
    files: usize,
    threads: usize,
}

impl Used {
    fn by(target: &Target) -> Self {
        let count =
            |what: &str| fs::read_dir(format!("/proc/{}/{what}", target.pid())).unwrap().count();
        Self { memory: resident(target) as u64, files: count("fd"), threads: count("task") }
    }
}

impl std::fmt::Display for Used {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { memory, files, threads } = self;
        write!(f, "{} KiB, {files} files, {threads} threads", memory >> 10)
    }
}

/// Sessions, each with a thread that runs fio on its device, round after round.
struct Verifiers {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Verifiers {
    /// Connects the sessions, and starts the threads. Rounds are longer where there are more of
    /// them: it takes fio longer to start than to write.
    fn start(rig: &Rig, sessions: usize, random: &mut Random) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let args = ["--link", rig.cable.link(Side::Host), "--as", "loop"];
        let size = sessions as u64 * RATE * REQUEST;
        let start = |number| {
            let session = rig.connect_disk(Side::Host, &of_session(number), &args);
            let (device, random) = (session.device.clone(), Random(random.next()));
            let over = Arc::clone(&over);
            thread::spawn(move || verify(&device, size, random, &over))
        };
        let threads = (0..sessions).map(start).collect();
        Self { over, threads }
    }

    fn assert_running(&self) {
        assert!(!self.threads.iter().any(JoinHandle::is_finished), "fio failed");
    }

    /// Ends the threads; returns the number of their rounds.
    fn finish(self) -> u64 {
        self.over.store(true, Relaxed);
        self.threads.into_iter().map(|it| it.join().unwrap()).sum()
    }
}

/// Runs rounds of fio: every block is written, then read, and read once more by another program.
/// Its content is that of the round and the position.
fn verify(device: &Path, size: u64, mut random: Random, over: &AtomicBool) -> u64 {
    let mut rounds = 0;
    while !over.load(Relaxed) {
        let seed = random.next() >> 1;
        for only in [None, Some("--verify_only=1")] {
            let done = finish(fio(device, size, seed).args(only), ROUND_LIMIT);
            assert!(done.success(), "fio: {}{}", done.stdout, done.stderr);
        }
        rounds += 1;
    }
    rounds
}

/// A round of fio, or a part of it.
fn fio(device: &Path, size: u64, seed: u64) -> Command {
    let mut fio = Command::new("fio");
    fio.args(["--name=verify", "--rw=randwrite", "--direct=1", "--ioengine=libaio", "--iodepth=8"]);
    fio.args([&format!("--size={size}"), &format!("--bs={REQUEST}")]);
    fio.arg(format!("--rate_iops={RATE},{RATE}"));
    fio.args([&format!("--randseed={seed}"), "--verify=pattern", "--verify_fatal=1"]);
    fio.args([&format!("--verify_pattern={seed:#018x}%o"), "--verify_state_save=0", "--minimal"]);
    fio.arg(format!("--filename={}", device.display()));
    fio
}
