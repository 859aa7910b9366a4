//! Exports and links that come and go while the target runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tyche_block::{Errno, Operation, OperationKind};
use tyche_link::{Link, memory};
use tyche_native::{Remains, Target};
use tyche_proto::{ExportTaken, Failure};
use tyche_remote::{HostLink, Notice};
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::memory::MemoryStore;

use crate::rig::{
    Client, Data, PATIENCE, SIZE, Shared, exercise, export_of_target, name, options_of_target,
    target,
};

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

#[test]
fn a_link_is_removed_under_load_and_sessions_go_on_over_others() {
    let pairs = [(); 3].map(|()| memory::pair(9014).unwrap());
    let [(a, to_a), (b, to_b), (c, to_c)] = pairs;
    let names = [a.name(), b.name(), c.name()].map(str::to_owned);
    let mut options =
        options_of_target(Box::new(a), Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    options.links.push(Box::new(b));
    options.target.memory_pages = 1 << 16;
    let target = Target::start(options).unwrap();
    let client = Client::start_with(Box::new(to_a), PATIENCE, |options| {
        for link in [to_b, to_c] {
            options.links.push(HostLink { link: Box::new(link), target: None });
        }
    });
    let client = client.connected();
    exercise(&client, 1, 20);
    let done = |target: &Target| {
        let report = target.report();
        let counts = report.exports[0].uses.iter().map(|it| it.counts.reads + it.counts.writes);
        counts.sum::<u64>()
    };
    let links =
        |target: &Target| target.report().links.into_iter().map(|it| it.link).collect::<Vec<_>>();
    let before = done(&target);
    assert!(target.remove_link("nothing").is_none());
    let load = std::thread::spawn(move || {
        exercise(&client, 2, 50);
        client
    });
    let removal = target.remove_link(&names[0]).expect("it is there");
    assert!(removal.wait(PATIENCE), "nothing is left");
    assert!(target.remove_link(&names[0]).is_none());
    assert_eq!(links(&target), names[1..2]);
    target.add_links(vec![Box::new(c)], Vec::new(), Vec::new()).unwrap();
    let client = load.join().unwrap();
    assert!(done(&target) > before, "what was done over it is still counted");
    // Its index is the new one's.
    assert_eq!(links(&target), names[1..]);
    assert!(target.remove_link(&names[1]).unwrap().wait(PATIENCE));
    exercise(&client, 3, 20);
    assert_eq!(links(&target), names[2..]);
    target.stop();
    assert!(target.report().links.is_empty());
}

#[test]
fn a_removed_link_whose_disk_is_slow_lets_nobody_in_and_ends_by_itself() {
    let (a, b) = memory::pair(9014).unwrap();
    let (link, cable) = (a.name().to_owned(), Arc::new(Mutex::new(b)));
    let store = Arc::new(FaultStore::new(MemoryStore::new(SIZE, 512).unwrap()));
    let target = target(Box::new(a), Arc::clone(&store) as Arc<dyn Store>);
    let client = Client::start(Shared::new(&cable), PATIENCE).connected();
    client.read(0, 512).unwrap();
    store.faults().add(Rule::delay(Duration::from_millis(1500)).on(OperationKind::Write));
    client.submit(Operation::Write { fua: false }, 0, Data::Out(&[1; 512]), 0);
    client.read(0, 512).expect("it comes after the write");
    let removal = target.remove_link(&link).unwrap();
    assert!(!removal.wait(Duration::ZERO));
    let report = target.report();
    assert!(report.links[0].problem.as_ref().unwrap().contains("it is removed"));
    let (a, _) = memory::pair(9014).unwrap();
    let second = Named(Box::new(a), link.clone());
    let refused = target.add_links(vec![Box::new(second)], Vec::new(), Vec::new()).unwrap_err();
    assert!(refused.to_string().contains("has not ended"), "{refused}");
    // It tries to come back all the time.
    assert!(removal.wait(PATIENCE));
    let report = target.report();
    assert!(report.links.is_empty() && report.sessions.is_empty());
    assert_eq!(report.exports[0].uses[0].counts.writes, 1);
}

/// A link of another name.
struct Named(Box<dyn Link>, String);

impl Link for Named {
    fn interface(&self) -> tyche_link::Interface<'_> {
        tyche_link::Interface { name: &self.1, mac: self.0.mac() }
    }

    fn frame_len_max(&self) -> usize {
        self.0.frame_len_max()
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        self.0.receive_capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut tyche_link::RxBatch) -> std::io::Result<usize> {
        self.0.receive(batch)
    }

    fn send(&mut self, batch: &tyche_link::TxBatch<'_>) -> std::io::Result<usize> {
        self.0.send(batch)
    }

    fn wait_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.wait_fd()
    }
}
