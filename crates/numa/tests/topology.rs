//! Machines as trees of files: `/sys`, and the topology read from it.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tyche_numa::{Affinity, Cpus, Error, Node, Placement, Topology};

/// A machine to describe.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(machine.sys().join("class/net")).unwrap();
        machine
    }

    /// Its sysfs, with procfs beside it.
    fn sys(&self) -> PathBuf {
        self.0.path().join("sys")
    }

    /// One node, and caches of these CPUs.
    fn of_caches(caches: &[&str]) -> Self {
        let machine = Self::new();
        let all: Vec<Cpus> = caches.iter().map(|cpus| cpus.parse().unwrap()).collect();
        machine.file("devices/system/cpu/online", &caches.join(","));
        for (cpu, cache) in all.iter().flat_map(|cache| cache.iter().map(move |cpu| (cpu, cache))) {
            for (level, shared) in [("1", cpu.to_string()), ("3", cache.to_string())] {
                let index = format!("devices/system/cpu/cpu{cpu}/cache/index{level}");
                machine.file(&format!("{index}/level"), level);
                machine.file(&format!("{index}/shared_cpu_list"), &shared);
            }
        }
        machine
    }

    /// An interface with these interrupts, each with its CPUs.
    fn interrupting(&self, name: &str, interrupts: &[(u32, &str)]) {
        self.interface(name, &format!("pci/{name}/virtio0"));
        for (number, cpus) in interrupts {
            self.file(&format!("devices/pci/{name}/msi_irqs/{number}"), "msix\n");
            self.file(&format!("../proc/irq/{number}/effective_affinity_list"), cpus);
        }
    }

    /// Two nodes of four CPUs; the second list is in the order of hyper-threads.
    fn of_two_nodes() -> Self {
        let machine = Self::new();
        machine.file("devices/system/node/online", "0-1\n");
        machine.file("devices/system/node/has_memory", "0-1\n");
        machine.file("devices/system/node/node0/cpulist", "0-3\n");
        machine.file("devices/system/node/node1/cpulist", "4-5,8-9\n");
        machine
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.sys().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// An interface as in sysfs: a link to a directory below its device.
    fn interface(&self, name: &str, device: &str) {
        let device = self.sys().join("devices").join(device);
        let own = device.join("net").join(name);
        fs::create_dir_all(&own).unwrap();
        symlink(&device, own.join("device")).unwrap();
        symlink(own, self.sys().join("class/net").join(name)).unwrap();
    }

    /// An interface without a device, on top of others.
    fn virtual_interface(&self, name: &str, below: &[&str]) {
        let own = self.sys().join("devices/virtual/net").join(name);
        fs::create_dir_all(&own).unwrap();
        for lower in below {
            let target = self.sys().join("class/net").join(lower);
            symlink(target, own.join(format!("lower_{lower}"))).unwrap();
        }
        symlink(own, self.sys().join("class/net").join(name)).unwrap();
    }

    fn topology(&self) -> Topology {
        Topology::read(&self.sys()).unwrap()
    }
}

#[test]
fn nodes_and_their_cpus_are_found() {
    let topology = Machine::of_two_nodes().topology();
    assert!(!topology.is_uniform());
    assert_eq!(topology.nodes().collect::<Vec<_>>(), [Node(0), Node(1)]);
    assert_eq!(topology.cpus(Node(1)).unwrap().to_string(), "4-5,8-9");
    assert_eq!(topology.node_of_cpu(8), Some(Node(1)));
    assert_eq!(topology.node_of_cpu(6), None);
}

#[test]
fn a_node_may_lack_memory_or_cpus() {
    let machine = Machine::of_two_nodes();
    machine.file("devices/system/node/online", "0-2\n");
    machine.file("devices/system/node/has_memory", "0,2\n");
    machine.file("devices/system/node/node2/cpulist", "\n");
    let topology = machine.topology();
    assert_eq!(topology.with_memory(), [Node(0), Node(2)]);
    assert!(topology.cpus(Node(2)).unwrap().is_empty());
}

