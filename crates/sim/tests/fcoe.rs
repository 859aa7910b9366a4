//! Worlds of Fibre Channel over Ethernet: nothing happens that must never happen, and what is
//! broken on purpose is noticed.

use tyche_sim::{Options, Profile, Report, canaries, hunt, run};

/// Enough that every kind of fault and incident occurs.
const SEEDS: u64 = 200;
/// Each canary is caught by one of so many.
const CANARY_SEEDS: u64 = 2000;

fn run_one(seed: u64) -> Report {
    let options = Options { profile: Profile::Fcoe, ..Options::default() };
    run(seed, options).unwrap_or_else(|found| panic!("{found}"))
}

#[test]
fn nothing_bad_happens_and_everything_bad_was_tried() {
    let reports: Vec<_> = (0..SEEDS).map(run_one).collect();
    let total = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    assert!(total(|report| report.succeeded) > SEEDS * 250);
    assert!(total(|report| report.drops) > SEEDS * 10);
    assert!(total(|report| report.duplicated) > SEEDS * 10);
    assert!(total(|report| report.corrupted) > SEEDS);
    assert!(total(|report| report.late) > SEEDS);
    assert!(total(|report| report.forged) > SEEDS * 10);
    assert!(total(|report| report.cuts) > SEEDS / 2);
    assert!(total(|report| report.target_crashes) > SEEDS / 4);
    assert!(total(|report| report.caches_lost) > SEEDS / 10);
    assert!(total(|report| report.narrowed) > SEEDS / 4);
    assert!(total(|report| report.broken) > SEEDS / 10);
    assert!(total(|report| report.host_crashes) > SEEDS / 4);
    assert!(total(|report| report.forwarder_crashes) > SEEDS / 20);
    assert!(total(|report| report.links_cleared) > SEEDS / 20);
    assert!(total(|report| report.removals) > SEEDS / 2);
}

/// The answer with the generation was taken, another host's flush failed, and only then the disk
/// was ready: the first loss of the session was one of before it.
#[test]
fn a_loss_while_a_disk_is_asked_about_is_none_of_the_session() {
    run_one(3_239_697_182);
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    (0..5).for_each(|seed| assert_eq!(run_one(seed), run_one(seed), "seed {seed}"));
}

#[test]
fn every_canary_is_caught() {
    for name in canaries(Profile::Fcoe) {
        let caught = hunt(name, Profile::Fcoe, 0, CANARY_SEEDS);
        let caught = caught.unwrap_or_else(|| panic!("{name} went unnoticed"));
        println!("{name}: seed {}: {}", caught.seed, caught.violation.what);
    }
}

#[test]
fn a_violation_says_how_to_see_it_again() {
    let caught = hunt("crc", Profile::Fcoe, 0, CANARY_SEEDS).unwrap();
    let text = caught.violation.to_string();
    assert!(text.contains(&format!("tyche-lab sim --seed {} --fcoe", caught.seed)), "{text}");
}
