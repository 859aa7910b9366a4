//! Hunts all canaries, or those named: `canaries FIRST COUNT [multi-link] [NAME..]`.

use tyche_sim::{Profile, canaries, hunt};

fn main() {
    let many = std::env::args().any(|arg| arg == "multi-link");
    let profile = if many { Profile::MultiLink } else { Profile::Mixed };
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [first, count] = numbers[..] else {
        return eprintln!("usage: canaries FIRST COUNT [multi-link] [NAME..]");
    };
    let named = |name: &str| std::env::args().any(|arg| arg == name);
    let any = canaries().iter().any(|name| named(name));
    for name in canaries().iter().filter(|name| !any || named(name)) {
        match hunt(name, profile, first, count) {
            Some(caught) => println!("{name}: seed {}: {}", caught.seed, caught.violation.what),
            None => println!("{name}: not caught by {count} seeds"),
        }
    }
}
