//! A target in the test's process. The tests of the library use it as well.

#![allow(unreachable_pub, reason = "it is compiled into every test file")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tyche_link::Link;
use tyche_native::{Target, TargetExport, TargetOptions};
use tyche_numa::Placement;
use tyche_proto::wire::{ETHERTYPE, Name, Uuid};
use tyche_proto::{Access, Allowed, BatchPolicy, TargetConfig, Writer};
use tyche_store::Store;

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

thread_local! {
    /// The last writer of this test's export: stored over restarts of its target.
    static LAST_WRITER: Arc<Mutex<Option<Writer>>> = Arc::default();
}

pub fn target(link: Box<dyn Link>, store: Arc<dyn Store>) -> Target {
    Target::start(options_of_target(link, store)).unwrap()
}

/// The export of that target.
pub fn export_of_target(store: Arc<dyn Store>) -> TargetExport {
    TargetExport {
        name: name("disk"),
        uuid: Uuid::from_u128(7),
        generation: Uuid::from_u128(8 + u128::from(store.losses())),
        store,
        shared: false,
        last_writer: LAST_WRITER.with(|kept| *kept.lock().unwrap()),
        allowed: Allowed::default(),
        offline: None,
    }
}

/// A target with one export.
pub fn options_of_target(link: Box<dyn Link>, store: Arc<dyn Store>) -> TargetOptions {
    let kept = LAST_WRITER.with(Arc::clone);
    TargetOptions {
        keys: None,
        silent: false,
        access: Access::default(),
        target: TargetConfig {
            uuid: Uuid::from_u128(1),
            name: name("target"),
            queue_size_max: 64,
            damq_pages_max: 1024,
            memory_pages: 1 << 16,
            batch: BatchPolicy::default(),
        },
        exports: vec![export_of_target(store)],
        links: vec![link],
        further_threads: Vec::new(),
        beacons: Vec::new(),
        placement: Placement::default(),
        ethertype: ETHERTYPE,
        spin: Duration::ZERO,
        remember_writer: Box::new(move |_, writer| {
            *kept.lock().unwrap() = Some(writer);
            Ok(())
        }),
        renew_generation: Box::new(|_, _| Uuid::from_u128(9)),
    }
}
