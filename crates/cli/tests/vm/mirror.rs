//! RAID-1 (md) over the disks of two targets: one of them is away for a minute, and comes back. No
//! request waits for long, nothing is lost, and the array is whole again without an administrator.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::attachment::Attachment;
use crate::rig::{Guest, Job, MIB, Rig, Session, Shape, Target};

const SIZE: u64 = 48 * MIB;
/// The target is away for that long.
const AWAY: Duration = Duration::from_secs(60);
/// Time limit for the load, and for the resync after it.
const LIMIT: Duration = Duration::from_secs(400);

const ARRAY: &str = "/dev/md7";

/// The exports, each of a target of its own, and the link to that.
const MEMBERS: [(&str, Option<&str>); 2] = [("left", None), ("right", Some("udp:10.9.0.1:9002"))];

/// Starts the target of one member, which keeps its file over its deaths.
fn serve(rig: &Rig, (member, link): (&str, Option<&str>)) -> Target {
    let file = rig.path(member);
    if !file.exists() {
        File::create_new(&file).unwrap().set_len(SIZE).unwrap();
    }
    rig.serve_as(member, link, format!("{member}={}", file.display()))
}

/// Has the guest's udev act on our rules.
fn start_udev(guest: &Guest) {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/udev");
    for name in ["59-tyche.rules", "60-tyche.rules", "65-tyche-md.rules", "tyche-md-re-add"] {
        guest.put(&rules.join(name), name);
    }
    // The program is not where a package has it.
    guest.run(
        "mkdir -p /run/udev/rules.d; cp /share/*-tyche*.rules /run/udev/rules.d\n\
         cp /share/tyche-md-re-add /tmp; chmod 755 /tmp/tyche-md-re-add\n\
         sed -i 's,\"tyche-md-re-add,\"/tmp/tyche-md-re-add,' /run/udev/rules.d/65-tyche-md.rules\n\
         /usr/lib/systemd/systemd-udevd --daemon\n\
         udevadm settle --timeout=60",
    );
}

/// Makes the array of both members, with a bitmap of what is being written.
fn assemble(guest: &Guest, members: &[Session<'_>; 2]) {
    let [left, right] = members.each_ref().map(|it| it.device.as_str());
    guest.run(&format!(
        "modprobe raid1\n\
         mdadm --create {ARRAY} --run --level=1 --raid-devices=2 --metadata=1.2 \\\n\
         --bitmap=internal --bitmap-chunk=1M --assume-clean {left} {right}\n\
         cat /proc/mdstat"
    ));
}

/// Writes to the array and checks what it reads back until told to end, then reports its longest
/// request in nanoseconds.
fn load(guest: &Guest) -> Job<'_> {
    guest.start(&format!(
        "rm -f /tmp/end; longest=0\n\
         until [ -e /tmp/end ]; do\n\
         fio --name=load --filename={ARRAY} --rw=randwrite --bs=4k-16k --size=8M --direct=1 \\\n\
         --ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 \\\n\
         --output-format=json --output=/tmp/fio.json\n\
         for max in $(sed -n 's/.*\"max\" : \\([0-9]*\\),.*/\\1/p' /tmp/fio.json); do\n\
         [ $max -gt $longest ] && longest=$max; done\n\
         done; echo longest $longest"
    ))
}

/// The longest request, as the load says.
fn longest(said: &str) -> Duration {
    let words: Vec<_> = said.split_whitespace().collect();
    let at = words.iter().rposition(|it| *it == "longest").unwrap();
    Duration::from_nanos(words[at + 1].parse().unwrap())
}

fn state(guest: &Guest, file: &str) -> String {
    guest.run(&format!("cat /sys/block/md7/md/{file}")).trim().to_owned()
}

/// Kills a target under load, and has it back after a minute. Both sessions have the option, with
/// that many seconds, after which requests fail; `has_failed` is in the report then.
fn member_away(option: &str, fails_after_s: u64, has_failed: &str) {
    let attachment = Attachment::Ublk;
    let rig = Rig::new();
    let mut targets = MEMBERS.map(|member| Some(serve(&rig, member)));
    let guest = rig.boot(0, &Shape::from(attachment));
    start_udev(&guest);
    let members = MEMBERS.map(|(member, link)| {
        let link = link.unwrap_or("eth0");
        let args = format!("--link {link} {option} {fails_after_s}");
        Session::connect_over(&guest, attachment, member, &args)
    });
    assemble(&guest, &members);
    let load = load(&guest);
    members[0].await_requests(100);
    targets[0].take().unwrap().kill();
    let killed = Instant::now();
    guest.wait_until("grep -q 1 /sys/block/md7/md/degraded");
    println!("degraded after {:.1?}", killed.elapsed());
    std::thread::sleep(AWAY.saturating_sub(killed.elapsed()));
    guest.wait_until(&format!("tyche list -o json | grep '{has_failed}' >/dev/null"));
    targets[0] = Some(serve(&rig, MEMBERS[0]));
    let back = Instant::now();
    // Copying what was missed takes its time beside the load.
    let whole = guest.start("until grep -q 0 /sys/block/md7/md/degraded; do sleep 0.5; done");
    whole.succeed(LIMIT);
    println!("whole {:.1?} after the target was back", back.elapsed());
    guest.run("touch /tmp/end");
    let longest = longest(&load.succeed(LIMIT));
    println!("the longest request took {longest:.1?}");
    assert!(longest <= Duration::from_secs(2 * fails_after_s), "a request took {longest:?}");
    guest.wait_until("grep -q idle /sys/block/md7/md/sync_action");
    guest.run("echo check >/sys/block/md7/md/sync_action");
    guest.wait_until("grep -q idle /sys/block/md7/md/sync_action");
    assert_eq!(state(&guest, "mismatch_cnt"), "0");
    guest.run(&format!("mdadm --stop {ARRAY}"));
    guest.run("udevadm control --exit");
    members.iter().for_each(|member| drop(member.run("tyche disconnect $D")));
    drop(targets);
    let [left, right] = MEMBERS.map(|(member, _)| fs::read(rig.path(member)).unwrap());
    // Behind the superblocks and the bitmaps.
    let data = MIB as usize * 4;
    assert!(left[data..] == right[data..], "the members differ");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn requests_that_fail_early() {
    member_away("--fast-io-fail-tmo", 10, "\"fails_fast\":true");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn a_session_that_has_failed() {
    member_away("--ctrl-loss-tmo", 20, "\"trying\":true");
}
