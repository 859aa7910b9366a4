//! The list for a card.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde_json::Value;

use super::card::{self, IGB};
use crate::attachment::Attachment;
use crate::rig::{Card, Guest, Job, MIB, Rig, Session, Shape, Target};

const SIZE: u64 = 64 * MIB;
/// Time limit for a load, and for whatever follows a disturbance.
const LIMIT: Duration = Duration::from_secs(240);
/// The target's address over IP.
const UDP: &str = "udp:10.9.0.1:9100";
/// Bytes of the Ethernet header.
const ETHERNET: u64 = 14;
/// Requests that must be answered after a disturbance.
const ENOUGH: u32 = 50;

/// The results so far.
#[derive(Default)]
struct Results {
    failed: Vec<String>,
}

impl Results {
    /// Runs a line of the list, which panics if it fails.
    fn line(&mut self, name: &str, run: impl FnOnce() -> String) {
        let result = catch_unwind(AssertUnwindSafe(run));
        let said = result.as_ref().map_or("FAILED", String::as_str);
        println!("RESULT {name}: {said}");
        if result.is_err() {
            self.failed.push(name.to_owned());
        }
    }

    fn end(self) {
        assert_eq!(self.failed, [""; 0]);
    }
}

/// A target on this machine.
struct Stage {
    rig: Rig,
    _target: Target,
    attachment: Attachment,
}

impl Stage {
    fn new(attachment: Attachment) -> Self {
        let rig = Rig::new();
        let target = rig.serve_new_with(SIZE, &["--link", UDP]);
        Self { rig, _target: target, attachment }
    }

    /// A guest with the card, eth0, and another interface, eth1.
    fn boot(&self, card: Card) -> Guest {
        let shape = Shape::from(self.attachment.kernel());
        self.rig.boot(0, &Shape { card, interfaces: 2, ..shape })
    }

    fn connect<'a>(&self, guest: &'a Guest, export: &str, links: &str) -> Session<'a> {
        Session::connect_over(guest, self.attachment, export, links)
    }
}

/// Programs that write to a device and check what they read back, until they are told to end.
struct Load<'a> {
    guest: &'a Guest,
    job: Option<Job<'a>>,
}

impl<'a> Load<'a> {
    fn start(session: &Session<'a>) -> Self {
        let job = session.start(
            "rm -f /tmp/end\n\
             until [ -e /tmp/end ]; do\n\
             fio --name=load --filename=$D --rw=randwrite --bs=4k-64k --size=16M --direct=1 \\\n\
             --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --minimal\n\
             done",
        );
        Self { guest: session.guest, job: Some(job) }
    }

    /// Waits for its end, which must be successful.
    fn end(mut self) {
        self.guest.run("touch /tmp/end");
        self.job.take().expect("it ends once").succeed(LIMIT);
    }
}

impl Drop for Load<'_> {
    /// After a failure, ends it for the next one, which fails in its turn if this does not end.
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.guest.run("touch /tmp/end; pkill -x fio || true");
            if let Err(why) = job.code(LIMIT) {
                println!("the load does not end: {why}");
            }
        }
    }
}

/// The only session's part of `tyche stats`.
fn stats(guest: &Guest) -> Value {
    let said = guest.run("tyche stats -o json");
    let mut value: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    value["sessions"][0].take()
}

/// Counters of what was sent again, and why.
fn losses(guest: &Guest) -> [u64; 3] {
    let stats = stats(guest);
    let links = stats["links"].as_array().unwrap();
    let sum = |name: &str| links.iter().map(|link| link[name].as_u64().unwrap()).sum();
    let again = stats["channel"]["retransmitted"].as_u64().unwrap();
    [again, sum("tx_held"), sum("tx_refused")]
}

/// Runs the whole list.
pub(super) fn run(attachment: Attachment, card: &Card) {
    if let Some(reason) = card::why_absent(card, attachment.kernel()) {
        println!("SKIPPED: {reason}");
        return;
    }
    let (stage, mut results) = (Stage::new(attachment), Results::default());
    let guest = stage.boot(*card);
    println!("RESULT kernel: {}", guest.run("uname -r").trim());
    let set_mtu = |mtu: u16| guest.run(&format!("ip link set eth0 mtu {mtu}"));
    set_mtu(1500);
    let session = stage.connect(&guest, "disk", "--link eth0");
    disturb(&mut results, &session, "raw 1500", 1500);
    results.line("raw, MTU raised: frames grow", || {
        let load = Load::start(&session);
        session.await_requests(ENOUGH);
        set_mtu(card.mtu_max);
        let longest = u64::from(card.mtu_max) + ETHERNET;
        await_frame_len(&guest, longest);
        session.await_requests(ENOUGH);
        load.end();
        format!("frames of {longest} bytes")
    });
    let longest = format!("raw {}", card.mtu_max);
    disturb(&mut results, &session, &longest, card.mtu_max);
    session.disconnect();
    for mtu in [card.mtu_max, 1500] {
        set_mtu(mtu);
        results.line(&format!("raw {mtu}, VLAN, offloaded or not"), || vlan(&stage, &guest, mtu));
        let session = stage.connect(&guest, "disk", &format!("--link {UDP}"));
        disturb(&mut results, &session, &format!("UDP {mtu}"), mtu);
        session.disconnect();
    }
    results.end();
}

