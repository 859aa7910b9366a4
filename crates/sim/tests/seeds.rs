//! Seeds: whatever they draw, nothing that must never happen happens; and what is broken on
//! purpose is noticed.

use std::time::Duration;

use tyche_sim::{Options, Profile, Report, canaries, hunt, run};

/// Enough that every kind of fault and incident occurs often.
const SEEDS: u64 = 200;

/// Seeds from a start of its own in each run of the tests: the same ones deceive in the long run.
const RANDOM_SEEDS: u64 = 50;

/// The first of so many seeds on each of two threads.
fn run_all(profile: Profile, first: u64, count: u64) -> Vec<Report> {
    let run_some = |seeds: std::ops::Range<u64>| {
        let options = || Options { profile, ..Options::default() };
        let run = |seed| run(seed, options()).unwrap_or_else(|found| panic!("{found}"));
        seeds.map(run).collect::<Vec<_>>()
    };
    let (begin, end) = std::thread::scope(|scope| {
        let half = first + count / 2;
        let begin = scope.spawn(move || run_some(first..half));
        let end = scope.spawn(move || run_some(half..first + count));
        (begin.join().unwrap(), end.join().unwrap())
    });
    begin.into_iter().chain(end).collect()
}

/// Many of the runs had links over UDP, and everything befell them.
fn expect_udp(reports: &[Report]) {
    let total = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    let with_udp = reports.iter().filter(|report| report.trains > 0).count() as u64;
    println!(
        "{with_udp} with UDP: {} trains, {} torn, {} marks, {} rebinds",
        total(|report| report.trains),
        total(|report| report.torn_trains),
        total(|report| report.marks),
        total(|report| report.rebinds)
    );
    assert!((SEEDS / 5..SEEDS * 3 / 5).contains(&with_udp), "{with_udp} of {SEEDS}");
    assert!(total(|report| report.torn_trains) > SEEDS * 5);
    assert!(total(|report| report.marks) > SEEDS * 50);
    assert!(total(|report| report.rebinds) > SEEDS / 10);
}

#[test]
fn nothing_bad_happens_and_everything_bad_was_tried() {
    let reports = run_all(Profile::Mixed, 0, SEEDS);
    let total = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    assert!(total(|report| report.operations) > SEEDS * 300);
    assert!(total(|report| report.succeeded) > SEEDS * 250);
    assert!(total(|report| report.target_crashes) > SEEDS / 2);
    assert!(total(|report| report.caches_lost) > SEEDS / 10);
    assert!(total(|report| report.losses_told) > SEEDS / 20);
    assert!(total(|report| report.host_crashes) > SEEDS / 2);
    assert!(total(|report| report.daemon_deaths) > SEEDS / 2);
    assert!(total(|report| report.reissued) > SEEDS);
    assert!(total(|report| report.shut_out) > SEEDS / 30);
    assert!(total(|report| report.connections) > SEEDS * 4);
    assert!(total(|report| report.failures) > SEEDS / 10);
    assert!(total(|report| report.corrupted) > SEEDS);
    assert!(total(|report| report.duplicated) > SEEDS);
    assert!(total(|report| report.late) > SEEDS);
    assert!(total(|report| report.disk_errors) > 0);
    assert!(total(|report| report.sync_errors) > SEEDS / 4);
    assert!(total(|report| report.hangs) > 0);
    assert!(total(|report| report.torn) > SEEDS);
    assert!(total(|report| report.rotten) > SEEDS);
    assert!(total(|report| report.broken) > SEEDS * 20);
    assert!(total(|report| report.repeated) > SEEDS * 50);
    assert!(total(|report| report.forged) > SEEDS * 20);
    assert!(total(|report| report.held) > SEEDS);
    assert!(total(|report| report.renewals) > SEEDS / 10);
    assert!(total(|report| report.evictions) > SEEDS / 10);
    assert!(total(|report| report.removals) > SEEDS / 2);
    assert!(total(|report| report.key_changes) > SEEDS / 10);
    assert!(total(|report| report.limit_changes) > SEEDS / 10);
    expect_udp(&reports);
    for report in &reports {
        assert!(report.retransmissions <= report.frames, "{report}");
        assert!(report.succeeded + report.failed + report.vanished >= report.operations);
    }
}

#[test]
fn nothing_bad_happens_on_many_links_either() {
    let reports = run_all(Profile::MultiLink, 0, SEEDS);
    let total = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    assert!(total(|report| report.operations) > SEEDS * 300);
    assert!(total(|report| report.succeeded) > SEEDS * 250);
    assert!(total(|report| report.channels) > SEEDS * 10);
    assert!(total(|report| report.cuts) > SEEDS * 10);
    assert!(total(|report| report.one_ways) > SEEDS * 3);
    assert!(total(|report| report.relinks) > SEEDS / 4);
    assert!(total(|report| report.unlinks) > SEEDS / 4);
    assert!(total(|report| report.blackouts) > SEEDS / 4);
    assert!(total(|report| report.fences) > SEEDS * 2);
    assert!(total(|report| report.fence_cuts) > SEEDS / 4);
    assert!(total(|report| report.freezes) > SEEDS);
    assert!(total(|report| report.unanswered) > SEEDS / 4);
    assert!(total(|report| report.moves) > SEEDS / 2);
    assert!(total(|report| report.late) > SEEDS * 10);
    expect_udp(&reports);
    assert!(reports.iter().any(|report| report.slowest > Duration::from_secs(3)), "blackouts");
}

#[test]
fn nothing_bad_happens_from_a_random_start() {
    let given = std::env::var("TYCHE_SIM_FIRST").ok().and_then(|text| text.parse().ok());
    let first = given.unwrap_or_else(|| {
        let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
        since.as_nanos() as u64 >> 10 & 0xffff_ffff
    });
    println!("seeds from {first} on; to run them again: TYCHE_SIM_FIRST={first}");
    for profile in [Profile::Mixed, Profile::MultiLink] {
        run_all(profile, first, RANDOM_SEEDS);
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..20 {
        for profile in [Profile::Mixed, Profile::MultiLink] {
            let options = || Options { profile, ..Options::default() };
            let report = run(seed, options()).unwrap();
            assert_eq!(report, run(seed, options()).unwrap(), "seed {seed}");
        }
    }
    let hash = |seed| run(seed, Options::default()).unwrap().trace_hash;
    assert_ne!(hash(1), hash(2));
}

fn catch_every_canary(profile: Profile) {
    for name in canaries(profile) {
        let caught = hunt(name, profile, 0, 1000);
        let caught = caught.unwrap_or_else(|| panic!("{name} went unnoticed"));
        println!("{name}: seed {}: {}", caught.seed, caught.violation.what);
    }
}

#[test]
fn every_canary_is_caught() {
    catch_every_canary(Profile::Mixed);
}

#[test]
fn every_canary_is_caught_on_many_links() {
    catch_every_canary(Profile::MultiLink);
}

#[test]
fn a_violation_says_how_to_see_it_again() {
    let caught = hunt("flush", Profile::MultiLink, 0, 50).unwrap();
    let text = caught.violation.to_string();
    assert!(text.contains(&format!("tyche-lab sim --seed {} --multi-link", caught.seed)), "{text}");
    assert!(text.contains("VIOLATION") && text.lines().count() > 20, "{text}");
}
