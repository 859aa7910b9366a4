//! Locks, context switches and time slices for the requests of a device: none, because the thread
//! of a queue serves the queue of the device and that of the session, and shares nothing. `cargo
//! xtask counts` has the same counts for the library and for a target, instruction by instruction.
//!
//! Locks are counted by probes of the guest's kernel, one behind each instruction of the program
//! that takes a lock. Threads cross, and cache lines move between them, only if a second thread
//! runs: so its time slices are counted.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::attachment::{Attachment, Kernel};
use crate::rig::{Guest, MIB, Rig, Session};

const SIZE: u64 = 128 * MIB;
/// Requests on each of two processors.
const REQUESTS: u32 = 2000;

/// Prints the locks taken by the daemon `$P`, the voluntary context switches of its queues' threads
/// and the time slices of its other threads, while two programs read `$N` blocks each.
const COUNTED: &str = "\
    cd /sys/kernel/tracing\n\
    counts() {\n\
        locks=0; switches=0; slices=0\n\
        while read -r _ _ hits _; do locks=$((locks + hits)); done <uprobe_profile\n\
        for task in /proc/$P/task/*; do\n\
            case $(cat $task/comm) in\n\
            tyche-session|tyche-queue*)\n\
                while read -r name value; do\n\
                    [ $name != voluntary_ctxt_switches: ] || switches=$((switches + value))\n\
                done <$task/status;;\n\
            *)\n\
                read -r _ _ count <$task/schedstat; slices=$((slices + count));;\n\
            esac\n\
        done\n\
        echo $locks $switches $slices\n\
    }\n\
    load() {\n\
        for cpu in 0 1; do\n\
            taskset -c $cpu dd if=$D of=/dev/null bs=4k count=$N iflag=direct status=none &\n\
        done\n\
        wait\n\
    }\n\
    load\n\
    counts\n\
    load\n\
    counts";

/// Places the probes of `/share/locks`, and checks that they count: a report takes locks.
const PROBED: &str = "\
    mount -t tracefs tracefs /sys/kernel/tracing\n\
    cd /sys/kernel/tracing\n\
    cat /share/locks >uprobe_events\n\
    echo 1 >events/locks/enable\n\
    tyche stats >/dev/null\n\
    while read -r _ _ hits _; do [ $hits = 0 ] || exit 0; done <uprobe_profile; exit 1";

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn requests_share_nothing() {
    let (rig, _target, guest) = Rig::start(SIZE, Kernel::V6_12);
    let probes = rig.path("locks");
    fs::write(&probes, probes_of_locks(&rig.program())).unwrap();
    guest.put(&probes, "locks");
    for queues in [1, 2] {
        check(&guest, queues);
    }
}

fn check(guest: &Guest, queues: u32) {
    let args = format!("--queues={queues} --spin=1000000");
    let session = Session::connect(guest, Attachment::Ublk, &args);
    guest.run(PROBED);
    let said = session.run(&format!("P={}; N={REQUESTS}\n{COUNTED}", session.pid));
    let numbers: Vec<u32> = said.split_whitespace().map(|it| it.parse().unwrap()).collect();
    let [locks, switches, slices] = [0, 1, 2].map(|index| numbers[index + 3] - numbers[index]);
    let requests = 2 * REQUESTS;
    println!(
        "RESULT {queues} queues, {requests} requests: {locks} locks, {switches} switches of the \
         queues' threads, {slices} time slices of other threads"
    );
    // Reports and timers take locks and wake threads now and then, and the emulated machine stalls
    // for longer than threads spin. What a request did would be there for each.
    for count in [locks, switches, slices] {
        assert!(count < requests / 20, "{said}");
    }
    guest.run(
        "cd /sys/kernel/tracing; echo 0 >events/locks/enable; echo >uprobe_events; cd /; \
        umount /sys/kernel/tracing",
    );
    session.disconnect();
}

/// A probe for each place in a program that takes a lock, in the kernel's form. It is on the
/// instruction behind the atomic one, on which the kernel allows no probe.
fn probes_of_locks(program: &Path) -> String {
    let objdump = |args: &[&str]| {
        let mut objdump = Command::new("objdump");
        String::from_utf8(objdump.args(args).arg(program).output().unwrap().stdout).unwrap()
    };
    // Number, name, size, address, address, offset in the file.
    let headers = objdump(&["-h", "-j", ".text"]);
    let words = headers.lines().find(|line| line.contains(".text")).unwrap().split_whitespace();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let [address, offset] = [3, 5].map(|index| hex(words.clone().nth(index).unwrap()));
    let listed = objdump(&["-d", "--no-show-raw-insn", "-j", ".text"]);
    let instructions = listed.lines().filter_map(|line| line.split_once(":\t"));
    let instructions: Vec<_> = instructions.map(|(at, it)| (at.trim(), it)).collect();
    let pairs = instructions.windows(2).filter(|pair| pair[0].1.starts_with("lock cmpxchg"));
    let pairs: Vec<_> = pairs.map(|pair| (pair[0].0, hex(pair[1].0))).collect();
    let functions = functions(program, pairs.iter().map(|(at, _)| *at));
    let locks = pairs.iter().zip(&functions).filter(|(_, functions)| takes_lock(functions));
    let probes = locks.map(|((_, next), _)| {
        format!("p:locks/at_{next:x} /tyche/tyche:{:#x}\n", next - address + offset)
    });
    probes.collect()
}

/// For each address, the functions that it is in, as addr2line prints them: lines of a name and
/// lines of a place.
fn functions<'a>(program: &Path, addresses: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut addr2line = Command::new("addr2line");
    addr2line.args(["-aifC", "-e"]).arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut addr2line = addr2line.spawn().unwrap();
    let mut stdin = addr2line.stdin.take().unwrap();
    let asked: String = addresses.flat_map(|address| [address, "\n"]).collect();
    let asking = std::thread::spawn(move || stdin.write_all(asked.as_bytes()).unwrap());
    let said = String::from_utf8(addr2line.wait_with_output().unwrap().stdout).unwrap();
    asking.join().unwrap();
    said.split("0x0").skip(1).map(str::to_owned).collect()
}

fn takes_lock(functions: &str) -> bool {
    let mut lines = functions.lines().skip(1);
    std::iter::from_fn(|| Some((lines.next()?, lines.next()?))).any(|(name, place)| {
        let is_of_locks = ["/sync/mutex/", "/sync/rwlock/", "/parking_lot", "/lock_api"];
        let name = name.rsplit("::").next().unwrap();
        let name = name.split('<').next().unwrap();
        is_of_locks.iter().any(|it| place.contains(it))
            && ["lock", "try_lock", "read", "try_read", "write", "try_write"].contains(&name)
    })
}
