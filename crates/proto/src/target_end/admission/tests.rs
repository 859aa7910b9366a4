use tyche_crypto::{SecretKey, digest};
use tyche_wire::{ChannelId, Geometry, Ticket, Uuid};

use super::*;
use crate::channel::batching::BatchPolicy;
use crate::rules::AllRules;
use crate::target_end::access::Access;
use crate::target_end::export::{ExportConfig, ExportKey};
use crate::target_end::pool::CHANNEL_PAGES;
use crate::target_end::registry::TargetConfig;
use crate::target_end::requests::{Amounts, CreditNews};

const MACHINE: Uuid = Uuid::from_u128(0xaa);
const CLAIMER: Uuid = Uuid::from_u128(0xbb);
const ALPHA: Uuid = Uuid::from_u128(0xa1);
const OTHER: Uuid = Uuid::from_u128(0xb1);

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A target that lets in hosts without a key beside those with one.
fn registry() -> Registry {
    let mut registry = Registry::new(TargetConfig {
        uuid: Uuid::nil(),
        name: name("target"),
        queue_size_max: 8,
        damq_pages_max: 4096,
        memory_pages: 64 * CHANNEL_PAGES,
        batch: BatchPolicy::Natural,
    });
    registry
        .add_export(
            Instant(0),
            ExportConfig {
                name: name("disk"),
                uuid: Uuid::nil(),
                generation: Uuid::nil(),
                geometry: Geometry::new(1 << 20, 512),
                shared: false,
            },
        )
        .expect("the first");
    registry.set_access(Access::default(), []);
    registry
}

fn alpha() -> Option<Proven> {
    let key = SecretKey::from_random([1; 32]).public();
    Some(Proven { key, name: Some(name("alpha")) })
}

/// Asks for a channel to write as a session of a device. `host`: the UUID that is claimed.
fn ask(
    registry: &mut Registry,
    (host, proven): (Uuid, Option<Proven>),
    (session, device): (Uuid, Uuid),
    flags: ConnectFlags,
) -> Result<(), Option<Reason>> {
    let sessions = registry.sessions(only(registry)).iter();
    let channel = ChannelId(sessions.map(|it| it.channels.len() as u16).sum());
    let cookie = Cookie(session.as_u128() as u64);
    let connect = Connect {
        attempt: 1,
        ticket: Ticket::NONE,
        target: Uuid::nil(),
        host,
        session,
        device,
        export: Uuid::nil(),
        host_name: name("alpha"),
        cookie,
        channel,
        queue_size: 8,
        rings: [64; 2],
        frame_len: 1514,
        damq_pages: registry.target().damq_pages_max,
        flags,
        keep_alive_ms: 1000,
    };
    let issued = Instant(1_000_000_000);
    let names = (Name::EMPTY, Name::EMPTY);
    let (connect, (target_name, export_name)) = (&connect, names);
    let places = false;
    let request = Request { connect, issued, host: proven, places, target_name, export_name };
    let mut admission = registry.admit::<AllRules>(issued, request);
    if let (Admission::Keep, Some((export, writer))) = (&admission, registry.writer_to_persist()) {
        registry.writer_persisted(export, writer, Ok(()));
        admission = registry.admit::<AllRules>(issued, request);
    }
    match admission {
        Admission::Granted(grant) => {
            let reference = ChannelRef { link: 0, channel };
            registry.opened::<AllRules>(request, grant, reference, (Mac::BROADCAST, cookie));
            Ok(())
        }
        Admission::Refused(reason, _) => Err(Some(reason)),
        _ => Err(None),
    }
}

/// The export of a target that has one.
fn only(registry: &Registry) -> ExportKey {
    let (key, _) = registry.exports().next().expect("there is one");
    key
}

fn leave(registry: &mut Registry) {
    let export = only(registry);
    registry.closed(
        export,
        ChannelRef { link: 0, channel: ChannelId(0) },
        Amounts::default(),
        None,
    );
    assert!(registry.sessions(export).is_empty());
}

/// The UUID that a former release derived from a host's name: anybody can.
fn derived() -> Uuid {
    let digest = digest(&[b"tyche host", b"alpha", MACHINE.as_bytes()]);
    Uuid::from_bytes(*digest.first_chunk().expect("longer than a UUID"))
}

const NONE: ConnectFlags = ConnectFlags::NONE;
const RESUME: ConnectFlags = ConnectFlags::RESUME;

