//! Targets that are found over UDP by hosts that do not know their addresses.

use serde_json::Value;

use crate::refusals::{expect, refused};
use crate::rig::{PATIENCE, Rig, Side, finish, rig, run, wait_until};

const SIZE: u64 = 64 << 20;
const LINK: &str = "udp:10.8.0.1";
/// The name of the link, as it is reported.
const PLACE: &str = "udp:10.8.0.1:8650";
const SEARCH: [&str; 5] = ["discover", "--link", "udp:", "--timeout", "1"];

/// Gives the ends of the first cable an address each.
fn addressed(rig: Rig) -> Rig {
    for (side, address) in [(Side::Target, "10.8.0.1/24"), (Side::Host, "10.8.0.2/24")] {
        rig.cable.ip(side, &["address", "add", address, "dev", rig.cable.link(side)]);
    }
    rig
}

/// The exports that a search finds, each with its place.
fn found(rig: &Rig) -> Vec<(String, String)> {
    let value = rig.ask(&SEARCH);
    let text = |export: &Value, key: &str| export[key].as_str().unwrap().to_owned();
    let exports = value["exports"].as_array().unwrap();
    let mut found: Vec<_> =
        exports.iter().map(|it| (text(it, "export"), text(it, "interface"))).collect();
    found.sort();
    found
}

/// Checks that a search ends with exit code 3 and a message with these parts.
fn finds_nothing(rig: &Rig, parts: &[&str]) {
    assert_eq!(found(rig), []);
    expect(&finish(&mut rig.tyche(Side::Host, &SEARCH), PATIENCE), &SEARCH, 3, parts);
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(export, place)| (export.to_owned(), place.to_owned())).collect()
}

#[test]
fn targets_of_one_machine_are_found_whatever_their_addresses_and_ports() {
    let rig = addressed(rig!(1500));
    rig.file("disk.img", SIZE);
    let link = rig.cable.link(Side::Host);
    let told = ["no target answers over UDP on", link, "UDP port 8651", "--link udp:HOST"];
    finds_nothing(&rig, &told);
    let one = rig.serve_on(&["--link", LINK, "--threads", "2"], &["--export", &rig.export()]);
    assert_eq!(found(&rig), pairs(&[("disk", PLACE)]));
    let exports: Vec<_> = (0..23).map(|number| format!("--export=mem{number:02}=mem:1M")).collect();
    let exports: Vec<_> = exports.iter().map(String::as_str).collect();
    let other = rig.serve_as("other", &["--link", "udp:0.0.0.0:9000"], &exports);
    let mut wanted = pairs(&[("disk", PLACE)]);
    wanted.extend((0..23).map(|it| (format!("mem{it:02}"), "udp:10.8.0.1:9000".to_owned())));
    assert_eq!(found(&rig), wanted);
    let text = run(&mut rig.tyche(Side::Host, &SEARCH));
    assert!(text.contains("mem22") && text.contains("udp:10.8.0.1:9000"), "{text}");
    // The questions count as those of the link.
    let links = rig.ask(&["stats", "e2e"])["targets"][0]["links"].clone();
    assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
    assert!(links[0]["rx_frames"].as_u64().unwrap() >= 6, "{links}");
    other.kill();
    one.kill();
    finds_nothing(&rig, &told);
}

#[test]
fn a_target_declines_by_an_option_and_in_its_file() {
    let rig = addressed(rig!(1500));
    rig.file("disk.img", SIZE);
    let args = ["--export", &rig.export()];
    let target = rig.serve_on(&["--link", LINK, "--no-udp-discovery"], &args);
    finds_nothing(&rig, &["no target answers over UDP"]);
    let known = rig.ask(&["discover", "--link", LINK]);
    assert_eq!(known["exports"][0]["export"], "disk", "{known}");
    target.kill();
    let file = rig.path("target.toml");
    std::fs::write(&file, "udp_discovery = false\n").unwrap();
    let file = file.display().to_string();
    let _target = rig.serve_on(&["--link", LINK, "--config", &file], &args);
    finds_nothing(&rig, &["no target answers over UDP"]);
}

#[test]
fn a_target_at_an_inner_address_says_nothing_on_other_segments() {
    let rig = addressed(rig!(1500));
    rig.cable.add(&[("inner-t", "inner-h")], 1500);
    rig.cable.ip(Side::Target, &["address", "add", "10.9.0.1/24", "dev", "inner-t"]);
    rig.file("disk.img", SIZE);
    let _target = rig.serve_on(&["--link", "udp:10.9.0.1"], &["--export", &rig.export()]);
    finds_nothing(&rig, &["no target answers over UDP on", rig.cable.link(Side::Host)]);
    rig.cable.ip(Side::Host, &["address", "add", "10.9.0.2/24", "dev", "inner-h"]);
    assert_eq!(found(&rig), pairs(&[("disk", "udp:10.9.0.1:8650")]));
}

#[test]
fn a_target_to_which_there_is_no_route_hides_no_other() {
    let rig = addressed(rig!(1500));
    rig.cable.add(&[("inner-t", "inner-h")], 1500);
    rig.cable.ip(Side::Target, &["address", "add", "10.9.0.1/24", "dev", "inner-t"]);
    rig.cable.ip(Side::Host, &["address", "add", "10.9.0.2/32", "dev", "inner-h"]);
    rig.file("disk.img", SIZE);
    let _inner = rig.serve_as("inner", &["--link", "udp:10.9.0.1"], &["--export", "a=mem:1M"]);
    finds_nothing(&rig, &["udp:10.9.0.1:8650", "no route"]);
    let _target = rig.serve_on(&["--link", LINK], &["--export", &rig.export()]);
    assert_eq!(found(&rig), pairs(&[("disk", PLACE)]));
}

#[test]
fn a_segment_needs_no_addresses_but_those_that_ipv6_makes() {
    let rig = rig!(1500);
    rig.file("disk.img", SIZE);
    let _target = rig.serve_on(&["--link", "udp:[::]"], &["--export", &rig.export()]);
    let mut places = Vec::new();
    wait_until("the addresses are good, and the target is found", || {
        places = found(&rig);
        !places.is_empty()
    });
    let [(export, place)] = &places[..] else { panic!("{places:?}") };
    assert_eq!(export, "disk");
    assert!(place.starts_with("udp:[fe80::") && place.ends_with("]:8650"), "{place}");
    let session = rig.connect_over(Side::Host, &["--as", "nbd-socket", "--link", place]);
    assert_eq!(session.value["links"][0]["interface"], place.as_str());
    session.disconnect();
    // Other addresses are good for longer.
    let rig = addressed(rig);
    assert_eq!(found(&rig), pairs(&[("disk", PLACE)]));
}

#[test]
fn what_is_in_the_way_of_a_search_is_named() {
    let rig = rig!(1500);
    rig.cable.ip(Side::Host, &["link", "set", rig.cable.link(Side::Host), "addrgenmode", "none"]);
    rig.cable.ip(Side::Host, &["address", "flush", "dev", rig.cable.link(Side::Host)]);
    finds_nothing(&rig, &["no interface with an address of IP is up"]);
    let rig = addressed(rig);
    let chain = "add table inet wall; add chain inet wall here { type filter hook output \
                 priority 0; }; add rule inet wall here udp dport 8651 drop";
    rig.cable.end(Side::Host).nft(chain);
    finds_nothing(&rig, &["firewall of this machine", "255.255.255.255:8651", "UDP port 8651"]);
    let args = ["connect", "disk", "--link", "udp:"];
    refused(&rig, Side::Host, &args, 2, &["no host", "tyche discover --link udp:"]);
}
