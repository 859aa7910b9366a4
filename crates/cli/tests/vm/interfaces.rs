//! Related interfaces: a VLAN and its parent, a bond and its members. Each is a link of its own, or
//! none.

use std::time::Duration;

use serde_json::Value;

use crate::attachment::Kernel;
use crate::rig::{Guest, Job, MIB, Rig, Shape, wait_until};

/// Time limit for a load.
const LIMIT: Duration = Duration::from_secs(240);

/// A guest with two interfaces on the segment.
fn boot(rig: &Rig) -> Guest {
    rig.boot(0, &Shape { interfaces: 2, ..Shape::from(Kernel::V6_12) })
}

/// A connected disk.
struct Disk<'a> {
    guest: &'a Guest,
    export: &'a str,
    device: String,
}

impl<'a> Disk<'a> {
    fn connect(guest: &'a Guest, export: &'a str, links: &str) -> Self {
        let said = guest.run(&format!("tyche connect {export} {links} --as ublk -o json"));
        let value: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
        assert_eq!(value["warnings"], Value::Array(Vec::new()));
        Self { guest, export, device: value["device"].as_str().unwrap().to_owned() }
    }

    /// Starts writing, and reading back what was written.
    fn load(&self) -> Job<'a> {
        self.guest.start(&format!(
            "fio --name={} --filename={} --rw=randwrite --bs=4k-64k --size=8M --direct=1 \
             --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --minimal",
            self.export, self.device
        ))
    }

    /// Waits until the session's live links are these.
    fn await_links(&self, wanted: &[&str]) {
        wait_until("the right links are live", || {
            let list: Value = serde_json::from_str(&self.guest.run("tyche list -o json")).unwrap();
            let mut sessions = list["sessions"].as_array().unwrap().iter();
            let session = sessions.find(|it| it["export"] == self.export).unwrap();
            let links = session["links"].as_array().unwrap().iter();
            let live = links.filter(|link| link["live"] == true);
            live.map(|link| link["interface"].as_str().unwrap()).eq(wanted.iter().copied())
        });
    }

    fn disconnect(self) {
        self.guest.run(&format!("tyche disconnect {}", self.device));
    }
}

/// An interface and a VLAN on it are two networks, at the target and at the host.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn vlan_and_parent() {
    let rig = Rig::new();
    let guest = boot(&rig);
    // Host and target are each on one of the guest's cables; both call it eth1.
    guest.run(
        "ip netns add target; ip addr flush dev eth0; ip link set eth0 netns target name eth1\n\
         for at in 'ip' 'ip -n target'; do\n\
         $at link add link eth1 name eth1.10 type vlan id 10\n\
         $at link set eth1 mtu 9000 up; $at link set eth1.10 up\n\
         done",
    );
    let exports = "--export a=sparse:64M --export b=sparse:64M --export both=sparse:64M";
    let target = guest.start(&format!("ip netns exec target tyche serve --name vlans {exports}"));
    for link in ["eth1", "eth1.10"] {
        guest.wait_until(&format!("tyche discover --link {link} | grep -w both"));
    }
    let a = Disk::connect(&guest, "a", "--link eth1");
    let b = Disk::connect(&guest, "b", "--link eth1.10");
    let both = Disk::connect(&guest, "both", "");
    let disks = [&a, &b, &both];
    both.await_links(&["eth1", "eth1.10"]);
    for load in disks.map(Disk::load) {
        load.succeed(LIMIT);
    }
    // A target that took a frame of the other interface would not know its channel, and answer with
    // a reset: to the host, that target was restarted.
    let logs = guest.run("cat /var/log/tyche/*.log");
    assert!(logs.contains("connected") && !logs.contains("restarted"), "{logs}");

    // A failure of one network does not affect the other.
    guest.run("ip -n target link set eth1.10 down");
    both.await_links(&["eth1"]);
    for load in [a.load(), both.load()] {
        load.succeed(LIMIT);
    }
    let held_up = b.load();
    guest.run("ip -n target link set eth1.10 up");
    held_up.succeed(LIMIT);
    both.await_links(&["eth1", "eth1.10"]);
    a.await_links(&["eth1"]);
    b.await_links(&["eth1.10"]);
    for disk in [a, b, both] {
        disk.disconnect();
    }
    guest.run("kill $(pidof tyche)");
    target.succeed(LIMIT);
}

/// A bond is used instead of its members.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn bond() {
    let rig = Rig::new();
    let _target = rig.serve_new(64 * MIB);
    let guest = boot(&rig);
    guest.run(
        "modprobe bonding max_bonds=0; ip link set eth0 down\n\
         ip link add bond0 type bond mode active-backup miimon 100\n\
         for member in eth0 eth1; do ip link set $member master bond0; done\n\
         ip link set bond0 mtu 9000 up",
    );
    guest.wait_until("[ $(cat /sys/class/net/bond0/operstate) = up ]");
    let refused = guest.start("tyche connect disk --link eth0 2>&1").finish(LIMIT);
    assert!(refused.output.contains("eth0 is part of bond0"), "{}", refused.output);
    assert_eq!(refused.code, 5);
    let disk = Disk::connect(&guest, "disk", "");
    for active in ["eth0", "eth1"] {
        guest.run(&format!("ip link set bond0 type bond active_slave {active}"));
        disk.load().succeed(LIMIT);
        disk.await_links(&["bond0"]);
    }
    disk.disconnect();
}
