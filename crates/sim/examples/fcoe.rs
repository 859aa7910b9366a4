//! Seeds of worlds of Fibre Channel over Ethernet, from the first to the second argument; a third
//! shows all that happens, or is the name of a canary.

use tyche_sim::{Options, Profile, Report, canaries, hunt, run};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|it| it.parse().ok());
    let (first, end) = (number(0).unwrap_or(0), number(1).unwrap_or(100));
    let third = arguments.get(2).map(String::as_str);
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(name) = third.filter(|it| *it != "-v") {
        for canary in canaries(Profile::Fcoe).iter().filter(|it| name == "all" || **it == name) {
            match hunt(canary, Profile::Fcoe, first, end - first) {
                Some(caught) => println!("{canary}: {} {}", caught.seed, caught.violation.what),
                None => println!("{canary}: NOT CAUGHT"),
            }
        }
        return;
    }
    let (mut total, mut bad) = (Report::default(), 0);
    for seed in first..end {
        let verbose = third.map(|_| Box::new(std::io::stdout()) as Box<_>);
        match run(seed, Options { profile: Profile::Fcoe, verbose, ..Options::default() }) {
            Ok(report) => total += report,
            Err(violation) => {
                bad += 1;
                println!("seed {seed} at {:.3} s: {}", violation.at.0 as f64 / 1e9, violation.what);
            }
        }
    }
    println!("{bad} bad; {total}");
}
