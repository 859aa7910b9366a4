//! Limits of requests and bytes: what waits goes on, is shown, and keeps nobody waiting who wants
//! its end.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tyche_block::Operation;
use tyche_engine::RateLimit;
use tyche_link::memory;
use tyche_native::{Target, Use};
use tyche_proto::{Allowed, Failure, HostId};
use tyche_remote::Notice;
use tyche_store::memory::MemoryStore;
use tyche_testkit::wait::wait_until;

use crate::rig::{Client, Data, PATIENCE, SIZE, Shared, exercise, target};

/// Requests in a second, so few that any burst is used up by a handful.
const FEW: RateLimit = RateLimit { iops: NonZeroU64::new(10), bytes_per_second: None };

fn limit(target: &Target, limit: RateLimit) {
    target.set_limit(target.export("disk").unwrap(), limit);
}

/// The counters of the only host, once its first frame has come.
fn used(target: &Target) -> Use {
    let mut used = None;
    wait_until("the host is there", || {
        used = target.report().exports[0].uses.first().cloned();
        used.is_some()
    });
    used.unwrap()
}

/// Submits requests of which the second and all after it wait, and looks until they do.
fn fill(target: &Target, client: &Client) {
    (0..32).for_each(|token| client.submit(Operation::Read, token * 4096, Data::In(4096), token));
    wait_until("requests wait", || used(target).waiting >= 20);
}

#[test]
fn requests_that_wait_go_on_in_order_and_are_counted() {
    let (a, b) = memory::pair(9014).unwrap();
    let target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    let iops = NonZeroU64::new(2000);
    limit(&target, RateLimit { iops, bytes_per_second: NonZeroU64::new(4 << 20) });
    exercise(&client, 3, 60);
    let used = used(&target);
    assert_eq!(used.waiting, 0);
    assert!(used.counts.limited > 0 && used.counts.limited_ns > 0, "{used:?}");
    assert_eq!(target.report().exports[0].limit.iops, iops);
}

#[test]
fn a_limit_that_is_lifted_holds_nobody_back() {
    let (a, b) = memory::pair(9014).unwrap();
    let target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    // A byte in a second: nothing more would pass in this test.
    limit(&target, RateLimit { iops: None, bytes_per_second: NonZeroU64::new(1) });
    fill(&target, &client);
    limit(&target, RateLimit::default());
    (0..32).for_each(|_| assert_eq!(client.answer().result, Ok(())));
    client.write(0, &[1; 4096]).unwrap();
}

#[test]
fn an_export_is_removed_while_requests_wait() {
    let (a, b) = memory::pair(9014).unwrap();
    let target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    limit(&target, RateLimit { iops: None, bytes_per_second: NonZeroU64::new(1) });
    fill(&target, &client);
    let removal = target.remove(target.export("disk").unwrap()).unwrap();
    client.await_notice(|notice| *notice == Notice::Failed(Failure::ExportRemoved));
    assert!(removal.wait(PATIENCE).is_ok());
}

/// The next session of a host gets what the limit lets through, and none of what waited before.
#[test]
fn a_host_that_is_kept_out_while_its_requests_wait_has_left() {
    let (a, b) = memory::pair(9014).unwrap();
    let cable = Arc::new(Mutex::new(b));
    let target = target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = Client::start(Shared::new(&cable), PATIENCE).connected();
    limit(&target, FEW);
    fill(&target, &client);
    let (export, host) = (target.export("disk").unwrap(), used(&target).host);
    let denied = Allowed { denied: host.into_iter().collect(), ..Allowed::default() };
    assert_eq!(target.set_allowed(export, denied).len(), 1);
    assert_eq!(target.departure(export, host).wait(PATIENCE), Ok(()));
    drop(client);
    assert!(matches!(host, Some(HostId::Uuid(_))));
    assert_eq!(used(&target).waiting, 0);
    target.set_allowed(export, Allowed::default());
    let again = Client::start(Shared::new(&cable), Duration::from_secs(20)).connected();
    again.read(0, 4096).unwrap();
}
