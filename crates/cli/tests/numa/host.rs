//! The host: rings on the node of their interface, a queue with its thread and request buffers on
//! each node, and requests on the node of their buffers.

use serde_json::{Value, json};

use crate::maps::{self, Mapping};
use crate::rig::{Rig, read_all, wait_until};

/// Bytes of the disk.
const SIZE: usize = 64 << 20;
/// Pages of the request buffers that a queue of a session keeps.
const KEPT_PAGES: u64 = (4 << 20) / 4096;

/// Waits until the session has a live channel on `count` links.
fn await_links(rig: &Rig, count: usize) {
    let is_live = |link: &&Value| link["live"] == json!(true);
    wait_until("all links have a channel", || {
        rig.session()["links"].as_array().unwrap().iter().filter(is_live).count() == count
    });
}

/// Whether the session of that process has each ring on its interface's node, by its own report and
/// by the kernel's.
fn rings_are_near(rig: &Rig, pid: u32) -> bool {
    let said = rig.session();
    let links = said["links"].as_array().unwrap();
    let near = |(index, link): (usize, &Value)| {
        let numa = &link["numa"];
        println!("h{index} says {numa}");
        numa["nic_node"] == json!(index) && numa["ring_nodes"] == json!([index])
    };
    let (said, maps) = (links.iter().enumerate().all(near), maps::of(pid));
    let rings: Vec<_> = maps.iter().filter(|it| it.is_ring()).collect();
    println!("numa_maps, rings: {rings:?}");
    assert_eq!(said, maps::as_many_on_each(&rings), "what it says is not what is so");
    said
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn rings_are_on_the_node_of_their_interface_only_if_that_is_wanted() {
    let rig = Rig::new();
    let _target = rig.serve(None, &[]);
    for (affinity, near) in [("none", false), ("kmem-nic", true), ("full-mem", true)] {
        // Without affinity everything is on the nodes where the process runs.
        let cpus = if near { None } else { Some("0,2") };
        let session = rig.connect(cpus, &["h0", "h1"], &["--affinity", affinity]);
        await_links(&rig, 2);
        assert_eq!(rings_are_near(&rig, session.pid), near, "{affinity}");
        let threads = if near { json!([0, 1]) } else { json!([null]) };
        assert_eq!(rig.session()["numa"]["thread_nodes"], threads, "a queue for each node");
        println!("VERIFIED host, {affinity}: rings near their interfaces: {near}");
    }
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn a_session_on_one_node_lives_there_and_moves_when_its_links_do() {
    let rig = Rig::new();
    let _target = rig.serve(None, &["--affinity", "kmem-nic"]);
    let _session = rig.connect(None, &["h1"], &["--affinity", "kmem-nic"]);
    let lives = |node: Value, cpus: &str| {
        let said = &rig.session()["numa"];
        let wanted = (json!([node]), json!(cpus));
        assert_eq!((&said["thread_nodes"], &said["thread_cpus"]), (&wanted.0, &wanted.1), "{said}");
    };
    lives(json!(1), "1,3");
    assert_eq!(rig.session()["numa"]["buffer_nodes"], json!([1]));
    rig.ask(&["link", "add", "disk", "h0", "-o", "json"]);
    await_links(&rig, 2);
    lives(Value::Null, "0-3");
    rig.ask(&["link", "del", "disk", "h1", "-o", "json"]);
    lives(json!(0), "0,2");
    println!("VERIFIED host, kmem-nic: the session's thread is where all of its links are");
}

/// The CPUs that the threads of a process may run on, by name.
fn threads(pid: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    let field = |status: &str, key| {
        let value = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        value.trim().to_owned()
    };
    statuses.map(|it| (field(&it, "Name:"), field(&it, "Cpus_allowed_list:"))).collect()
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn a_session_has_one_cache_on_the_node_of_its_interface() {
    let rig = Rig::new();
    assert_eq!(rig.topology.caches().len(), 4, "a cache for each CPU: {:?}", rig.topology);
    println!("h1 interrupts {}", rig.topology.interrupted("h1"));
    let _target = rig.serve(None, &[]);
    let session = rig.connect(None, &["h1"], &[]);
    let cpus = rig.session()["numa"]["thread_cpus"].as_str().unwrap().to_owned();
    assert!(["1", "3"].contains(&&*cpus), "{cpus}");
    let threads = threads(session.pid);
    println!("{threads:?}");
    // The log is not in the way of any request.
    assert!(threads.iter().all(|(name, other)| name == "log" || *other == cpus));
    let list = rig.tyche(None, &["list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains(&format!("live on CPUs {cpus}")), "{list}");
    println!("VERIFIED host, cache: its threads are on CPUs {cpus}");
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn a_session_that_is_too_wide_for_a_cache_is_not_placed() {
    let rig = Rig::new();
    let _target = rig.serve(None, &[]);
    for args in [&["--queues", "2"][..], &["--affinity", "none"]] {
        let _session = rig.connect(None, &["h1"], args);
        assert_eq!(rig.session()["numa"]["thread_cpus"], json!("0-3"), "{args:?}");
    }
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn buffers_are_on_every_node_and_requests_stay_there() {
    let rig = Rig::new();
    let _target = rig.serve(None, &["--affinity", "full-mem"]);
    let session = rig.connect(None, &["h0", "h1"], &["--affinity", "full-mem"]);
    await_links(&rig, 2);
    assert_eq!(read_all(&session.device), SIZE);
    let said = &rig.session()["numa"];
    assert_eq!(said["buffer_nodes"], json!([0, 1]), "{said}");
    let maps = maps::of(session.pid);
    let is_part = |it: &&Mapping| it.is_bound() && it.len() == KEPT_PAGES;
    let parts: Vec<_> = maps.iter().filter(is_part).collect();
    assert!(maps::as_many_on_each(&parts), "{maps:?}");
    println!("numa_maps, buffers: {parts:?}");
    let (stayed, crossed) = (&said["requests_stayed"], &said["requests_crossed"]);
    assert!(stayed.as_u64().unwrap() > 0 && crossed == &json!(0), "{said}");
    println!("VERIFIED host, full-mem: {stayed} requests stayed on their node, {crossed} crossed");
}

/// Reads for a moment; returns how many requests stayed and crossed, and how many each link of the
/// target has answered.
fn bench(rig: &Rig, links: &[&str], affinity: &str) -> ([u64; 2], Vec<u64>) {
    let answered = || -> Vec<u64> {
        let target = rig.target();
        let links = target["links"].as_array().unwrap().iter();
        links.map(|link| link["requests"].as_u64().unwrap()).collect()
    };
    let before = answered();
    let links = links.iter().flat_map(|link| ["--link", *link]);
    let load = ["--rw", "randread", "--iodepth", "8", "--runtime", "1", "-o", "json"];
    let args = ["bench", "disk", "--affinity", affinity].into_iter().chain(links).chain(load);
    let result = rig.ask(&args.collect::<Vec<_>>());
    let count = |name: &str| result[name].as_u64().unwrap();
    let answered = answered().iter().zip(before).map(|(after, before)| after - before).collect();
    let counts = [count("requests_stayed"), count("requests_crossed")];
    println!("{affinity}: stayed and crossed {counts:?}, answered by t0 and t1 {answered:?}");
    (counts, answered)
}

#[test]
#[ignore = "wants two NUMA nodes: cargo xtask numa"]
fn the_channel_is_that_of_the_buffers_node_while_there_is_one() {
    let rig = Rig::new();
    let _target = rig.serve(None, &["--affinity", "full-mem"]);
    // Half of the buffers are on each node.
    let ([stayed, crossed], answered) = bench(&rig, &["h0", "h1"], "full-mem");
    // The channel of one interface may be live a moment before the other.
    assert!(stayed > 10 * crossed, "{crossed} of {stayed} crossed");
    let [t0, t1] = answered[..] else { panic!("two links") };
    // How many depends on the speed of each.
    assert!(t0 > 0 && t1 > 0, "each interface has its node's requests");
    println!("VERIFIED host, full-mem: the requests of each node's buffers go over its interface");
    // Without an interface of their node requests cross, and are counted.
    let ([stayed, crossed], answered) = bench(&rig, &["h0"], "full-mem");
    assert!(crossed > stayed / 4 && stayed > crossed / 4, "half of the buffers are on node 1");
    assert_eq!(answered[1], 0);
    println!("VERIFIED host, full-mem on one interface: {crossed} requests crossed, {stayed} not");
    // A queue has the memory of its node whether or not other memory is spread.
    let ([stayed, crossed], _) = bench(&rig, &["h0", "h1"], "kmem-nic");
    assert!(stayed > 10 * crossed, "{crossed} of {stayed} crossed");
    // Requests are not counted by node if their memory is not placed.
    assert_eq!(bench(&rig, &["h0", "h1"], "none").0, [0, 0]);
    assert_eq!(bench(&rig, &["h0"], "kmem-nic").0, [0, 0]);
}
