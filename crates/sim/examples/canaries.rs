//! Hunts all canaries: `canaries FIRST COUNT`.

use tyche_sim::{canaries, hunt};

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [first, count] = numbers[..] else { return eprintln!("usage: canaries FIRST COUNT") };
    for name in canaries() {
        match hunt(name, first, count) {
            Some(caught) => println!("{name}: seed {}: {}", caught.seed, caught.violation.what),
            None => println!("{name}: not caught by {count} seeds"),
        }
    }
}
