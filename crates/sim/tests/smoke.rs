use tyche_sim::{Options, run};
#[test]
fn smoke() {
    let n: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    let first: u64 = std::env::var("FIRST").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut bad = 0;
    for seed in first..first + n {
        match run(seed, Options::default()) {
            Ok(r) => {
                if n < 50 {
                    println!("{seed}: {r}")
                }
            }
            Err(v) => {
                bad += 1;
                println!("{seed}: {}", v.what.chars().take(300).collect::<String>());
                if n == 1 {
                    println!("{v}");
                }
            }
        }
    }
    println!("{bad} bad of {n}");
}
#[test]
fn trace() {
    let Some(seed) = std::env::var("TRACE").ok().and_then(|s| s.parse().ok()) else { return };
    let f = std::fs::File::create("/tmp/trace.txt").unwrap();
    let o = Options { verbose: Some(Box::new(std::io::BufWriter::new(f))), ..Options::default() };
    if let Err(v) = run(seed, o) {
        println!("{}", v.what);
    }
}
