//! Runs many seeds: `seeds FIRST COUNT`, or one with all that happens: `seeds SEED`.

use std::time::Instant;

use tyche_sim::{Options, run};

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    match numbers[..] {
        [seed] => {
            let verbose = Some(Box::new(std::io::stdout()) as _);
            match run(seed, Options { verbose, ..Options::default() }) {
                Ok(report) => println!("{report}"),
                Err(violation) => println!("{violation}"),
            }
        }
        [first, count] => many(first, count),
        _ => eprintln!("usage: seeds FIRST COUNT, or seeds SEED"),
    }
}

fn many(first: u64, count: u64) {
    let begun = Instant::now();
    let mut bad = 0;
    for seed in first..first + count {
        if let Err(violation) = run(seed, Options::default()) {
            bad += 1;
            println!("seed {seed}: {}", violation.what);
        }
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("{bad} of {count} seeds are bad; {rate:.1} seeds/s");
}
