use super::*;

const START: Instant = Instant(1_000_000_000_000);
const MS: Duration = Duration::from_millis(1);

/// The first request, if its turn has come.
fn next<T>(line: &mut Line<T>, now: Instant, limiter: &Limiter) -> Option<(T, Duration)> {
    loop {
        match line.step(now, [limiter].into_iter()) {
            Step::Waits => return None,
            Step::Pays => {}
            Step::Passes(request, waited) => return Some((request, waited)),
        }
    }
}

fn limiter(iops: u64, bytes_per_second: u64) -> Limiter {
    let limiter = Limiter::default();
    limiter.set(RateLimit {
        iops: NonZeroU64::new(iops),
        bytes_per_second: NonZeroU64::new(bytes_per_second),
    });
    limiter
}

/// Lets lines run that always have requests of these lengths, one tick of `step` after the other.
/// Returns how many requests and bytes of each were let through.
fn run(limiter: &Limiter, lens: &[u32], (steps, step): (u32, Duration)) -> Vec<(u64, u64)> {
    let mut lines: Vec<Line<u32>> = lens.iter().map(|_| Line::default()).collect();
    let mut passed = vec![(0, 0); lens.len()];
    for at in 0..steps {
        let now = START + step * at;
        loop {
            for (line, &len) in lines.iter_mut().zip(lens).filter(|(line, _)| line.is_empty()) {
                (0..64).for_each(|_| line.push(now, len, len));
            }
            let first = (0..lines.len()).min_by_key(|line| lines[*line].next_at()).expect("a line");
            if lines[first].next_at().expect("it waits") > now {
                break;
            }
            if let Step::Passes(len, _) = lines[first].step(now, [limiter].into_iter()) {
                passed[first].0 += 1;
                passed[first].1 += u64::from(len);
            }
        }
    }
    passed
}

#[test]
fn a_limit_holds_over_time_however_rarely_its_threads_wake() {
    for step in [MS / 100, MS, MS * 20] {
        let steps = (Duration::from_secs(5).as_nanos() / step.as_nanos()) as u32;
        let (requests, _) = run(&limiter(10_000, 0), &[4096], (steps, step))[0];
        // What was saved up before comes first.
        assert!((50_000..=51_100).contains(&requests), "{requests} at {step:?}");
        let (_, bytes) = run(&limiter(0, 200 << 20), &[1 << 20], (steps, step))[0];
        assert!((999 << 20..=1021 << 20).contains(&bytes), "{bytes} at {step:?}");
    }
}

#[test]
fn both_limits_hold() {
    let [(small, _)] = run(&limiter(1000, 1 << 20), &[512], (1000, MS))[..] else {
        panic!("one line")
    };
    assert!((1000..=1101).contains(&small), "{small}");
    let [(_, bytes)] = run(&limiter(1000, 1 << 20), &[64 << 10], (1000, MS))[..] else {
        panic!("one line")
    };
    assert!((1 << 20..=18 << 16).contains(&bytes), "{bytes}");
}

#[test]
fn a_rate_that_no_nanosecond_divides_is_exact() {
    let (requests, _) = run(&limiter(3_000_000, 0), &[512], (1000, MS))[0];
    assert!((3_295_000..=3_305_000).contains(&requests), "{requests}");
}

#[test]
fn requests_pass_at_once_while_the_bucket_has_some() {
    let limiter = limiter(1000, 0);
    let mut line = Line::default();
    (0..200).for_each(|number| line.push(START, number, 4096));
    let pass = |line: &mut Line<i32>, now| {
        std::iter::from_fn(|| next(line, now, &limiter)).collect::<Vec<_>>()
    };
    let at_once = pass(&mut line, START);
    assert!(at_once.iter().map(|it| it.0).eq(0..101), "in order, as many as in 100 ms");
    assert!(at_once.iter().all(|(_, waited)| waited.is_zero()));
    let next_at = line.next_at().unwrap();
    assert_eq!(next_at, START + MS);
    assert!(pass(&mut line, Instant(next_at.0 - 1)).is_empty());
    assert_eq!(pass(&mut line, next_at), [(101, MS)]);
    assert_eq!(pass(&mut line, START + MS * 11).len(), 10, "what it has slept over");
}

#[test]
fn a_request_passes_alone_that_is_larger_than_a_burst() {
    let limiter = limiter(0, 1 << 20);
    let mut line = Line::default();
    line.push(START, (), 4 << 20);
    assert_eq!(next(&mut line, START, &limiter), None);
    let mut now = START;
    while next(&mut line, now, &limiter).is_none() {
        now = line.next_at().unwrap();
    }
    let took = now.since(START).as_millis();
    assert!((3870..=3900).contains(&took), "{took} ms: four seconds but for a burst");
}

/// One line wakes first each time. The other has its turn all the same.
#[test]
fn lines_take_turns_at_a_limit() {
    let [(a, _), (b, _)] = run(&limiter(10_000, 0), &[4096, 4096], (5000, MS / 10))[..] else {
        panic!("two lines")
    };
    assert!(a.abs_diff(b) <= 1, "{a} and {b}");
}

#[test]
fn large_requests_do_not_crowd_out_small_ones() {
    let passed = run(&limiter(0, 100 << 20), &[1 << 20, 4096], (10_000, MS / 10));
    let [(_, large), (_, small)] = passed[..] else { panic!("two lines") };
    assert!(large / small < 5, "{large} and {small} bytes");
}

#[test]
fn another_limit_holds_at_once() {
    let limiter = limiter(1, 0);
    let mut line = Line::default();
    (0..1000).for_each(|number| line.push(START, number, 0));
    let mut passed = |now| std::iter::from_fn(|| next(&mut line, now, &limiter)).count();
    assert_eq!(passed(START), 1);
    limiter.set(RateLimit { iops: NonZeroU64::new(1000), bytes_per_second: None });
    assert_eq!(passed(START), 102, "the one that waited, and a burst");
    limiter.set(limiter.limit());
    assert_eq!(passed(START), 0, "it is the same");
    limiter.set(RateLimit::default());
    assert!(!limiter.is_limited());
    assert_eq!(passed(START), 1000 - 103);
}

#[test]
fn a_request_that_is_removed_leaves_its_place_to_the_next() {
    let limiter = limiter(1000, 0);
    let mut line = Line::default();
    (0..300).for_each(|number| line.push(START, number, 4096));
    let next = |line: &mut Line<i32>, now| next(line, now, &limiter);
    let mut passed = 0;
    while next(&mut line, START).is_some() {
        passed += 1;
    }
    line.retain(|number| *number > 200);
    assert_eq!((passed, line.len()), (101, 99));
    let later = START + MS * 5;
    assert_eq!(next(&mut line, later).map(|it| it.0), Some(201));
    line.retain(|_| false);
    assert_eq!((next(&mut line, later), line.next_at()), (None, None));
}

#[test]
fn the_lower_limit_is_that_of_each_kind() {
    let limit = |iops, bytes| RateLimit {
        iops: NonZeroU64::new(iops),
        bytes_per_second: NonZeroU64::new(bytes),
    };
    assert_eq!(limit(5, 0).min(limit(7, 3)), limit(5, 3));
}