#[test]
fn the_node_of_an_interface_is_that_of_the_device_it_hangs_on() {
    let machine = Machine::of_two_nodes();
    machine.file("devices/pci0000:80/numa_node", "0\n");
    machine.file("devices/pci0000:80/0000:80:01.0/numa_node", "1\n");
    machine.interface("nic", "pci0000:80/0000:80:01.0");
    // virtio: a device of a device that has a node.
    machine.interface("virtio", "pci0000:80/0000:80:01.0/virtio3");
    machine.file("devices/pci0000:00/0000:00:02.0/numa_node", "-1\n");
    machine.interface("untold", "pci0000:00/0000:00:02.0");
    machine.file("devices/pci0000:00/0000:00:03.0/numa_node", "7\n");
    machine.interface("offline", "pci0000:00/0000:00:03.0");
    machine.virtual_interface("veth0", &[]);
    let topology = machine.topology();
    assert_eq!(topology.node_of_interface("nic"), Some(Node(1)));
    assert_eq!(topology.node_of_interface("virtio"), Some(Node(1)));
    for name in ["untold", "offline", "veth0", "missing", "", ".", "..", "../net/nic", "tcp:a:1"] {
        assert_eq!(topology.node_of_interface(name), None, "{name}");
    }
}

#[test]
fn a_device_that_does_not_know_asks_the_bridge_above() {
    let machine = Machine::of_two_nodes();
    machine.file("devices/pci0000:80/0000:80:01.0/numa_node", "1\n");
    machine.file("devices/pci0000:80/0000:80:01.0/0000:81:00.0/numa_node", "-1\n");
    machine.interface("nic", "pci0000:80/0000:80:01.0/0000:81:00.0");
    assert_eq!(machine.topology().node_of_interface("nic"), Some(Node(1)));
}

#[test]
fn vlans_and_bonds_are_where_their_interfaces_are() {
    let machine = Machine::of_two_nodes();
    for (name, node) in [("a", "0"), ("b", "1"), ("c", "1")] {
        machine.file(&format!("devices/pci/{name}/numa_node"), node);
        machine.interface(name, &format!("pci/{name}"));
    }
    machine.virtual_interface("a.7", &["a"]);
    machine.virtual_interface("bond-of-one-node", &["b", "c"]);
    machine.virtual_interface("bond-of-two", &["a", "b"]);
    machine.virtual_interface("vlan-on-bond", &["bond-of-one-node"]);
    machine.virtual_interface("half-unknown", &["b", "veth0"]);
    machine.virtual_interface("veth0", &[]);
    machine.virtual_interface("loop", &["loop"]);
    let topology = machine.topology();
    assert_eq!(topology.node_of_interface("a.7"), Some(Node(0)));
    assert_eq!(topology.node_of_interface("bond-of-one-node"), Some(Node(1)));
    assert_eq!(topology.node_of_interface("vlan-on-bond"), Some(Node(1)));
    for name in ["bond-of-two", "half-unknown", "loop"] {
        assert_eq!(topology.node_of_interface(name), None, "{name}");
    }
}

#[test]
fn a_kernel_without_numa_has_one_node() {
    let machine = Machine::new();
    machine.file("devices/pci/a/numa_node", "0\n");
    machine.interface("a", "pci/a");
    let topology = machine.topology();
    assert!(topology.is_uniform());
    let placement = Placement::new(Affinity::FullMem, topology).unwrap();
    assert!(!placement.is_active() && placement.buffer_nodes().is_empty());
    let home = placement.home("a").unwrap();
    assert_eq!((home.nic, home.node()), (Some(Node(0)), None));
    assert_eq!(home.cpus(), None);
    assert!(home.near().unwrap().is_none());
}

#[test]
fn nonsense_is_an_error_that_names_the_file() {
    let machine = Machine::of_two_nodes();
    machine.file("devices/system/node/node1/cpulist", "4-banana\n");
    let error = Topology::read(&machine.sys()).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }));
    let message = error.to_string();
    assert!(message.contains("node1/cpulist: `4-banana`"), "{message}");
}

