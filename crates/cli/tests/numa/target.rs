//! The target: everything of a link is on the node of its interface.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rustix::mount::{MountFlags, mount};
use serde_json::{Value, json};
use tyche_numa::Node;

use crate::maps::{self, Mapping};
use crate::rig::{Rig, wait_until, write_all};

/// Pages of a data queue that a channel may always use: writes of 1 MiB use all of them.
const QUEUE_PAGES: u64 = (128 << 10) / 4096;

/// The parts of a running target, connected on both links, that are not on their interface's node,
/// by its own report and by the kernel's.
fn misplaced(rig: &Rig, pid: u32) -> Vec<String> {
    let (said, mut wrong) = (rig.target(), Vec::new());
    for (index, link) in said["links"].as_array().unwrap().iter().enumerate() {
        let cpus = rig.topology.cpus(Node(index as u16)).unwrap().to_string();
        let right = json!({
            "nic_node": index,
            "ring_nodes": [index],
            "channel_nodes": [index],
            "thread_cpus": cpus,
        });
        for (what, right) in right.as_object().unwrap() {
            if link["numa"][what] != *right {
                let said = &link["numa"][what];
                wrong.push(format!("t{index} says {what} {said}, not {right}"));
            }
        }
    }
    let maps = maps::of(pid);
    let is_queue = |it: &&Mapping| it.is_bound() && it.len() >= QUEUE_PAGES;
    let rings: Vec<_> = maps.iter().filter(|it| it.is_ring()).collect();
    let queues: Vec<_> = maps.iter().filter(is_queue).collect();
    for (what, mappings) in [("rings", &rings), ("data queues", &queues)] {
        if maps::as_many_on_each(mappings) {
            println!("numa_maps, {what}: {mappings:?}");
        } else {
            wrong.push(format!("numa_maps has {what} {mappings:?}"));
        }
    }
    wrong
}

/// Connects over both links, writes, and inspects the target.
fn serve_and_look(rig: &Rig, cpus: Option<&str>, affinity: &str) -> Vec<String> {
    let target = rig.serve(cpus, &["--affinity", affinity]);
    let session = rig.connect(None, &["h0", "h1"], &[]);
    let live = |link: &Value| link["channels"].as_array().is_some_and(|it| !it.is_empty());
    wait_until("both links have a channel", || {
        rig.target()["links"].as_array().unwrap().iter().all(live)
    });
    // A data queue has memory as it is used.
    write_all(&session.device);
    misplaced(rig, target.id())
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn rings_queues_and_threads_are_on_the_node_of_the_interface() {
    let rig = Rig::new();
    for affinity in ["kmem-nic", "full-mem"] {
        assert_eq!(serve_and_look(&rig, None, affinity), [""; 0], "{affinity}");
        println!(
            "VERIFIED target, {affinity}: ring, data queue and thread of each link are on the \
             node of its interface"
        );
    }
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn without_affinity_they_are_not_and_that_is_noticed() {
    let rig = Rig::new();
    // On the CPUs of one node everything is there: right for t0, wrong for t1.
    let wrong = serve_and_look(&rig, Some("0,2"), "none");
    let begins = [
        "t1 says channel_nodes [0]",
        "t1 says ring_nodes [0]",
        "t1 says thread_cpus",
        "numa_maps has rings",
        "numa_maps has data queues",
    ];
    assert_eq!(wrong.len(), begins.len(), "{wrong:#?}");
    for begin in begins {
        assert!(wrong.iter().any(|it| it.starts_with(begin)), "no `{begin}`: {wrong:#?}");
    }
    println!("VERIFIED target, none: the same look finds {}", wrong.join("; "));
}

/// The one line of a command's error message.
fn refusal(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), message.lines().count()), (Some(2), 1), "{message}");
    message
}

const SERVE: [&str; 7] =
    ["serve", "--export", "disk=null:1G", "--affinity", "kmem-nic", "--link", "t1"];

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn cpus_that_the_process_may_not_use_are_named() {
    let rig = Rig::new();
    let message = refusal(&mut rig.tyche(Some("0,2"), &SERVE));
    assert!(message.contains("node 1 has the CPUs 1,3"), "{message}");
    assert!(message.contains("run on 0,2 only"), "{message}");
    println!("VERIFIED refusal: {}", message.trim_end());
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn a_node_whose_memory_the_process_may_not_use_is_named() {
    let rig = Rig::new();
    let groups = Path::new("/tmp/cgroup");
    fs::create_dir_all(groups).unwrap();
    mount("cgroup", groups, "cgroup2", MountFlags::empty(), None).unwrap();
    fs::write(groups.join("cgroup.subtree_control"), "+cpuset").unwrap();
    let group = groups.join("node0");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("cpuset.mems"), "0").unwrap();
    let join = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.display());
    let serve = rig.tyche(None, &SERVE);
    let mut inside = Command::new("sh");
    inside.args(["-c", &join, "sh"]).arg(serve.get_program()).args(serve.get_args());
    let message = refusal(&mut inside);
    assert!(message.contains("node 1 has no memory for this process"), "{message}");
    println!("VERIFIED refusal: {}", message.trim_end());
}
