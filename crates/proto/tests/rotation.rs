//! A target whose key is changed while it runs. PROTOCOL.md, "Keys".

use std::time::Duration;

use tyche_proto::crypto::{PublicKey, SecretKey};
use tyche_proto::wire::{Content, Control};
use tyche_proto::{SessionEvent, TargetKeys};

use crate::keys::{asking, connected, events, keyed, secret, talk, target_key};
use crate::pair::Pair;

/// The key that the target will have.
fn next_key() -> SecretKey {
    secret(101)
}

/// Begins the change of the target's key.
fn begin(pair: &mut Pair) {
    let keys = TargetKeys { own: target_key(), next: Some(next_key()) };
    pair.listener.set_keys(pair.now, keys);
}

/// The key by which the session knows its target.
fn known(pair: &Pair) -> PublicKey {
    pair.session.config().keys.as_ref().expect("it has keys").target
}

/// The next keys that the session was told.
fn told(events: &[SessionEvent]) -> Vec<PublicKey> {
    let key = |event: &SessionEvent| match event {
        SessionEvent::NextKey(said) => Some(said.next),
        _ => None,
    };
    events.iter().filter_map(key).collect()
}

fn is_lost(events: &[SessionEvent]) -> bool {
    events.iter().any(|event| matches!(event, SessionEvent::Lost(_)))
}

#[test]
fn a_connected_host_learns_the_next_key_and_keeps_its_channel_when_the_former_is_gone() {
    let mut pair = connected();
    events(&mut pair);
    begin(&mut pair);
    talk(&mut pair, Duration::from_secs(2));
    let seen = events(&mut pair);
    assert_eq!(told(&seen), [next_key().public()]);
    assert_eq!(known(&pair), next_key().public());
    assert!(pair.session.is_live());
    pair.listener.set_keys(pair.now, next_key());
    talk(&mut pair, Duration::from_secs(1));
    assert!(!is_lost(&events(&mut pair)) && pair.session.is_live());
    // Another channel of the session is opened by the key that it was told.
    pair.listener.renew_keys();
    talk(&mut pair, Duration::from_secs(10));
    let seen = events(&mut pair);
    assert!(is_lost(&seen) && pair.session.is_live(), "{seen:?}");
    assert_eq!(told(&seen), []);
}

#[test]
fn a_host_that_knows_the_next_key_connects_by_it_and_is_told_nothing() {
    for is_silent in [false, true] {
        let mut pair = asking(keyed(1, &next_key()));
        begin(&mut pair);
        if is_silent {
            pair.listener.be_silent();
        }
        pair.connect();
        assert_eq!(told(&events(&mut pair)), []);
        assert_eq!(known(&pair), next_key().public());
    }
}

#[test]
fn a_host_that_comes_between_is_told_at_once() {
    for is_silent in [false, true] {
        let mut pair = asking(keyed(1, &target_key()));
        begin(&mut pair);
        if is_silent {
            pair.listener.be_silent();
        }
        pair.connect();
        assert_eq!(told(&events(&mut pair)), [next_key().public()]);
    }
}

#[test]
fn the_former_key_ends_with_the_change() {
    let mut pair = connected();
    pair.listener.set_keys(pair.now, next_key());
    talk(&mut pair, Duration::from_secs(5));
    assert!(!pair.session.is_live(), "it was never told the next key");
}

#[test]
fn a_change_that_is_taken_back_is_another_change() {
    let mut pair = connected();
    begin(&mut pair);
    talk(&mut pair, Duration::from_secs(2));
    assert_eq!(told(&events(&mut pair)), [next_key().public()]);
    let keys = TargetKeys { own: next_key(), next: Some(target_key()) };
    pair.listener.set_keys(pair.now, keys);
    talk(&mut pair, Duration::from_secs(2));
    assert_eq!(told(&events(&mut pair)), [target_key().public()]);
    pair.listener.set_keys(pair.now, target_key());
    talk(&mut pair, Duration::from_secs(2));
    assert!(pair.session.is_live());
}

/// The keys that are shown to a host that knows the target by this one.
fn shown_to(host_knows: &SecretKey) -> Vec<PublicKey> {
    let mut pair = asking(keyed(1, host_knows));
    begin(&mut pair);
    let mut shown = Vec::new();
    for _ in 0..20 {
        while let Some(frame) = pair.host_sends() {
            pair.target_takes(&frame);
        }
        pair.listener.serve_requests(pair.now, &mut pair.registry);
        while let Some(frame) = pair.target_sends() {
            if let Content::Control(Control::Offer(offer)) = &pair.out.content {
                let key = offer.key.expect("it has one");
                shown.push(PublicKey::from_bytes(key).expect("a key"));
            }
            pair.host_takes(&frame);
        }
        pair.step();
    }
    shown.dedup();
    shown
}

#[test]
fn a_host_is_shown_the_key_that_it_knows() {
    assert_eq!(shown_to(&target_key()), [target_key().public()]);
    assert_eq!(shown_to(&next_key()), [next_key().public()]);
}
