//! A machine whose memory was put back to an earlier state.

use std::sync::Arc;

use tyche_engine::restore;
use tyche_link::memory;
use tyche_native::Target;
use tyche_proto::crypto::SecretKey;
use tyche_proto::{Access, HostKeys, Problem};
use tyche_remote::Notice;
use tyche_store::memory::MemoryStore;

use crate::rig::{Client, PATIENCE, SIZE, name, options_of_target};

fn key(number: u8) -> SecretKey {
    SecretKey::from_random([number; 32])
}

/// Host and target are in one process, so both are restored.
#[test]
fn sealed_channels_are_opened_anew_and_requests_go_on() {
    let (a, b) = memory::pair(9014).unwrap();
    let store = Arc::new(MemoryStore::new(SIZE, 512).unwrap());
    let mut options = options_of_target(Box::new(a), store);
    let hosts = [(key(2).public(), name("host"))].into();
    (options.keys, options.access) =
        (Some(key(1).into()), Access { required: true, hosts, ..Access::default() });
    let _target = Target::start(options).unwrap();
    let keys = HostKeys { secret: key(2), target: key(1).public(), target_uuid: None };
    let client = Client::start_with(Box::new(b), PATIENCE, |options| {
        options.session.keys = Some(Arc::new(keys));
    });
    let client = client.connected();
    for round in 1..4 {
        client.write(0, &[round; 4096]).unwrap();
        restore::note();
        client.write(4096, &[round; 4096]).unwrap();
        client.await_notice(|it| matches!(it, Notice::Parted(_, _, Problem::Restored)));
        client.await_notice(|it| matches!(it, Notice::Connected(_)));
        assert_eq!(client.read(0, 8192).unwrap(), [round; 8192]);
    }
}
