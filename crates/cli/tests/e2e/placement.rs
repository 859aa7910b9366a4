//! `--affinity` on a machine with one node, where it does nothing; `tests/numa` tests it on two
//! nodes.

use serde_json::{Value, json};

use crate::rig::{DISK, PATIENCE, Side, finish, rig, run};

const NOTICE: &str = "--affinity does nothing here: this machine has one NUMA node";

fn has_one_node() -> bool {
    let nodes = std::fs::read_to_string("/sys/devices/system/node/online");
    nodes.is_ok_and(|nodes| nodes.trim() == "0")
}

#[test]
fn with_one_node_affinity_does_nothing_and_says_so() {
    if !has_one_node() {
        println!("SKIPPED: this machine has several NUMA nodes, or does not tell");
        return;
    }
    let rig = rig!(1500);
    let target = rig.serve(&["--export", &format!("{DISK}=mem:8M"), "--affinity", "kmem-nic"]);
    target.await_log(NOTICE);
    let link = rig.cable.link(Side::Host);
    let args = ["connect", DISK, "--link", link, "--as", "fuse", "--affinity", "full-mem"];
    let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    assert!(done.success() && done.stderr.contains(NOTICE), "{}", done.stderr);
    let (session, target) = rig.stats();
    let numa = &session["numa"];
    assert_eq!((&numa["thread_nodes"], &numa["buffer_nodes"]), (&json!([null]), &json!([0])));
    assert_eq!((&numa["requests_stayed"], &numa["requests_crossed"]), (&json!(0), &json!(0)));
    for link in [&session["links"][0], &target["links"][0]] {
        // A veth is on no node; its ring still is.
        let (nic, ring) = (&link["numa"]["nic_node"], &link["numa"]["ring_nodes"]);
        assert_eq!((nic, ring), (&Value::Null, &json!([0])), "{link}");
    }
    let text = run(&mut rig.tyche(Side::Host, &["stats", "-v"]));
    for line in ["numa thread cpus", "numa buffer nodes                0\n", "ring nodes"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn an_affinity_that_there_is_not_is_refused() {
    let rig = rig!(1500);
    let args = ["serve", "--export", "disk=null:1G", "--affinity", "all"];
    let done = finish(&mut rig.tyche(Side::Target, &args), PATIENCE);
    assert_eq!(done.status.code(), Some(2));
    for value in ["none", "cache", "kmem-nic", "full-mem"] {
        assert!(done.stderr.contains(value), "{}", done.stderr);
    }
}
