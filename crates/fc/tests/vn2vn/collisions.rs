//! Ports that want the same N_Port_ID.

use std::collections::BTreeSet;

use tyche_fc::wire::PortId;
use tyche_testkit::random::Random;

use crate::air::ms;
use crate::network::Network;

/// Names with the same end, so that the first choice of all is the same.
fn name(index: u64) -> u64 {
    0x2000_0000_0000_4711 + (index << 16)
}

/// Two to eight ports that all want the same N_Port_ID; half of the seeds, because they had it.
fn colliding(seed: u64) -> Network {
    let mut random = Random(seed);
    let mut network = Network::new(seed);
    let recorded = random.chance(2).then_some(0x1234);
    for index in 0..2 + seed % 7 {
        network.add(name(index), recorded.filter(|_| index % 3 != 2));
        if random.chance(2) {
            network.run(ms(random.below(700)));
        }
    }
    network
}

#[test]
fn two_to_eight_ports_with_the_same_choice_never_have_the_same_address() {
    for seed in 0..700 {
        let mut network = colliding(seed);
        network.run_checked(ms(20_000), |network| {
            let ids = network.ids();
            let different: BTreeSet<_> = ids.iter().collect();
            assert_eq!(different.len(), ids.len(), "seed {seed}");
        });
        network.assert_converged();
    }
}

#[test]
fn they_converge_although_frames_are_lost_and_repeated() {
    for seed in 0..700 {
        let mut network = colliding(seed);
        (network.air.lost, network.air.repeated) = (10 + seed % 50, 20);
        network.run(ms(60_000));
        // From here on all arrive. Two beacons later all is well.
        network.air.lost = 0;
        network.run(ms(30_000));
        network.assert_converged();
    }
}

#[test]
fn ports_on_two_networks_that_become_one_agree() {
    for seed in 0..200 {
        let mut network = Network::new(seed);
        let (a, b) = (network.add(name(1), None), network.add(name(2), None));
        network.air.lost = 100;
        network.run(ms(10_000));
        assert_eq!(network.id(a), network.id(b), "neither has heard of the other");
        let id = network.id(b);
        network.air.lost = 0;
        network.run(ms(20_000));
        network.assert_converged();
        assert_eq!(network.id(b), id, "the higher name keeps it");
    }
}

#[test]
fn the_higher_name_gets_it_and_before_that_the_one_that_had_it() {
    for seed in 0..100 {
        for (records, winner) in [([None, None], 1), ([Some(0x4711), None], 0)] {
            let mut network = Network::new(seed);
            let ports = [1, 2].map(|index| network.add(name(index), records[index as usize - 1]));
            network.run(ms(20_000));
            assert_eq!(network.id(ports[winner]), Some(PortId::new(0x4711)));
            network.assert_converged();
        }
    }
}

#[test]
fn who_has_it_keeps_it() {
    for seed in 0..100 {
        let mut network = Network::new(seed);
        let first = network.add(name(1), None);
        network.run(ms(2_000));
        // Both the higher name and the record come too late.
        network.add(name(2), Some(0x4711));
        network.run(ms(20_000));
        assert_eq!(network.id(first), Some(PortId::new(0x4711)));
        network.assert_converged();
    }
}