#[test]
fn no_claim_takes_the_place_of_a_host_with_a_key() {
    for claimed in [MACHINE, derived()] {
        let mut registry = registry();
        assert_eq!(ask(&mut registry, (MACHINE, alpha()), (ALPHA, ALPHA), NONE), Ok(()));
        for (session, flags) in [(ALPHA, NONE), (ALPHA, RESUME), (OTHER, NONE)] {
            let asked = ask(&mut registry, (claimed, None), (session, ALPHA), flags);
            let refused = [Some(Reason::Held), Some(Reason::SessionLost)];
            assert!(asked.is_err_and(|reason| refused.contains(&reason)), "{asked:?}");
        }
        let (mut closing, mut asking) = (registry.take_closing(0), registry.take_asking(0));
        assert!(closing.pop().is_none() && asking.pop().is_none(), "it is left in peace");
        assert_eq!(
            ask(&mut registry, (claimed, None), (OTHER, OTHER), NONE),
            Err(Some(Reason::Held))
        );
        assert_eq!(registry.sessions(only(&registry))[0].host_name, name("alpha"));
    }
}

#[test]
fn no_claim_resumes_the_session_of_a_host_with_a_key() {
    for claimed in [MACHINE, derived()] {
        let mut registry = registry();
        assert_eq!(ask(&mut registry, (MACHINE, alpha()), (ALPHA, ALPHA), NONE), Ok(()));
        leave(&mut registry);
        for (session, flags) in [(ALPHA, RESUME), (OTHER, NONE)] {
            let asked = ask(&mut registry, (claimed, None), (session, ALPHA), flags);
            assert_eq!(asked, Err(Some(Reason::SessionLost)));
        }
        assert_eq!(ask(&mut registry, (MACHINE, alpha()), (ALPHA, ALPHA), RESUME), Ok(()));
    }
}

/// Somebody writes under the UUIDs of the session that is away: it must learn of that.
#[test]
fn a_session_with_a_key_is_lost_when_another_has_written_under_its_uuids() {
    let mut registry = registry();
    assert_eq!(ask(&mut registry, (MACHINE, alpha()), (ALPHA, ALPHA), NONE), Ok(()));
    leave(&mut registry);
    assert_eq!(ask(&mut registry, (CLAIMER, None), (ALPHA, ALPHA), NONE), Ok(()));
    leave(&mut registry);
    for (session, flags) in [(ALPHA, RESUME), (OTHER, NONE)] {
        let asked = ask(&mut registry, (MACHINE, alpha()), (session, ALPHA), flags);
        assert_eq!(asked, Err(Some(Reason::SessionLost)));
    }
}

/// A session of a stranger who has found out its UUID does not keep it out.
#[test]
fn a_session_uuid_that_another_uses_is_no_hindrance() {
    let reads = ConnectFlags::READ_ONLY;
    let mut registry = registry();
    assert_eq!(ask(&mut registry, (CLAIMER, None), (ALPHA, ALPHA), reads), Ok(()));
    assert_eq!(ask(&mut registry, (MACHINE, alpha()), (ALPHA, ALPHA), NONE), Ok(()));
    assert_eq!(registry.sessions(only(&registry)).len(), 2);
    assert_eq!(registry.sessions(only(&registry)).iter().filter(|it| it.writer).count(), 1);
}

#[test]
fn hosts_without_a_key_have_a_quarter_of_the_memory_and_the_least_each() {
    let mut registry = registry();
    let known = [(SecretKey::from_random([1; 32]).public(), name("alpha"))];
    registry.set_access(Access { hosts: known.into(), ..Access::default() }, []);
    let connect = |registry: &mut Registry, number, proven| {
        let uuid = Uuid::from_u128(number);
        ask(registry, (uuid, proven), (uuid, uuid), ConnectFlags::READ_ONLY)
    };
    for number in 1..=16 {
        assert_eq!(connect(&mut registry, number, None), Ok(()));
    }
    assert_eq!(connect(&mut registry, 17, None), Err(Some(Reason::NoResources)));
    assert_eq!(connect(&mut registry, 20, alpha()), Ok(()), "most of the memory is left");
    for channel in [0, 16].map(|index| ChannelRef { link: 0, channel: ChannelId(index) }) {
        registry.credit(Instant(0), channel, CreditNews::Wants(128));
    }
    let told = std::iter::from_fn(|| registry.pool.poll_told(0));
    let told: Vec<_> = told.map(|(channel, pages)| (channel.channel.0, pages)).collect();
    assert_eq!(told, [(16, 128)], "the one with a key");
}
