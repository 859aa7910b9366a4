//! Sessions over RDMA, with the kernel's own card on top of Ethernet (`rdma_rxe`), within a guest.

use std::time::Duration;

use serde_json::Value;

use crate::attachment::Attachment::{self, Ublk};
use crate::attachment::Kernel;
use crate::peers::{self, connect_nvme, serve_nvme};
use crate::recovery::Load;
use crate::rig::{DISK, Guest, Job, Rig, Session, Shape, wait_until};

/// Time limit for a load.
const LIMIT: Duration = Duration::from_secs(400);
const THIS: Attachment = Ublk;
/// The address of the first guest, at which its card is.
const AT: &str = "10.9.0.2";
/// The export of a target.
const EXPORT: &str = "disk=/tmp/disk.img";

/// Succeeds once the only session of a guest is lost.
const IS_LOST: &str = "tyche list -o json | grep '\"state\":\"lost\"'";

/// A guest with a card.
fn boot(rig: &Rig, number: u8) -> Guest {
    let guest = rig.boot(number, &Shape { memory_mib: 1536, ..Shape::from(Kernel::V6_12) });
    guest.run(
        "mkdir -p /etc/libibverbs.d; echo driver rxe > /etc/libibverbs.d/rxe.driver\n\
         /busybox modprobe crc32_generic\n\
         modprobe --all rdma_rxe rdma_ucm\n\
         rdma link add rxe0 type rxe netdev eth0",
    );
    guest.wait_until("rdma link | grep 'rxe0/1 state ACTIVE'");
    guest
}

/// Starts a target with these arguments, and waits until it serves.
fn serve<'a>(guest: &'a Guest, args: &str) -> Job<'a> {
    guest.run("[ -e /tmp/disk.img ] || truncate --size 64M /tmp/disk.img");
    let target = guest.start(&format!("exec tyche serve --name card --export {EXPORT} {args}"));
    guest.wait_until(&format!("tyche discover --link rdma:{AT} | grep -w {DISK}"));
    target
}

fn connect<'a>(guest: &'a Guest, args: &str) -> Session<'a> {
    Session::connect_over(guest, THIS, DISK, args)
}

/// Writes with these sizes, and compares what it reads back.
fn verify(session: &Session<'_>, sizes: &str, bytes: &str) {
    session.run_within(
        LIMIT,
        &format!(
            "fio --name=load --filename=$D --rw=randwrite --bsrange={sizes} --size={bytes} \\\n\
             --direct=1 --ioengine=libaio --iodepth=32 --verify=crc32c --verify_fatal=1 --minimal"
        ),
    );
}

/// Discovery, a block device, requests of all sizes, and a file system.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn disk() {
    let rig = Rig::new();
    let guest = boot(&rig, 0);
    let link = format!("--link rdma:{AT}");
    let _target = serve(&guest, &link);
    let session = connect(&guest, &link);
    verify(&session, "4k-4k", "8M");
    verify(&session, "4k-1m", "64M");
    session.run_within(
        LIMIT,
        "mkfs.ext4 -q $D; mount $D /mnt; cp -r /usr/share/common-licenses /mnt/licenses; sync\n\
         umount /mnt; mount $D /mnt; diff -r /usr/share/common-licenses /mnt/licenses\n\
         umount /mnt; e2fsck -fn $D",
    );
    session.disconnect();
}

/// Target and daemon are killed ten times each, under a load that does not notice.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn kills() {
    let rig = Rig::new();
    let guest = boot(&rig, 0);
    let link = format!("--link rdma:{AT}");
    let mut target = serve(&guest, &link);
    let mut session = connect(&guest, &format!("{link} --keep-alive-tmo 1"));
    let load = Load::start(&session);
    for _ in 0..10 {
        session.await_requests(50);
        guest.run("pkill -KILL -f 'tyche serve'");
        drop(target);
        target = serve(&guest, &link);
        session.await_requests(50);
        guest.run(&format!("kill -KILL {}", session.pid));
        session.recover();
    }
    session.await_requests(50);
    load.end();
    session.disconnect();
}

/// The cable of the host is pulled and plugged in again, and cut without notice.
///
/// The interface does not go down: with that, rxe of Linux 6.12 sends no more messages of the
/// connection manager, whoever wants to connect, until it is removed.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn cable() {
    let rig = Rig::new();
    let [target, host] = [0, 1].map(|number| boot(&rig, number));
    let link = format!("--link rdma:{AT}");
    let _target = serve(&target, &link);
    let session = connect(&host, &format!("{link} --keep-alive-tmo 1"));
    let load = Load::start(&session);
    for _ in 0..2 {
        session.await_requests(50);
        host.plug(1, "off");
        host.wait_until(IS_LOST);
        host.plug(1, "on");
        session.await_requests(50);
        rig.cut(1);
        host.wait_until(IS_LOST);
        rig.mend(1);
    }
    session.await_requests(50);
    load.end();
    session.disconnect();
}

