#[test]
fn hunting() {
    for name in tyche_sim::canaries() {
        let t = std::time::Instant::now();
        match tyche_sim::hunt(name, 0, 300) {
            Some(c) => println!(
                "{name}: seed {} {:?} {}",
                c.seed,
                t.elapsed(),
                c.violation.what.chars().take(200).collect::<String>()
            ),
            None => println!("{name}: NOT CAUGHT {:?}", t.elapsed()),
        }
    }
}
