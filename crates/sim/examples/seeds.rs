//! Runs many seeds: `seeds FIRST COUNT [PROFILE]`, or one with all that happens:
//! `seeds SEED [PROFILE]`. The profile is `multi-link` or `fcoe`.

use std::time::Instant;

use tyche_sim::{Options, Profile, Report, run};

fn main() {
    let has = |word: &str| std::env::args().any(|arg| arg == word);
    let profile = if has("fcoe") { Profile::Fcoe } else { Profile::Mixed };
    let profile = if has("multi-link") { Profile::MultiLink } else { profile };
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    match numbers[..] {
        [seed] => {
            let verbose = Some(Box::new(std::io::stdout()) as _);
            match run(seed, Options { profile, verbose, ..Options::default() }) {
                Ok(report) => println!("{report}"),
                Err(violation) => println!("{violation}"),
            }
        }
        [first, count] => many(profile, first, count),
        _ => eprintln!("usage: seeds FIRST COUNT [PROFILE], or seeds SEED [PROFILE]"),
    }
}

fn many(profile: Profile, first: u64, count: u64) {
    let begun = Instant::now();
    let (mut bad, mut total) = (0, Report::default());
    for seed in first..first + count {
        match run(seed, Options { profile, ..Options::default() }) {
            Ok(report) => total += report,
            Err(violation) => {
                bad += 1;
                println!("seed {seed}: {}", violation.what);
            }
        }
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("{bad} of {count} seeds are bad; {rate:.1} seeds/s; {total:?}");
}