fn await_frame_len(guest: &Guest, len: u64) {
    let pattern = format!("\"frame_len\":{len},");
    guest.wait_until(&format!("tyche stats -o json | tr -d ' \\n' | grep -qF '{pattern}'"));
}

/// Disturbs the interface in all ways, under load; and writes at the full rate.
fn disturb(results: &mut Results, session: &Session<'_>, kind: &str, mtu: u16) {
    let guest = session.guest;
    let mut under_load = |what: &str, act: &dyn Fn() -> String| {
        results.line(&format!("{kind}, {what}"), || {
            let load = Load::start(session);
            session.await_requests(ENOUGH);
            let said = act();
            session.await_requests(ENOUGH);
            load.end();
            said
        });
    };
    let passed = || "passed".to_owned();
    under_load("fio verify", &passed);
    under_load("link down, up", &|| {
        guest.run("ip link set eth0 down; sleep 1; ip link set eth0 up");
        passed()
    });
    under_load("carrier off, on", &|| pull_plug(guest));
    under_load("driver unbound, bound", &|| {
        guest.run(&format!(
            "device=$(readlink -f /sys/class/net/eth0/device)\n\
             driver=$(readlink -f $device/driver)\n\
             echo ${{device##*/}} >$driver/unbind; sleep 1\n\
             echo ${{device##*/}} >$driver/bind\n\
             until [ -e /sys/class/net/eth0 ]; do sleep 0.1; done\n\
             ip link set eth0 mtu {mtu}; ip link set eth0 up; ip addr add 10.9.0.2/24 dev eth0"
        ));
        passed()
    });
    under_load("offloads off, on", &|| switch_offloads(guest));
    under_load("rings shorter, longer", &|| resize_rings(guest));
    results.line(&format!("{kind}, writes of 1 MiB"), || write_all(session));
    results.line(&format!("{kind}, no request failed"), || {
        assert_eq!(stats(guest)["requests"]["errors"], 0);
        "passed".to_owned()
    });
}

/// Takes the plug out of the card, and puts it in again. QEMU's e1000e drops frames meanwhile, but
/// has the driver believe that the plug is in.
fn pull_plug(guest: &Guest) -> String {
    let is = |state: u8| format!("[ $(cat /sys/class/net/eth0/carrier) = {state} ]");
    guest.plug(0, "off");
    let look = format!("for i in {{1..50}}; do {} && echo seen && exit; sleep 0.1; done", is(0));
    let seen = guest.run(&look);
    guest.plug(0, "on");
    guest.wait_until(&is(1));
    if seen.is_empty() { "passed, unseen by the driver" } else { "passed" }.to_owned()
}

