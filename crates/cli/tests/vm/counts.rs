//! Context switches of a device's requests: none while threads spin, because the thread of a queue
//! serves the queue of the device and that of the session. `cargo xtask counts` has the rest of
//! what threads share.

use crate::attachment::{Attachment, Kernel};
use crate::rig::{MIB, Rig, Session, Shape};

const SIZE: u64 = 128 * MIB;
/// Requests on each of two processors.
const REQUESTS: u32 = 2000;

/// Prints the voluntary context switches of the queues' threads during the requests.
const COUNTED: &str = "\
    switches() {\n\
        sum=0\n\
        for task in /proc/$P/task/*; do\n\
            case $(cat $task/comm) in tyche-session|tyche-queue*) ;; *) continue;; esac\n\
            while read -r name value; do\n\
                [ $name != voluntary_ctxt_switches: ] || sum=$((sum + value))\n\
            done <$task/status\n\
        done\n\
        echo $sum\n\
    }\n\
    load() {\n\
        for cpu in 0 1; do\n\
            taskset -c $cpu dd if=$D of=/dev/null bs=4k count=$N iflag=direct status=none &\n\
        done\n\
        wait\n\
    }\n\
    load\n\
    before=$(switches)\n\
    load\n\
    echo $(($(switches) - before))";

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn requests_of_a_device_switch_no_threads() {
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(Kernel::V6_12));
    let session = Session::connect(&guest, Attachment::Ublk, "--queues=2 --spin=1000000");
    let pid = session.pid;
    let said = session.run(&format!("P={pid}; N={REQUESTS}\n{COUNTED}"));
    let switches: u32 = said.trim().parse().unwrap();
    // The emulated machine stalls now and then for longer than threads spin. Without spinning
    // there are thousands.
    assert!(switches < REQUESTS / 10, "{switches} switches in {} requests", 2 * REQUESTS);
    session.disconnect();
}
