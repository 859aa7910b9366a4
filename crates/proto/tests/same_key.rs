//! Several targets with one key, as those of one machine have it. PROTOCOL.md, "Keys".

use std::sync::Arc;

use tyche_proto::wire::{Content, Control, Name, Reason, Uuid};
use tyche_proto::{
    ExportConfig, HostKeys, Instant, Listener, ListenerConfig, Problem, Registry, SessionConfig,
    TargetConfig, TargetId,
};
use tyche_testkit::random::Random;

use crate::keys::{access, asking, refusals, secret, target_key};
use crate::pair::{FRAME_LEN, Pair, TARGET, name, session};

/// UUID of another target with the same key.
const SECOND: Uuid = Uuid::from_u128(5);

/// Another target of the same machine: with the same key, and an export of the same name.
fn second_target(name: Name) -> Pair {
    let mut other = asking(session());
    let config =
        ListenerConfig { link: 0, frame_len_max: FRAME_LEN, rings: [64; 2], routed: false };
    other.listener = Listener::new(config, SECOND, Box::new(Random(3).numbers()));
    other.listener.set_keys(Instant(0), target_key());
    let export =
        ExportConfig { uuid: Uuid::from_u128(6), ..other.registry.export(other.export).clone() };
    let target = TargetConfig { uuid: SECOND, name, ..other.registry.target().clone() };
    other.registry = Registry::new(target);
    other.export = other.registry.add_export(Instant(0), export).unwrap();
    other.registry.set_access(access(&[(1, "alpha"), (2, "beta")]), []);
    other
}

/// Lets a host talk to two targets of one key, while somebody has the second one's Offers say the
/// first one's name. The second one answers first. `until`: when to end.
fn talk_to_two(pair: &mut Pair, until: impl Fn(&Pair) -> bool) {
    let (first, second) = (name("target"), name("second"));
    let mut other = second_target(second);
    for _ in 0..5_000 {
        if until(pair) {
            return;
        }
        while let Some(frame) = pair.host_sends() {
            other.target_takes(&frame);
            pair.target_takes(&frame);
        }
        other.serve();
        while let Some(frame) = other.target_sends() {
            let frame = match &mut other.out.content {
                Content::Control(Control::Offer(offer)) => {
                    assert_eq!(offer.name, second);
                    offer.name = first;
                    other.out.to_bytes(TARGET, &[])
                }
                _ => frame,
            };
            pair.host_takes(&frame);
        }
        pair.step();
        other.now = pair.now;
        other.listener.handle_timeout(other.now);
    }
    panic!("it does not end: {:?}", pair.session.problem());
}

/// Several `serve` of a machine have its key: which one answers is not proved by the key.
#[test]
fn a_host_comes_to_no_other_target_with_the_same_key() {
    let named = TargetId::Name(name("target"));
    let by_uuid = TargetId::Uuid(Uuid::from_u128(3));
    let known = |target_uuid| {
        let keys = HostKeys { secret: secret(1), target: target_key().public(), target_uuid };
        SessionConfig { target: named, keys: Some(Arc::new(keys)), ..session() }
    };
    let mut refused = Vec::new();
    for config in [
        known(None),
        known(Some(Uuid::from_u128(3))),
        SessionConfig { target: by_uuid, ..known(None) },
    ] {
        let mut pair = asking(config);
        talk_to_two(&mut pair, |pair| pair.session.is_live());
        assert_eq!(pair.session.export().unwrap().target, Uuid::from_u128(3));
        refused.push(refusals(&mut pair).contains(&Reason::OtherTarget));
    }
    assert_eq!(refused, [true, false, false], "a UUID that is known leads nowhere else");
    // Known by another UUID, as after the loss of the target's state: it is not taken for it.
    let mut pair = asking(known(Some(Uuid::from_u128(7))));
    talk_to_two(&mut pair, |pair| pair.now.0 > 2_000_000_000);
    assert_eq!(pair.session.problem(), Some(Problem::NoOffer));
    assert!(!pair.session.is_live() && !pair.session.is_over());
}
