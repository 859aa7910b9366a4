//! Idle daemons use no CPU time.

use std::thread;
use std::time::Duration;

use crate::rig::rig;

/// Length of the observation.
const TIME: Duration = Duration::from_secs(10);

#[test]
fn idle_daemons_use_no_cpu() {
    let rig = rig!(9000);
    let target = rig.serve_file(1 << 30);
    let session = rig.connect(&[]);
    let daemons = [("host", session.pid()), ("target", target.pid())];
    let before = daemons.map(|(_, pid)| cpu_time(pid));
    // The test observes the passing of time: there is no event to wait for.
    thread::sleep(TIME);
    for ((name, pid), before) in daemons.into_iter().zip(before) {
        let used = cpu_time(pid) - before;
        let percent = 100.0 * used.as_secs_f64() / TIME.as_secs_f64();
        println!("{name}: {percent:.1} % CPU over {TIME:?}");
        assert!(percent < 1.0, "{name} uses {percent:.1} % CPU");
    }
    session.disconnect();
}

/// CPU time that a process has used.
fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}
