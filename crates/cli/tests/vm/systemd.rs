//! The package and its units on a Debian with systemd, while file systems are in use.

use std::time::Duration;

use serde_json::Value;

use crate::attachment::Kernel;
use crate::rig::{DISK, Guest, Job, MIB, Rig, Shape, Target};

const SIZE: u64 = 64 * MIB;
const UNIT: &str = "tyche@disk";
/// fio of this machine, with its libraries.
const FIO: &str = "/host/lib64/ld-linux-x86-64.so.2 --library-path \
                   /host/lib/x86_64-linux-gnu:/host/lib/x86_64-linux-gnu/ceph \
                   /host/bin/fio";
/// Time limit for a load.
const LIMIT: Duration = Duration::from_secs(600);

/// A guest whose unit has connected the disk, with these options.
fn start(options: &str) -> (Rig, Target, Guest) {
    let rig = Rig::new();
    let target = rig.serve_new(SIZE);
    let kernel = Kernel::V6_12;
    let guest = rig.boot(0, &Shape { debian: true, ..Shape::from(kernel) });
    for number in ["1", "2"] {
        let package = format!("package-{number}.deb");
        guest.put(&kernel.image().with_file_name(&package), &package);
    }
    guest.run("dpkg --install /share/package-1.deb");
    guest.run(&format!("echo '{DISK} eth0 as=ublk{options}' >>/etc/tyche/tychetab"));
    guest.run(&format!("systemctl daemon-reload; systemctl start {UNIT}"));
    (rig, target, guest)
}

/// The only session.
fn session(guest: &Guest) -> Value {
    let list: Value = serde_json::from_str(&guest.run("tyche list -o json")).unwrap();
    list["sessions"][0].clone()
}

fn device(guest: &Guest) -> String {
    session(guest)["device"].as_str().unwrap().to_owned()
}

/// Writes to a file system on the device, and verifies, until there is a file `/run/stop`.
fn load<'a>(guest: &'a Guest, device: &str) -> Job<'a> {
    guest.run(&format!("mkfs.ext4 -q {device}; mount {device} /mnt"));
    guest.start(&format!(
        "until [ -e /run/stop ]; do\n\
         {FIO} --name=load --directory=/mnt --rw=randwrite --bs=4k-64k --size=4M --direct=1 \
         --fsync=16 --ioengine=psync --verify=crc32c --verify_fatal=1 --output-format=json \
         --output=/run/fio.json\n\
         grep -o '\"max\" : [0-9]*' /run/fio.json | sort -rnk3 | head -n 1 >>/run/stalls\n\
         touch /run/rounds; echo >>/run/rounds\n\
         done"
    ))
}

/// Waits until the load has done all its work once more.
fn await_round(guest: &Guest) {
    guest.run(
        "rounds=$(cat /run/rounds | wc -l)\n\
         for i in {1..900}; do\n\
         [ $(cat /run/rounds | wc -l) -ge $((rounds + 2)) ] && exit; sleep 0.1\n\
         done; exit 1",
    );
}

/// The load has seen no error; returns the longest time of a request.
fn end(guest: &Guest, load: Job<'_>) -> String {
    guest.run("touch /run/stop");
    load.succeed(LIMIT);
    guest.run("umount /mnt; sort -rnk3 /run/stalls | head -n 1 | cut -d ' ' -f 3").trim().into()
}

/// Restarted, upgraded to another build, and reloaded with that, under a mounted file system.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn upgrade() {
    let (_rig, _target, guest) = start("");
    let device = device(&guest);
    let before = session(&guest);
    let load = load(&guest, &device);
    guest.run("touch /run/rounds");
    await_round(&guest);
    guest.run(&format!("systemctl restart {UNIT}"));
    await_round(&guest);
    guest.run("dpkg --install /share/package-2.deb");
    await_round(&guest);
    guest.run(&format!("systemctl reload {UNIT}"));
    await_round(&guest);
    let pid = guest.run(&format!("systemctl show --property MainPID --value {UNIT}"));
    guest.run(&format!("cmp /proc/{}/exe /usr/sbin/tyche", pid.trim()));
    let after = session(&guest);
    assert_eq!((&after["device"], &after["lasting"]), (&before["device"], &before["lasting"]));
    let stall = end(&guest, load);
    println!("RESULT the longest time of a request, in ns: {stall}");
    guest.run(&format!("systemctl stop {UNIT}; [ ! -b {device} ]"));
}

/// The log can't be written: the journal is stopped, then the standard error is a full
/// disk, then a pipe that nobody reads any more.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn mute() {
    let (rig, _target, guest) = start(",keep-alive-tmo=1");
    let load = load(&guest, &device(&guest));
    guest.run("touch /run/rounds");
    // The session has something to say.
    let lose = || {
        await_round(&guest);
        rig.cut(0);
        std::thread::sleep(Duration::from_secs(3));
        rig.mend(0);
        await_round(&guest);
    };
    let journal = "systemd-journald.socket systemd-journald-dev-log.socket systemd-journald";
    guest.run(&format!("systemctl stop {journal}"));
    lose();
    guest.run(&format!("systemctl start {journal}"));
    guest.run(
        "mkdir /run/full; mount -t tmpfs -o size=4k full /run/full\n\
         head -c 4096 /dev/zero >/run/full/log; mkfifo /run/pipe",
    );
    // The reader of the pipe goes when the daemon has said something, and not before: it holds the
    // other end as well until then.
    let reader = "(timeout 100 sh -c 'exec 9<>/run/pipe; head -c 1 <&9 >/run/heard' &)\n";
    for (to, reader) in [("append:/run/full/log", ""), ("file:/run/pipe", reader)] {
        guest.run(&format!(
            "{reader}dir=/run/systemd/system/{UNIT}.service.d; mkdir -p $dir\n\
             printf '[Service]\\nStandardError={to}\\n' >$dir/to.conf\n\
             systemctl daemon-reload; systemctl restart {UNIT}"
        ));
        lose();
    }
    end(&guest, load);
    // What stops the unit would wait for a reader.
    guest.run(&format!("rm -r /run/systemd/system/{UNIT}.service.d; systemctl daemon-reload"));
    guest.run(&format!("systemctl stop {UNIT}"));
}

/// A session that has failed for good is disconnected as any other.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn failed() {
    let (_rig, target, guest) = start(",keep-alive-tmo=1,ctrl-loss-tmo=3");
    let device = device(&guest);
    guest.run(&format!("dd if=/dev/zero of={device} bs=64k count=16 status=none"));
    target.kill();
    guest.wait_until("tyche list -o json | grep -q '\"state\":\"failed\"'");
    guest.run(&format!("tyche disconnect {DISK}; [ ! -b {device} ]"));
}
