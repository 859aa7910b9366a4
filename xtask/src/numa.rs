//! `cargo xtask numa`: placement, proven on a virtual machine with two NUMA nodes and four caches.
//!
//! The tests are those of `crates/cli/tests/numa`. They run inside: `qemu` emulates a machine with
//! two nodes of two CPUs each, every one with a last-level cache of its own, and on each node two
//! network interfaces joined by a cable. It needs only files of this machine, neither KVM nor
//! network interfaces.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::vm::{self, Script, Series};
use crate::{Result, cargo, packages};

/// Interfaces of the guest: name, node, and number of the cable.
const INTERFACES: [(&str, u8, u8); 4] = [("t0", 0, 0), ("h0", 0, 0), ("t1", 1, 1), ("h1", 1, 1)];

/// Modules of the kernel that the tests need.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_net", "fuse", "loop"];

/// Builds the tests, and runs them in the machine; false if one failed.
pub(crate) fn run() -> Result<bool> {
    packages::install(packages::VM)?;
    let mut build = cargo();
    build.args(["test", "--no-run", "--package", "tyche", "--test", "numa"]);
    build.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = build.output().map_err(|error| format!("cargo test: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Ok(false);
    }
    let [program, tests] = [executable(&messages, "bin"), executable(&messages, "test")]
        .map(|path| path.ok_or("cargo does not say what it has built"));
    let (program, tests) = (program?, tests?);
    let script = Script {
        kernel: Series::V6_1,
        modules: &MODULES,
        programs: &[Path::new(program), Path::new(tests)],
        lines: &script(tests),
    };
    vm::run_script(&script, machine)
}

/// The script that the machine runs.
fn script(tests: &str) -> String {
    let names: String = (0..)
        .zip(INTERFACES)
        .map(|(index, (name, ..))| {
            format!("nameif {name} {}\nip link set {name} mtu 9000 up\n", mac(index))
        })
        .collect();
    format!("{names}{tests} --include-ignored --test-threads 1 --show-output\n")
}

fn mac(index: u8) -> String {
    format!("52:54:00:00:00:{index:02x}")
}

/// Adds two nodes with CPUs, memory, a bus, and the interfaces on it.
fn machine(qemu: &mut Command) {
    // Linux asks this processor for its caches. Each die has one.
    let cpu = "max,vendor=GenuineIntel,family=6,model=85,l3-cache=on";
    qemu.args(["-machine", "q35", "-cpu", cpu, "-m", "1G"]);
    qemu.args(["-smp", "4,sockets=2,dies=2,cores=1,threads=1"]);
    for node in 0..2 {
        qemu.args(["-object", &format!("memory-backend-ram,id=m{node},size=512M")]);
        qemu.args(["-numa", &format!("node,nodeid={node},memdev=m{node}")]);
        for cpu in [node, node + 2] {
            let (socket, die) = (cpu / 2, cpu % 2);
            qemu.args(["-numa", &format!("cpu,node-id={node},socket-id={socket},die-id={die}")]);
        }
        // A bus of the node, and a port for each interface.
        let bus =
            format!("pxb-pcie,id=bus{node},bus=pcie.0,bus_nr={},numa_node={node}", 64 * (node + 1));
        qemu.args(["-device", &bus]);
    }
    for (index, (name, node, cable)) in (0..).zip(INTERFACES) {
        let port = format!(
            "pcie-root-port,id=port{name},bus=bus{node},chassis={},slot={index}",
            index + 1
        );
        qemu.args(["-device", &port]);
        qemu.args(["-netdev", &format!("hubport,id={name},hubid={cable}")]);
        let mac = mac(index);
        let nic =
            format!("virtio-net-pci,netdev={name},bus=port{name},mac={mac},host_mtu=9000,romfile=");
        qemu.args(["-device", &nic]);
    }
}

/// The path of the executable of that kind that cargo has built.
fn executable<'a>(messages: &'a str, kind: &str) -> Option<&'a str> {
    let kind = format!("\"kind\":[\"{kind}\"]");
    let built = messages.lines().filter(|line| line.contains(&kind));
    let paths = built.filter_map(|line| line.split_once("\"executable\":\""));
    paths.filter_map(|(_, rest)| rest.split('"').next()).next_back()
}