/// Two guests, with a session over RDMA, UDP and Ethernet. RDMA is lost under a load, and comes
/// back.
fn beside_others(keys: bool) {
    let rig = Rig::new();
    let [target, host] = [0, 1].map(|number| boot(&rig, number));
    let (mut served, mut args) = (String::new(), String::new());
    if keys {
        let of_host = host.run("tyche key generate /tmp/key");
        let of_target = target.run("tyche key generate /tmp/key");
        served = format!("--key /tmp/key --host guest={}", of_host.trim());
        args = format!("--key /tmp/key --target-key {}", of_target.trim());
    }
    let links = format!("--link rdma:{AT} --link udp:{AT} --link eth0");
    let _target = serve(&target, &format!("{links} {served}"));
    let session = connect(&host, &format!("{links} {args} --keep-alive-tmo 1"));
    await_live(&host, 3);
    let load = Load::start(&session);
    for _ in 0..3 {
        session.await_requests(50);
        target.run(
            "nft add table inet lost\n\
             nft add chain inet lost in '{ type filter hook input priority 0; }'\n\
             nft add rule inet lost in udp dport 4791 drop",
        );
        await_live(&host, 2);
        session.await_requests(50);
        target.run("nft delete table inet lost");
        await_live(&host, 3);
    }
    load.end();
    session.disconnect();
}

/// Waits until so many links of the only session are live.
fn await_live(host: &Guest, count: usize) {
    wait_until("the right links are live", || {
        let list: Value = serde_json::from_str(&host.run("tyche list -o json")).unwrap();
        let links = list["sessions"][0]["links"].as_array().unwrap();
        links.iter().filter(|link| link["live"] == true).count() == count
    });
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn beside_others_without_keys() {
    beside_others(false);
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn beside_others_with_keys() {
    beside_others(true);
}

/// Requests of ours and of NVMe over RDMA, with the messages and completions that they take.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn bench() {
    const MIB: u32 = 64;
    let rig = Rig::new();
    let [target, host] = [0, 1].map(|number| boot(&rig, number));
    serve_nvme(&target, "rdma", AT, MIB);
    let nvme = connect_nvme(&host, "rdma", AT).expect("NVMe over RDMA");
    let link = format!("--link rdma:{AT}");
    let _target = target.start(&format!("exec tyche serve --export {DISK}=mem:{MIB}M {link}"));
    target.wait_until(&format!("tyche discover --link rdma:{AT} | grep -w {DISK}"));
    let session = connect(&host, &link);
    host.run(&format!("echo none >/sys/block/{}/queue/scheduler", &session.device[5..]));
    for device in [&session.device, &nvme] {
        assert!(peers::verify(&host, device), "{device}");
    }
    println!("| | Tyche | NVMe/RDMA | packets | packets | writes | announced | interrupts |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for job in &peers::JOBS {
        let mut ours = [0.0; 3];
        let figures = [&session.device, &nvme].map(|device| {
            let (packets, requests) = (sent(&target, &host), answered(&host, device));
            let counts = counters(&target, &host);
            let figure = job.measure(&host, device).expect("fio ends well");
            let requests = answered(&host, device) - requests;
            if *device == session.device {
                let after = counters(&target, &host);
                ours = [0, 1, 2].map(|i| (after[i] - counts[i]) / requests);
            }
            (figure.iops, (sent(&target, &host) - packets) / requests)
        });
        let [(iops, packets), (nvme_iops, nvme_packets)] = figures;
        let [writes, announcements, interrupts] = ours;
        println!(
            "| {} | {iops:.0} | {nvme_iops:.0} | {packets:.1} | {nvme_packets:.1} | {writes:.2} | \
             {announcements:.2} | {interrupts:.2} |",
            job.name()
        );
    }
    host.run("echo 1 >/sys/class/nvme/nvme0/delete_controller");
    session.disconnect();
    target.run("rm /sys/kernel/config/nvmet/ports/1/subsystems/disk");
}

/// Packets that both cards have sent.
fn sent(target: &Guest, host: &Guest) -> f64 {
    const FILE: &str = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts";
    [target, host].map(|guest| guest.run(FILE).trim().parse::<f64>().unwrap()).iter().sum()
}

/// Requests that a block device has answered.
fn answered(host: &Guest, device: &str) -> f64 {
    let name = &device[5..];
    let script = format!("read -r r _ _ _ w _ </sys/block/{name}/stat; echo $((r + w))");
    host.run(&script).trim().parse().unwrap()
}

/// Writes, announcements and interrupts of both ends of the session.
fn counters(target: &Guest, host: &Guest) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for guest in [target, host] {
        let report: Value = serde_json::from_str(&guest.run("tyche stats -o json")).unwrap();
        add_counters(&report, &mut sums);
    }
    sums
}

fn add_counters(report: &Value, sums: &mut [f64; 3]) {
    const NAMES: [&str; 3] = ["rdma_writes", "rdma_announcements", "rdma_interrupts"];
    match report {
        Value::Object(fields) => {
            for (name, value) in fields {
                match NAMES.iter().position(|it| it == name) {
                    Some(index) => sums[index] += value.as_f64().unwrap(),
                    None => add_counters(value, sums),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|it| add_counters(it, sums)),
        _ => {}
    }
}
