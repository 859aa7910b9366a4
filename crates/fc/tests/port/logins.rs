//! Logins: their order, their end, and their way back.

use tyche_fc::port::Cause;
use tyche_testkit::random::Random;

use crate::air::ms;
use crate::network::{BOTH, INITIATOR, Network, TARGET, pair};

#[test]
fn two_ports_log_in_within_five_seconds_whoever_is_what() {
    for seed in 0..100 {
        for functions in [[INITIATOR, TARGET], [TARGET, INITIATOR], [BOTH, TARGET], [BOTH, BOTH]] {
            let network = pair(seed, functions);
            let login = network.nodes[0].live.values().next().unwrap();
            assert_eq!((login.payload_max, login.retries), (2112, true));
            assert_eq!((login.e_d_tov, login.r_a_tov), (ms(2_000), ms(10_000)));
            assert_eq!(login.mac.port_id(), login.id);
        }
    }
}

#[test]
fn the_higher_name_asks_for_the_login_and_the_initiator_for_the_process() {
    let network = pair(7, [INITIATOR, TARGET]);
    let mut sent = [0, 1].map(|index| network.nodes[index].sent.clone());
    for sent in &mut sent {
        sent.retain(|it| !it.starts_with("yes") && !it.starts_with("no"));
        // A port that does not see the other yet refuses; then it is asked again.
        sent.dedup();
    }
    assert_eq!(sent, [vec!["Flogi", "Prli", "Rtv"], vec!["Flogi", "Plogi"]]);
}

#[test]
fn two_targets_have_nothing_to_agree_about() {
    let mut network = Network::new(1, &[TARGET, TARGET]);
    network.run(ms(60_000));
    network.assert_logged_in();
    assert!(network.nodes.iter().all(|it| it.live.is_empty() && it.events.is_empty()));
}

#[test]
fn many_ports_log_in_although_frames_are_lost_and_repeated() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let kinds = [INITIATOR, TARGET, BOTH];
        let count = 2 + seed as usize % 5;
        let functions: Vec<_> = (0..count).map(|_| kinds[random.below(3) as usize]).collect();
        let mut network = Network::new(seed, &functions);
        (network.air.lost, network.air.repeated) = (5 + seed % 30, 20);
        network.run(ms(120_000));
        (network.air.lost, network.air.repeated) = (0, 0);
        network.run(ms(200_000));
        network.assert_logged_in();
    }
}

#[test]
fn a_node_that_starts_anew_is_logged_in_again() {
    for seed in 0..100 {
        for restarted in [0, 1] {
            let mut network = pair(seed, [INITIATOR, TARGET]);
            network.run(ms(seed * 97));
            network.restart(restarted);
            network.run(ms(30_000));
            network.assert_logged_in();
            assert!(network.nodes[1 - restarted].causes().contains(&Cause::Anew));
        }
    }
}

#[test]
fn nothing_is_answered_before_the_former_login_is_drained() {
    for seed in 0..50 {
        let mut network = pair(seed, [INITIATOR, TARGET]);
        network.nodes[1].drains = false;
        network.restart(0);
        network.run(ms(60_000));
        let waiting = network.nodes[1].undrained.pop_first().unwrap();
        assert!(network.nodes[0].live.is_empty(), "the host is not let in");
        network.nodes[1].drains = true;
        let now = network.now;
        network.nodes[1].logins.drained(now, waiting);
        network.drain(1);
        network.run(ms(60_000));
        network.assert_logged_in();
    }
}

#[test]
fn a_silent_neighbour_is_logged_out_and_in_again() {
    let mut network = pair(3, [INITIATOR, TARGET]);
    network.air.lost = 100;
    network.run(ms(40_000));
    assert!(network.nodes.iter().all(|it| it.live.is_empty() && it.causes() == [Cause::Gone]));
    network.air.lost = 0;
    network.run(ms(30_000));
    network.assert_logged_in();
}

#[test]
fn a_link_that_goes_down_ends_all_logins_there_at_once() {
    let mut network = pair(3, [INITIATOR, TARGET]);
    network.nodes[0].drains = false;
    network.set_link(0, false);
    assert_eq!(network.nodes[0].causes(), [Cause::Gone]);
    network.set_link(0, true);
    network.run(ms(30_000));
    assert!(network.nodes[0].live.is_empty(), "it is not drained");
    let (wwpn, now) = (network.nodes[0].undrained.pop_first().unwrap(), network.now);
    network.nodes[0].logins.drained(now, wwpn);
    network.drain(0);
    network.run(ms(30_000));
    network.assert_logged_in();
}

#[test]
fn another_mtu_has_both_ends_log_in_anew_with_frames_that_fit() {
    for index in [0, 1] {
        let mut network = pair(9, [INITIATOR, TARGET]);
        assert_eq!(network.payloads(), [2112; 2]);
        for (mtu, payload) in [(1500, 1452), (2158, 2112)] {
            network.set_mtu(index, mtu);
            network.run(ms(5_000));
            network.assert_logged_in();
            assert_eq!(network.payloads(), [payload; 2], "of {index} with {mtu}");
        }
        for node in &network.nodes {
            assert_eq!(node.causes(), [Cause::Gone; 2]);
        }
        // Frames of the same length fit in both.
        network.set_mtu(index, 9000);
        network.run(ms(5_000));
        assert_eq!(network.nodes[index].causes().len(), 2);
    }
}

#[test]
fn who_logs_out_is_gone_for_the_other_at_once() {
    for leaver in [0, 1] {
        let mut network = pair(5, [INITIATOR, TARGET]);
        network.nodes[leaver].logins.log_out();
        network.drain(leaver);
        network.run(ms(50));
        assert_eq!(network.nodes[1 - leaver].causes(), [Cause::Logout]);
        assert_eq!(network.nodes[1 - leaver].sent.last().unwrap(), "yes");
        assert!(network.nodes[leaver].live.is_empty());
        for up in [false, true] {
            network.set_link(leaver, up);
            network.run(ms(60_000));
            assert!(network.nodes.iter().all(|it| it.live.is_empty()), "there is none any more");
        }
    }
}

#[test]
fn a_login_that_is_given_up_is_made_anew() {
    for (node, other) in [(0, 1), (1, 0)] {
        let mut network = pair(5, [INITIATOR, TARGET]);
        let wwpn = *network.nodes[node].live.first_key_value().unwrap().0;
        let now = network.now;
        network.nodes[node].logins.restart(now, wwpn);
        network.drain(node);
        network.run(ms(30_000));
        network.assert_logged_in();
        assert_eq!(network.nodes[node].causes()[0], Cause::User);
        assert!(!network.nodes[other].causes().is_empty());
    }
}
