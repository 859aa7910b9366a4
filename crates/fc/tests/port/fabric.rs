//! Ports in a fabric: with a forwarder, the name server, and changes that it tells of.

use std::time::Duration;

use tyche_fc::neighbour::Functions;
use tyche_fc::network::Network as Attached;
use tyche_fc::port::Cause;
use tyche_fc::wire::PortId;
use tyche_fcf::{Fcf, FcfConfig};
use tyche_testkit::random::Random;

use crate::air::ms;
use crate::network::{BOTH, INITIATOR, Network, TARGET, forwarder};

/// The time in which all have found each other, if nothing is lost.
const SOON: Duration = Duration::from_secs(5);
/// The time in which a node notices that its forwarder is silent, and others that it is.
const SILENCE: Duration = Duration::from_secs(21);

/// Ports that have found each other.
fn fabric(seed: u64, functions: &[Functions]) -> Network {
    let mut network = Network::with_forwarders(seed, functions, vec![forwarder(0)]);
    network.run(SOON);
    network
}

/// The ports that the forwarder has.
fn ids(network: &Network) -> Vec<PortId> {
    network.nodes.iter().map(|it| it.id().unwrap()).collect()
}

#[test]
fn ports_find_each_other_by_the_name_server_and_log_in() {
    for seed in 0..50 {
        for functions in [&[INITIATOR, TARGET][..], &[TARGET, INITIATOR, TARGET], &[BOTH, BOTH]] {
            let mut network = fabric(seed, functions);
            if functions[0] == BOTH {
                // Of two PLOGIs that cross, one may come so late that it begins another login.
                network.run(ms(30_000));
            }
            network.assert_logged_in();
            let logins = network.nodes[0].live.values();
            for login in logins {
                assert_eq!(login.mac, forwarder(0).mac, "all frames go to the forwarder");
                assert_eq!((login.payload_max, login.id.to_u32() >> 16), (2112, 1));
            }
            let ignored = network.nodes[0].logins.ignored();
            assert_eq!((ignored.stranger, ignored.not_ours), (0, 0), "{ignored:?}");
        }
    }
}

#[test]
fn an_initiator_asks_targets_only_and_nobody_sends_flogi_to_another() {
    let network = fabric(1, &[INITIATOR, TARGET, INITIATOR]);
    for (node, wanted) in network.nodes.iter().zip(["Plogi Prli Rtv", "", "Plogi Prli Rtv"]) {
        let is_asked = |it: &&str| !["yes", "Adisc"].contains(it);
        let asked: Vec<_> = node.sent.iter().map(String::as_str).filter(is_asked).collect();
        assert_eq!(asked.join(" "), wanted);
    }
}

#[test]
fn all_is_found_although_frames_are_lost_and_repeated() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let kinds = [INITIATOR, TARGET, BOTH];
        let count = 2 + seed as usize % 4;
        let functions: Vec<_> = (0..count).map(|_| kinds[random.below(3) as usize]).collect();
        let mut network = Network::with_forwarders(seed, &functions, vec![forwarder(0)]);
        (network.air.lost, network.air.repeated) = (5 + seed % 20, 20);
        network.run(ms(120_000));
        (network.air.lost, network.air.repeated) = (0, 0);
        network.run(ms(200_000));
        network.assert_logged_in();
    }
}

#[test]
fn a_forwarder_that_is_started_anew_has_all_logged_in_again() {
    for down in [0, 5_000, 60_000] {
        let mut network = fabric(2, &[INITIATOR, TARGET]);
        network.forwarders[0] = None;
        network.run(ms(down));
        network.forwarders[0] = Some(Fcf::new(forwarder(0)));
        network.run(SILENCE + SOON);
        network.assert_logged_in();
        for node in &network.nodes {
            assert_eq!(node.causes(), [Cause::Gone], "down for {down} ms");
        }
    }
}

#[test]
fn another_mtu_has_ports_log_in_anew_with_frames_that_fit() {
    let of_1500 = 1452;
    for index in [0, 1] {
        let mut network = fabric(5, &[INITIATOR, TARGET]);
        for (mtu, payload) in [(1500, of_1500), (9000, 2112)] {
            network.set_mtu(index, mtu);
            network.run(SOON);
            network.assert_logged_in();
            assert_eq!(network.payloads(), [payload; 2], "of {index} with {mtu}");
        }
    }
}

#[test]
fn without_a_forwarder_there_is_no_address_and_no_login() {
    let mut network = fabric(3, &[INITIATOR, TARGET]);
    network.forwarders[0] = None;
    network.run(SILENCE);
    for node in &network.nodes {
        assert_eq!((node.id(), node.live.len(), node.network.neighbours().count()), (None, 0, 0));
    }
}

