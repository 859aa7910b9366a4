//! Runs many seeds: `seeds FIRST COUNT [multi-link]`, or one with all that happens:
//! `seeds SEED [multi-link]`.

use std::time::Instant;

use tyche_sim::{Options, Profile, Report, run};

fn main() {
    let multi_link = std::env::args().any(|arg| arg == "multi-link");
    let profile = if multi_link { Profile::MultiLink } else { Profile::Mixed };
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
        _ => eprintln!("usage: seeds FIRST COUNT [multi-link], or seeds SEED [multi-link]"),
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