#[test]
fn a_node_without_usable_cpus_is_refused_with_both_lists() {
    let machine = Machine::of_two_nodes();
    // More CPUs than any machine that runs this test has.
    machine.file("devices/system/node/node1/cpulist", "1020-1023\n");
    machine.file("devices/pci/a/numa_node", "1\n");
    machine.interface("a", "pci/a");
    let topology = machine.topology();
    let none = Placement::new(Affinity::None, topology.clone()).unwrap();
    assert_eq!(none.home("a").unwrap().node(), None);
    let placement = Placement::new(Affinity::KmemNic, topology).unwrap();
    let message = placement.home("a").unwrap_err().to_string();
    assert!(message.contains("node 1 has the CPUs 1020-1023"), "{message}");
}

fn cpus(list: &str) -> Cpus {
    list.parse().unwrap()
}

#[test]
fn a_session_gets_the_cache_that_its_interfaces_interrupt() {
    let machine = Machine::of_caches(&["0-3", "4-7"]);
    machine.interrupting("nic", &[(30, "5\n"), (31, "6\n")]);
    machine.interrupting("spread", &[(32, "1\n"), (33, "5\n")]);
    machine.virtual_interface("veth0", &[]);
    machine.virtual_interface("nic.7", &["nic"]);
    let topology = machine.topology();
    assert_eq!(topology.caches(), [cpus("0-3"), cpus("4-7")]);
    assert_eq!(topology.interrupted("nic"), cpus("5-6"));
    assert!(topology.interrupted("veth0").is_empty());
    let all = cpus("0-7");
    for turn in 0..2 {
        let of = |interface| topology.cache_for((1, &[interface]), &all, &[], turn);
        assert_eq!((of("nic"), of("nic.7")), (Some(cpus("4-7")), Some(cpus("4-7"))));
        let any = [cpus("0-3"), cpus("4-7")][turn].clone();
        assert_eq!((of("spread"), of("veth0")), (Some(any.clone()), Some(any)), "none is better");
    }
}

#[test]
fn sessions_are_spread_over_the_caches() {
    let machine = Machine::of_caches(&["0-3", "4-7"]);
    machine.interrupting("nic", &[(30, "5\n")]);
    let topology = machine.topology();
    for interface in ["nic", "veth0"] {
        let mut others = vec![cpus("0-7"), cpus("2")];
        for turn in 0..99 {
            let next = topology.cache_for((1, &[interface]), &cpus("0-7"), &others, turn * 7);
            others.push(next.unwrap());
        }
        let [first, second] = ["0-3", "4-7"].map(|group| {
            let group = cpus(group);
            others.iter().filter(|it| group.contains(it)).count()
        });
        assert_eq!((first, second), (50, 50), "{interface}");
    }
}

#[test]
fn a_session_that_fits_into_no_cache_is_left_alone() {
    let machine = Machine::of_caches(&["0-3", "4-7"]);
    let topology = machine.topology();
    let choose = |threads, allowed| topology.cache_for((threads, &[]), &cpus(allowed), &[], 0);
    assert_eq!(choose(4, "0-7"), Some(cpus("0-3")));
    assert_eq!(choose(5, "0-7"), None, "too many threads");
    assert_eq!(choose(2, "3-5"), Some(cpus("4-5")), "as far as the process may use them");
    assert_eq!(choose(1, "0-2"), None, "there is no choice");
    assert_eq!(Machine::new().topology().cache_for((1, &[]), &cpus("0-7"), &[], 0), None);
}

#[test]
fn a_session_stays_on_the_node_of_its_interface() {
    let machine = Machine::of_caches(&["0-1", "2-3", "4-5", "6-7"]);
    machine.file("devices/system/node/online", "0-1\n");
    machine.file("devices/system/node/node0/cpulist", "0-3\n");
    machine.file("devices/system/node/node1/cpulist", "4-7\n");
    machine.file("devices/pci/nic/numa_node", "1\n");
    machine.interface("nic", "pci/nic");
    let topology = machine.topology();
    for turn in 0..4 {
        let chosen = topology.cache_for((2, &["nic"]), &cpus("0-7"), &[], turn).unwrap();
        assert!(cpus("4-7").contains(&chosen), "{chosen}");
    }
}

#[test]
fn this_machine_can_be_read() {
    let topology = Topology::read(Path::new("/sys")).unwrap();
    let allowed = tyche_numa::allowed_cpus().unwrap();
    let cpu = allowed.iter().next().expect("this runs somewhere");
    assert!(topology.is_uniform() || topology.node_of_cpu(cpu).is_some());
}