#[test]
fn clear_virtual_link_ends_logins_at_once_and_they_come_back() {
    let mut network = fabric(4, &[INITIATOR, TARGET]);
    let before = ids(&network);
    network.forwarders[0].as_mut().unwrap().clear();
    network.drain_forwarder(0);
    network.run(ms(25));
    assert!(network.nodes.iter().all(|it| it.id().is_none() && it.live.is_empty()));
    network.run(SOON);
    network.assert_logged_in();
    assert_eq!(ids(&network), before, "the same names have the same addresses");
}

#[test]
fn a_login_with_the_fabric_may_take_its_time() {
    let config = FcfConfig { login_delay: ms(9_000), ..forwarder(0) };
    let mut network = Network::with_forwarders(5, &[INITIATOR, TARGET], vec![config]);
    network.run(ms(11_000));
    assert!(network.nodes.iter().all(|it| it.id().is_none()));
    network.run(SOON);
    network.assert_logged_in();
}

#[test]
fn the_best_forwarder_is_chosen_and_another_if_it_does_not_answer() {
    let better = FcfConfig { priority: 1, domain: 2, ..forwarder(0) };
    let forwarders = vec![better, forwarder(1)];
    let mut network = Network::with_forwarders(6, &[INITIATOR, TARGET], forwarders);
    network.run(SOON);
    assert!(ids(&network).iter().all(|it| it.to_u32() >> 16 == 2));
    network.assert_logged_in();
    // Its answers come too late.
    let slow = |config: &mut FcfConfig| config.login_delay = ms(30_000);
    network.forwarders[0].as_mut().unwrap().configure(slow);
    network.forwarders[0].as_mut().unwrap().clear();
    network.drain_forwarder(0);
    network.run(ms(20_000));
    assert!(ids(&network).iter().all(|it| it.to_u32() >> 16 == 1));
    network.assert_logged_in();
}

#[test]
fn a_target_that_is_started_anew_is_logged_in_again_though_its_address_is_the_same() {
    for seed in 0..50 {
        let mut network = fabric(seed, &[INITIATOR, TARGET]);
        let before = ids(&network);
        network.restart(1);
        network.run(SOON);
        assert_eq!(ids(&network), before);
        network.assert_logged_in();
        assert_eq!(network.nodes[0].causes().len(), 1, "{:?}", network.nodes[0].events);
    }
}

#[test]
fn an_initiator_that_is_started_anew_is_logged_in_again() {
    for seed in 0..50 {
        let mut network = fabric(seed, &[INITIATOR, TARGET]);
        network.restart(0);
        network.run(SOON);
        network.assert_logged_in();
    }
}

#[test]
fn others_hear_of_a_port_that_is_gone_and_of_one_that_logs_out() {
    let mut network = fabric(7, &[INITIATOR, TARGET, TARGET]);
    network.set_link(1, false);
    network.run(SILENCE);
    assert_eq!(network.nodes[0].live.len(), 1);
    assert_eq!(network.nodes[0].causes(), [Cause::Gone]);
    network.set_link(1, true);
    network.run(SOON);
    network.assert_logged_in();
    network.nodes[2].logins.log_out();
    network.nodes[2].network.log_out();
    network.drain(2);
    network.run(ms(400));
    assert_eq!(network.nodes[0].live.len(), 1);
    assert_eq!(network.nodes[0].network.neighbours().count(), 1);
}

#[test]
fn a_list_that_needs_several_frames_is_complete() {
    let mut functions = vec![INITIATOR; 150];
    functions[0] = TARGET;
    let mut network = Network::with_forwarders(8, &functions, vec![forwarder(0)]);
    network.air.keeps_order = true;
    network.run(SOON);
    for node in &network.nodes {
        assert_eq!(node.network.neighbours().count(), 149);
        let Attached::Fabric(node) = &node.network else { panic!("it is in a fabric") };
        assert_eq!((node.is_settled(), node.ignored().malformed), (true, 0), "{node:?}");
    }
    assert_eq!(network.nodes[0].live.len(), 149);
}

#[test]
fn nothing_ends_by_itself() {
    let mut network = fabric(9, &[INITIATOR, TARGET]);
    network.run(ms(600_000));
    network.assert_logged_in();
    assert!(network.nodes.iter().all(|it| it.causes().is_empty()));
    let counts = network.forwarders[0].as_ref().unwrap().counts();
    assert_eq!((counts.logins, counts.dropped), (2, 0));
}
