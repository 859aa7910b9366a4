//! The target: everything of a link is on the node of its interface.

use std::process::Output;

use serde_json::{Value, json};
use tyche_numa::Node;

use crate::maps;
use crate::rig::{Rig, rig, wait_until};

/// Pages of a channel's data queue, by default.
const QUEUE_PAGES: u64 = (32 << 20) / 4096;

/// Whether the running target, which is connected on both links, has all of each where its
/// interface is: as it says itself, and as the kernel says.
fn check(rig: &Rig, pid: u32) -> Result<(), String> {
    let said = rig.target();
    for (index, link) in said["links"].as_array().unwrap().iter().enumerate() {
        let cpus = rig.topology.cpus(Node(index as u16)).unwrap().to_string();
        let wanted = json!({
            "nic_node": index,
            "ring_nodes": [index],
            "channel_nodes": [index],
            "thread_cpus": cpus,
        });
        if link["numa"] != wanted {
            return Err(format!("link {index} says {}, and not {wanted}", link["numa"]));
        }
    }
    let maps = maps::of(pid);
    let rings: Vec<_> = maps.iter().filter(|it| it.is_ring()).collect();
    let queues: Vec<_> =
        maps.iter().filter(|it| it.is_bound() && it.len() >= QUEUE_PAGES).collect();
    for (what, mappings) in [("rings", &rings), ("data queues", &queues)] {
        let mut nodes: Vec<_> = mappings.iter().map(|mapping| mapping.node()).collect();
        nodes.sort_unstable();
        if nodes != [Some(0), Some(1)] {
            return Err(format!("{what} are not one on each node: {mappings:?}"));
        }
        for mapping in mappings {
            println!("{what}: {mapping:?}");
        }
    }
    Ok(())
}

/// Connects over both links, and checks the target.
fn serve_and_check(rig: &Rig, cpus: Option<&str>, affinity: &str) -> Result<(), String> {
    let target = rig.serve(cpus, &["--affinity", affinity]);
    let _session = rig.connect(&["h0", "h1"], &[]);
    let live = |link: &Value| link["channels"].as_array().is_some_and(|it| !it.is_empty());
    wait_until("both links have a channel", || {
        rig.target()["links"].as_array().unwrap().iter().all(live)
    });
    check(rig, target.pid())
}

#[test]
fn rings_queues_and_threads_are_on_the_node_of_the_interface() {
    let rig = rig!();
    for affinity in ["kmem-nic", "full-mem"] {
        serve_and_check(&rig, None, affinity).unwrap_or_else(|error| panic!("{affinity}: {error}"));
        println!("VERIFIED: --affinity {affinity}: each link's ring, data queue and thread");
    }
}

#[test]
fn without_affinity_the_same_check_fails() {
    let rig = rig!();
    // A target that starts on the CPUs of one node has everything there.
    let error = serve_and_check(&rig, Some("0"), "none").unwrap_err();
    assert!(error.starts_with("link 0 says") || error.starts_with("link 1 says"), "{error}");
    println!("VERIFIED: --affinity none does not pass: {error}");
}

#[test]
fn a_node_that_the_process_may_not_use_is_refused_with_one_line() {
    let rig = rig!();
    let refused = |command: &mut std::process::Command| {
        let Output { status, stderr, .. } = command.output().unwrap();
        let message = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), message.lines().count()), (Some(2), 1), "{message}");
        message
    };
    let args = ["serve", "--export", "disk=null:1G", "--affinity", "kmem-nic", "--link"];
    let message = refused(&mut rig.tyche(Some("0,2"), &[&args[..], &["t1"]].concat()));
    assert!(message.contains("node 1 has the CPUs 1,3"), "{message}");
    println!("VERIFIED: {}", message.trim_end());
}
