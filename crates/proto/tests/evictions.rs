//! Hosts that are kept out of an export: who is meant, and when nothing of them is left.

use std::time::Duration;

use tyche_proto::wire::{ChannelId, Reason, Status, Tag, Uuid};
use tyche_proto::{Access, Action, AllRules, Allowed, HostId, ListenerEvent};

use crate::keys::{access, asking, connected, keyed, refusals, talk, target_key, write};
use crate::pair::{Pair, name, session};

/// A host has left only when the disk has completed what it was given for it.
#[test]
fn a_denied_host_has_left_when_its_requests_are_over() {
    let mut pair = connected();
    let (alpha, beta) = (HostId::Name(name("alpha")), HostId::Name(name("beta")));
    let is_drained = |pair: &Pair, host| pair.registry.is_drained::<AllRules>(pair.export, host);
    assert!(!is_drained(&pair, alpha) && is_drained(&pair, beta));
    let frame = write(&mut pair);
    pair.target_takes(&frame);
    let [(channel, tag)] = executed(&mut pair)[..] else { panic!("one request is executed") };
    let later = write(&mut pair);
    let denied = Allowed { denied: [alpha].into(), ..Allowed::default() };
    assert_eq!(pair.registry.set_allowed(pair.export, denied).len(), 1);
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    assert!(!is_drained(&pair, alpha), "a request is with the disk");
    pair.target_takes(&later);
    assert_eq!(pair.listener.poll_event(), None, "nothing more is executed");
    pair.listener.complete(channel, tag, Status::Success);
    pair.serve();
    assert!(is_drained(&pair, alpha));
    // It tries again, in vain.
    talk(&mut pair, Duration::from_secs(8));
    assert_eq!(refusals(&mut pair), [Reason::Denied]);
    assert!(is_drained(&pair, alpha) && pair.session.is_over());
}

/// A disk that is missing may have requests of a former process of the target.
#[test]
fn whether_a_host_has_left_is_not_known_while_the_disk_is_missing() {
    let mut pair = asking(session());
    let alpha = HostId::Name(name("alpha"));
    assert!(pair.registry.is_drained::<AllRules>(pair.export, alpha));
    pair.registry.take_offline(pair.export, "locked");
    assert!(!pair.registry.is_drained::<AllRules>(pair.export, alpha));
    let config = pair.registry.export(pair.export).clone();
    pair.registry.bring_online(pair.export, config, None);
    assert!(pair.registry.is_drained::<AllRules>(pair.export, alpha));
}

/// The requests that the target gives to the disk.
pub(crate) fn executed(pair: &mut Pair) -> Vec<(ChannelId, Tag)> {
    let executed = std::iter::from_fn(|| pair.listener.poll_event()).filter_map(|it| match it {
        ListenerEvent::Action { channel, action: Action::Execute { command } } => {
            Some((channel, command.tag))
        }
        _ => None,
    });
    executed.collect()
}

/// A node that is connected without its key: what is closed with a denied host may be that host.
#[test]
fn a_denied_host_has_left_when_those_without_a_key_have_that_are_closed_with_it() {
    let alpha = HostId::Name(name("alpha"));
    let is_optional = Access { required: false, ..access(&[(1, "alpha")]) };
    let mut pair = asking(session());
    pair.registry.set_access(is_optional, []);
    pair.connect();
    assert!(pair.registry.is_drained::<AllRules>(pair.export, alpha), "it is let in, as another");
    let frame = write(&mut pair);
    pair.target_takes(&frame);
    let requests = executed(&mut pair);
    let denied = Allowed { denied: [alpha].into(), ..Allowed::default() };
    assert_eq!(pair.registry.set_allowed(pair.export, denied).len(), 1);
    pair.serve();
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    assert!(
        !pair.registry.is_drained::<AllRules>(pair.export, alpha),
        "a request is with the disk"
    );
    for (channel, tag) in requests {
        pair.listener.complete(channel, tag, Status::Success);
    }
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    assert!(pair.registry.is_drained::<AllRules>(pair.export, alpha));
}

/// A host whose key was taken away, or has another name now, is being closed as well.
#[test]
fn a_denied_host_has_left_when_sessions_of_its_former_keys_and_names_have() {
    for now in [access(&[(4, "alpha")]), access(&[(1, "beta"), (4, "alpha")])] {
        let mut pair = connected();
        let frame = write(&mut pair);
        pair.target_takes(&frame);
        let requests = executed(&mut pair);
        assert_eq!(pair.registry.set_access(now, []).len(), 1);
        pair.listener.serve_requests(pair.now, &mut pair.registry);
        let hosts = ["alpha", "beta"].map(|text| HostId::Name(name(text)));
        assert!(hosts.iter().all(|&host| !pair.registry.is_drained::<AllRules>(pair.export, host)));
        for (channel, tag) in requests {
            pair.listener.complete(channel, tag, Status::Success);
        }
        pair.listener.serve_requests(pair.now, &mut pair.registry);
        assert!(hosts.iter().all(|&host| pair.registry.is_drained::<AllRules>(pair.export, host)));
    }
}

/// A UUID is no way around itself: a host that has a key says one as well.
#[test]
fn a_denied_uuid_keeps_out_a_host_with_a_key_that_says_it() {
    let mut pair = connected();
    let host = HostId::Uuid(Uuid::from_u128(1));
    assert!(!pair.registry.is_drained::<AllRules>(pair.export, host));
    let denied = Allowed { denied: [host].into(), ..Allowed::default() };
    assert_eq!(pair.registry.set_allowed(pair.export, denied).len(), 1);
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    assert!(pair.registry.is_drained::<AllRules>(pair.export, host));
}

#[test]
fn a_host_with_a_key_is_shown_an_export_by_the_uuid_that_it_says() {
    let shown =
        |uuid| Allowed { uuids: Some([Uuid::from_u128(uuid)].into()), ..Allowed::default() };
    let mut pair = connected();
    assert!(pair.registry.set_allowed(pair.export, shown(1)).is_empty());
    assert_eq!(pair.registry.set_allowed(pair.export, shown(2)).len(), 1);
    let mut pair = asking(keyed(1, &target_key()));
    pair.registry.set_allowed(pair.export, shown(1));
    pair.connect();
}

#[test]
fn a_host_without_a_key_is_denied_by_its_uuid() {
    let mut pair = Pair::connected_over(session(), false);
    let host = HostId::Uuid(Uuid::from_u128(1));
    assert_eq!(pair.registry.sessions(pair.export)[0].host.host_id(), host);
    let denied = Allowed { denied: [host].into(), ..Allowed::default() };
    assert_eq!(pair.registry.set_allowed(pair.export, denied).len(), 1);
    pair.listener.serve_requests(pair.now, &mut pair.registry);
    talk(&mut pair, Duration::from_secs(8));
    assert_eq!(refusals(&mut pair), [Reason::Denied], "it still sees the export");
    assert!(pair.registry.is_drained::<AllRules>(pair.export, host));
}