/// Switches each offload that can be switched; returns which. Joined frames (LRO) are on afterwards
/// if they were before: without them, vmxnet3 takes no long frames in QEMU.
fn switch_offloads(guest: &Guest) -> String {
    let said = guest.run(
        "lro=$(ethtool -k eth0 | sed -n 's/^large-receive-offload: on$/lro/p')\n\
         for one in rx tx sg tso gso gro lro rxvlan txvlan; do\n\
         ethtool -K eth0 $one off >/dev/null 2>&1 && echo $one\n\
         sleep 0.2\n\
         done; true\n\
         for one in rx tx sg tso gso gro $lro rxvlan txvlan; do\n\
         ethtool -K eth0 $one on >/dev/null 2>&1 || true\n\
         done",
    );
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Makes the rings as short and as long as the driver allows; returns the lengths.
fn resize_rings(guest: &Guest) -> String {
    let said = guest.run(
        "tx() { ethtool -g eth0 2>/dev/null | sed -n 's/^TX:\\s*//p' | \"$@\"; }\n\
         now() { tx tail -n 1; }\n\
         most=$(tx head -n 1)\n\
         [ -n \"$most\" ] || { echo cannot; exit; }\n\
         before=$(now)\n\
         for len in 64 128 256 $most; do\n\
         ethtool -G eth0 rx $len tx $len >/dev/null 2>&1 && echo $(now); sleep 0.5\n\
         done; true\n\
         ethtool -G eth0 rx $before tx $before >/dev/null 2>&1 || echo cannot",
    );
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Writes with long requests; returns what was sent again.
fn write_all(session: &Session<'_>) -> String {
    let before = losses(session.guest);
    let job = session.start(
        "fio --name=write --filename=$D --rw=write --bs=1M --size=48M --direct=1 \\\n\
         --ioengine=libaio --iodepth=16 --time_based --runtime=4 --minimal >/dev/null",
    );
    job.succeed(LIMIT);
    let after = losses(session.guest);
    let [again, held, refused] = std::array::from_fn(|index| after[index] - before[index]);
    format!("{again} retransmitted, {held} held, {refused} refused")
}

/// A VLAN on the card, with and without the card's help. The target is at the guest's other
/// interface: this machine's kernel may have no VLANs.
fn vlan(stage: &Stage, guest: &Guest, mtu: u16) -> String {
    guest.run(&format!(
        "ip netns add target; ip link set eth1 netns target\n\
         ip -n target link set eth1 mtu 9000 up\n\
         ip link add link eth0 name eth0.10 mtu {mtu} type vlan id 10\n\
         ip -n target link add link eth1 name eth1.10 mtu {mtu} type vlan id 10\n\
         ip link set eth0.10 up; ip -n target link set eth1.10 up"
    ));
    let target = guest.start(&format!(
        "exec ip netns exec target tyche serve --name vlan --link eth1.10 \\\n\
         --export vlan=sparse:{SIZE}"
    ));
    guest.wait_until("tyche discover --link eth0.10 | grep -w vlan");
    let session = stage.connect(guest, "vlan", "--link eth0.10");
    let mut said = Vec::new();
    for state in ["on", "off", "on"] {
        let switched = guest.run(&format!(
            "for one in rxvlan txvlan; do\n\
             ethtool -K eth0 $one {state} >/dev/null 2>&1 && echo $one {state} || true\n\
             done"
        ));
        said.extend(switched.lines().map(str::to_owned));
        let load = Load::start(&session);
        session.await_requests(ENOUGH);
        load.end();
    }
    assert_eq!(stats(guest)["requests"]["errors"], 0);
    session.disconnect();
    guest.run("kill $(pgrep -f 'tyche serve'); ip link del eth0.10");
    target.succeed(LIMIT);
    guest.run(
        "ip -n target link del eth1.10; ip -n target link set eth1 netns 1; ip netns del target",
    );
    said.join(", ")
}

/// Two virtual functions of a card are two links.
pub(super) fn run_on_virtual_functions(attachment: Attachment) {
    if let Some(reason) = card::why_absent(&IGB, attachment.kernel()) {
        println!("SKIPPED: {reason}");
        return;
    }
    let (stage, mut results) = (Stage::new(attachment), Results::default());
    let guest = stage.boot(IGB);
    guest.run(
        "ip link set eth1 name other\n\
         echo 2 >/sys/class/net/eth0/device/sriov_numvfs; modprobe igbvf\n\
         for at in eth1 eth2; do\n\
         until [ -e /sys/class/net/$at ]; do sleep 0.1; done; ip link set $at up\n\
         done",
    );
    for mtu in [1500, IGB.mtu_max] {
        guest.run(&format!("for at in eth1 eth2; do ip link set $at mtu {mtu}; done"));
        let session = stage.connect(&guest, "disk", "--link eth1 --link eth2");
        let steps: [(&str, &str); 3] = [
            ("fio verify", ":"),
            ("one link down, up", "ip link set eth1 down; sleep 1; ip link set eth1 up"),
            (
                "driver unbound, bound",
                "device=$(readlink -f /sys/class/net/eth2/device)\n\
                 driver=$(readlink -f $device/driver)\n\
                 echo ${device##*/} >$driver/unbind; sleep 1; echo ${device##*/} >$driver/bind\n\
                 until [ -e /sys/class/net/eth2 ]; do sleep 0.1; done\n\
                 ip link set eth2 mtu MTU; ip link set eth2 up",
            ),
        ];
        for (what, script) in steps {
            results.line(&format!("raw {mtu}, two virtual functions, {what}"), || {
                let load = Load::start(&session);
                session.await_requests(ENOUGH);
                guest.run(&script.replace("MTU", &mtu.to_string()));
                session.await_requests(ENOUGH);
                load.end();
                "passed".to_owned()
            });
        }
        results.line(&format!("raw {mtu}, two virtual functions, 1 MiB"), || write_all(&session));
        assert_eq!(stats(&guest)["requests"]["errors"], 0);
        session.disconnect();
    }
    results.end();
}
