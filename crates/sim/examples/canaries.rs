//! Hunts all canaries, or those named: `canaries FIRST COUNT [multi-link|fcoe] [NAME..]`.

use tyche_sim::{Profile, canaries, hunt};

fn main() {
    let has = |word: &str| std::env::args().any(|arg| arg == word);
    let profile = if has("fcoe") { Profile::Fcoe } else { Profile::Mixed };
    let profile = if has("multi-link") { Profile::MultiLink } else { profile };
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [first, count] = numbers[..] else {
        return eprintln!("usage: canaries FIRST COUNT [multi-link|fcoe] [NAME..]");
    };
    let all = canaries(profile);
    let any = all.iter().any(|name| has(name));
    for name in all.iter().filter(|name| !any || has(name)) {
        match hunt(name, profile, first, count) {
            Some(caught) => println!("{name}: seed {}: {}", caught.seed, caught.violation.what),
            None => println!("{name}: not caught by {count} seeds"),
        }
    }
}
