//! The memory that a target uses for its sessions, and its limits in the configuration; and the
//! memory of a host's daemon.

use std::fs;
use std::process::Command;

use tyche_native::InlineHost;
use tyche_testkit::random::Random;
use tyche_testkit::stopped::StoppedThread;

use crate::nbd::uri;
use crate::refusals::refused;
use crate::rig::{DISK, PATIENCE, Side, Target, await_done, rig, run, submit, wait_until};

/// The anonymous memory that an idle daemon of a disk may have, in bytes, as stated in
/// docs/reference.md. Its receive ring is not among it.
const IDLE_MAX: usize = 12 << 20;

const SESSIONS: usize = 100;
const QUEUE_SIZE: u16 = 128;
/// Data queue of each session, in bytes.
const DATA_QUEUE: usize = 1 << 20;
/// The most that each session may use besides, in bytes, as stated in docs/reference.md.
const FIXED_MAX: usize = 256 << 10;
/// Length and number of requests: their data use every page of the data queue more than once.
const READ_LEN: u32 = 64 << 10;
const READS: u64 = 64;

fn read(host: &mut InlineHost) {
    (0..READS).for_each(|number| submit(host, number * u64::from(READ_LEN), READ_LEN, None));
    await_done(host, READS as usize);
}

/// The target's anonymous memory in bytes, without that of its export.
pub(crate) fn resident(target: &Target) -> usize {
    resident_of(target.pid())
}

/// The anonymous memory of a process, in bytes.
fn resident_of(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn sessions_take_no_more_than_the_limits_say() {
    let rig = rig!(9000);
    let config = rig.path("target.toml");
    let text = format!(
        "[limits]\nmemory = \"125MiB\"\nqueue_size = {QUEUE_SIZE}\ndata_queue = \"1MiB\"\n\
         [[export]]\nname = \"{DISK}\"\npath = \"{}\"\n",
        rig.file("disk.img", 16 << 20).display()
    );
    fs::write(&config, text).unwrap();
    let target = rig.serve(&["--config", config.to_str().unwrap()]);
    let start = resident(&target);
    let connect = |_| {
        rig.inline_host(&[rig.cable.link(Side::Host)], |session| {
            (session.queue_size, session.read_only) = (QUEUE_SIZE, true);
        })
    };
    let mut hosts: Vec<_> = (0..SESSIONS).map(connect).collect();
    // All have one address: each socket is full of frames that are for others.
    hosts.iter_mut().for_each(|host| _ = host.poll(&mut Vec::new()));
    let idle = resident(&target) - start;
    hosts.iter_mut().for_each(read);
    let used = resident(&target) - start;
    let per_session = |bytes: usize| (bytes / SESSIONS) >> 10;
    println!(
        "a target without sessions: {} KiB; each of {SESSIONS} sessions of queue depth \
         {QUEUE_SIZE}: {} KiB when it is connected, {} KiB when it has read",
        start >> 10,
        per_session(idle),
        per_session(used)
    );
    assert!(idle <= SESSIONS * FIXED_MAX, "{idle} bytes before the first request");
    assert!(used >= SESSIONS * DATA_QUEUE, "{used} bytes: the whole data queue was used");
    assert!(used <= SESSIONS * (DATA_QUEUE + FIXED_MAX), "{used} bytes");
    wait_until("idle sessions have given their data queues back", || {
        hosts.iter_mut().for_each(|host| _ = host.poll(&mut Vec::new()));
        resident(&target) - start <= SESSIONS * FIXED_MAX
    });
    let connected =
        rig.ask_at(Side::Target, &["list"])["targets"][0]["exports"][0]["sessions"].clone();
    assert_eq!(connected.as_array().map(Vec::len), Some(SESSIONS), "all are there still");
    hosts.iter_mut().for_each(read);

    // All memory is used, and each gives up some for another.
    let link = rig.cable.link(Side::Host);
    std::thread::scope(|scope| {
        let one_more = || rig.ask(&["bench", DISK, "--link", link, "--runtime", "0.1"]);
        let one_more = scope.spawn(one_more);
        while !one_more.is_finished() {
            hosts.iter_mut().for_each(|host| _ = host.poll(&mut Vec::new()));
        }
        one_more.join().unwrap();
    });
}

/// A MiB has room for two channels that have the least.
#[test]
fn a_session_without_room_is_refused_until_another_is_gone() {
    let rig = rig!(9000);
    let config = rig.path("target.toml");
    let disk = rig.file("disk.img", 16 << 20);
    let disk = disk.display();
    let text =
        format!("[limits]\nmemory = \"1MiB\"\n[[export]]\nname = \"{DISK}\"\npath = \"{disk}\"\n");
    fs::write(&config, text).unwrap();
    let _target = rig.serve(&["--config", config.to_str().unwrap()]);
    let link = rig.cable.link(Side::Host);
    let connect = |_| rig.inline_host(&[link], |session| session.read_only = true);
    let mut hosts: Vec<_> = (0..2).map(connect).collect();
    hosts.iter_mut().for_each(read);
    let one_more = ["bench", DISK, "--link", link, "--timeout", "5"];
    refused(&rig, Side::Host, &one_more, 7, &["no room", "`memory`"]);
    hosts.pop().expect("two").disconnect(PATIENCE);
    rig.ask(&["bench", DISK, "--link", link, "--runtime", "0.1"]);
}

/// Copies with many requests at once, each as long as the daemon allows.
fn copy(from: &str, to: &str) {
    run(Command::new("nbdcopy").args(["--requests=64", "--request-size=2097152", from, to]));
}

#[test]
fn a_daemon_takes_memory_as_its_requests_need_it() {
    let rig = rig!(9000);
    let _target = rig.serve(&["--export", "disk=mem:64M"]);
    let session = rig.connect_as("nbd-socket", &[]);
    let used = || resident_of(session.pid());
    let idle = used();
    copy(&uri(&session), "null:");
    let loaded = used();
    println!("a daemon: {} KiB when it is idle, {} KiB after a load", idle >> 10, loaded >> 10);
    assert!(idle <= IDLE_MAX, "{idle} bytes before the first request");
    assert!(loaded >= idle + (4 << 20), "{loaded} bytes: many requests take more at once");
    wait_until("an idle daemon has given its memory back", || used() <= idle + (1 << 20));
    copy(&uri(&session), "null:");
    assert!(used() >= idle + (4 << 20), "it takes more again");
    session.disconnect();
}

#[test]
fn a_daemon_that_gets_no_memory_goes_on_with_what_it_keeps() {
    let rig = rig!(9000);
    let source = rig.file("source.img", 64 << 20);
    let mut bytes = vec![0; 64 << 20];
    Random(44).fill(&mut bytes);
    fs::write(&source, &bytes).unwrap();
    let _target = rig.serve(&["--export", "disk=mem:64M"]);
    let session = rig.connect_as("nbd-socket", &[]);
    let idle = resident_of(session.pid());
    // The kernel may keep it waiting until this very disk was written to.
    let helper = StoppedThread::of(session.pid(), "tyche-memory");
    copy(source.to_str().unwrap(), &uri(&session));
    let back = rig.path("back.img");
    copy(&uri(&session), back.to_str().unwrap());
    assert!(fs::read(&back).unwrap() == bytes);
    let used = resident_of(session.pid());
    assert!(used <= idle + (1 << 20), "{used} bytes after {idle}: nobody has added any");
    drop(helper);
    copy(&uri(&session), "null:");
    assert!(resident_of(session.pid()) >= idle + (4 << 20), "the thread goes on");
    session.disconnect();
}
