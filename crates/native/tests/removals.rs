//! Exports that come and go while the target runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tyche_block::{Errno, Operation, OperationKind};
use tyche_link::memory;
use tyche_native::Remains;
use tyche_proto::{ExportTaken, Failure};
use tyche_remote::Notice;
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::memory::MemoryStore;

use crate::rig::{Client, Data, PATIENCE, SIZE, Shared, export_of_target, name, target};

fn has_failed(notice: &Notice) -> bool {
    *notice == Notice::Failed(Failure::ExportRemoved)
}

#[test]
fn an_export_is_removed_under_load_and_added_again_with_what_was_written() {
    let (a, b) = memory::pair(9014).unwrap();
    let cable = Arc::new(Mutex::new(b));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(SIZE, 512).unwrap());
    let target = target(Box::new(a), Arc::clone(&store));
    for round in 1..4 {
        let client = Client::start(Shared::new(&cable), PATIENCE).connected();
        let before = vec![round - 1; 4096];
        assert!(client.read(0, 4096).unwrap() == before, "of the round before");
        client.write(0, &[round; 4096]).unwrap();
        for token in 0..32 {
            client.submit(Operation::Read, token * 4096, Data::In(4096), token);
        }
        let key = target.export("disk").unwrap();
        let removal = target.remove(key).unwrap();
        assert!(target.remove(key).is_none() && target.export("disk").is_none());
        client.await_notice(has_failed);
        (0..32).for_each(|_| drop(client.answer()));
        assert_eq!(client.write(0, &[9; 4096]), Err(Errno::IO), "it fails at once");
        let given_back = removal.wait(PATIENCE).unwrap();
        drop((removal, given_back));
        assert_eq!(Arc::strong_count(&store), 1, "nobody else has the store");
        let again = target.add(export_of_target(Arc::clone(&store))).unwrap();
        assert_ne!(again, key);
    }
}

#[test]
fn a_store_is_given_back_when_its_last_request_is_over() {
    let (a, b) = memory::pair(9014).unwrap();
    let store = Arc::new(FaultStore::new(MemoryStore::new(SIZE, 512).unwrap()));
    let target = target(Box::new(a), Arc::clone(&store) as Arc<dyn Store>);
    let client = Client::start(Box::new(b), PATIENCE).connected();
    store.faults().add(Rule::delay(Duration::from_millis(1500)).on(OperationKind::Write));
    client.submit(Operation::Write { fua: false }, 0, Data::Out(&[1; 512]), 0);
    client.read(0, 512).expect("it comes after the write");
    let removal = target.remove(target.export("disk").unwrap()).unwrap();
    client.await_notice(has_failed);
    assert_eq!(removal.wait(Duration::ZERO).err(), Some(Remains::Requests));
    let second = || export_of_target(Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    assert_eq!(target.add(second()), Err(ExportTaken::Name(name("disk"))));
    assert!(removal.wait(PATIENCE).is_ok());
    assert!(target.add(second()).is_ok());
}
