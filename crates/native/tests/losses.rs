//! Losses of a target's disk are reported once to every host that had data at stake, also by a
//! later process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tyche_block::{Errno, Operation, OperationKind};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::{Link, memory};
use tyche_native::{Target, TargetOptions};
use tyche_proto::Writer;
use tyche_proto::wire::Uuid;
use tyche_remote::Notice;
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::memory::MemoryStore;

use crate::rig::{Client, Data, PATIENCE, SIZE, Shared, options_of_target};

const FUA: Operation = Operation::Write { fua: true };

/// The state that a target's process leaves behind.
#[derive(Clone, Default)]
struct Kept(Arc<AtomicU64>);

impl Kept {
    fn generation(&self) -> Uuid {
        Uuid::from_u128(100 + u128::from(self.0.load(Ordering::SeqCst)))
    }

    /// A process that serves `store`.
    fn serve(&self, link: Box<dyn Link>, store: Arc<dyn Store>) -> Target {
        Target::start(self.options(link, store)).unwrap()
    }

    fn options(&self, link: Box<dyn Link>, store: Arc<dyn Store>) -> TargetOptions {
        let mut options = options_of_target(link, store);
        options.exports[0].generation = self.generation();
        let kept = self.clone();
        options.renew_generation = Box::new(move |_, _| {
            kept.0.fetch_add(1, Ordering::SeqCst);
            kept.generation()
        });
        options
    }
}

fn write_back() -> FaultStore {
    FaultStore::with_volatile_cache(MemoryStore::new(SIZE, 512).unwrap()).unwrap()
}

fn fua(client: &Client) -> Result<(), Errno> {
    client.submit(FUA, 8192, Data::Out(&[2; 512]), 0);
    client.answer().result
}

/// The write's failure used up the disk's report: a later flush succeeds there.
#[test]
fn after_a_failed_fua_write_one_flush_fails_and_the_session_goes_on() {
    let (a, b) = memory::pair(9014).unwrap();
    let (store, kept) = (write_back(), Kept::default());
    let (faults, store) = (store.faults(), Arc::new(store) as Arc<dyn Store>);
    let _target = kept.serve(Box::new(a), store);
    let client = Client::start(Box::new(b), PATIENCE).connected();
    client.write(0, &[1; 4096]).unwrap();
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Write).times(1));
    assert_eq!(fua(&client), Err(Errno::IO));
    assert_eq!(kept.0.load(Ordering::SeqCst), 1, "kept before it was answered");
    assert_eq!(client.flush(), Err(Errno::IO), "what was written before may be lost");
    assert_eq!((fua(&client), client.flush()), (Ok(()), Ok(())), "that was told");
    client.write(0, &[1; 4096]).unwrap();
    assert_eq!(client.flush(), Ok(()));
    assert_eq!(kept.0.load(Ordering::SeqCst), 1, "one loss");
}

/// Two hosts share the disk, which tells the first of them that asks.
#[test]
fn a_loss_is_told_once_to_everybody_who_had_data_at_stake_and_to_nobody_else() {
    let (store, kept) = (write_back(), Kept::default());
    let (faults, store) = (store.faults(), Arc::new(store) as Arc<dyn Store>);
    let pairs = [(); 3].map(|()| memory::pair(9014).unwrap());
    let [(a, clean), (b, first), (c, second)] = pairs;
    let mut options = kept.options(Box::new(a), store);
    options.exports[0].shared = true;
    options.links.extend([Box::new(b) as Box<dyn Link>, Box::new(c)]);
    let _target = Target::start(options).unwrap();
    let connected = |link| Client::start(Box::new(link), PATIENCE).connected();
    let [clean, first, second] = [clean, first, second].map(connected);
    first.write(0, &[1; 4096]).unwrap();
    second.write(4096, &[2; 4096]).unwrap();
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Flush).times(1));
    assert_eq!(clean.flush(), Ok(()), "it is the one that the disk tells, and has lost nothing");
    assert_eq!(kept.0.load(Ordering::SeqCst), 1);
    clean.write(8192, &[3; 4096]).unwrap();
    assert_eq!(
        [&first, &second, &clean].map(Client::flush),
        [Err(Errno::IO), Err(Errno::IO), Ok(())]
    );
    for client in [&first, &second, &clean] {
        client.write(0, &[4; 4096]).unwrap();
        assert_eq!(client.flush(), Ok(()));
    }
    assert_eq!(kept.0.load(Ordering::SeqCst), 1, "one loss");
}

/// The host learns of each loss, however many there are.
#[test]
fn a_disk_that_never_recovers_fails_each_flush_that_has_data_at_stake() {
    let (a, b) = memory::pair(9014).unwrap();
    let (store, kept) = (write_back(), Kept::default());
    let (faults, store) = (store.faults(), Arc::new(store) as Arc<dyn Store>);
    let _target = kept.serve(Box::new(a), store);
    let client = Client::start(Box::new(b), PATIENCE).connected();
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Flush));
    for _ in 0..5 {
        client.write(0, &[1; 4096]).unwrap();
        assert_eq!(client.flush(), Err(Errno::IO));
    }
    assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
}

/// As if by `kill -9` between the failure and its answer.
#[test]
fn a_failed_flush_whose_answer_is_lost_fails_at_the_next_target_too() {
    let (a, b) = memory::pair(9014).unwrap();
    let (store, kept) = (write_back(), Kept::default());
    let (faults, store) = (store.faults(), Arc::new(store) as Arc<dyn Store>);
    let (cable, plan) = (Arc::new(Mutex::new(a)), FaultPlan::new());
    // Frames that the target sends from now on are lost.
    let cut = FaultLink::new(*Shared::new(&cable), 1, Side::Send, plan.clone()).unwrap();
    let first = kept.serve(Box::new(cut), Arc::clone(&store));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    client.write(0, &[1; 4096]).unwrap();
    let rule = faults.add(Rule::fail(Errno::IO).on(OperationKind::Flush).times(1));
    plan.set_cut(true);
    client.submit(Operation::Flush, 0, Data::None(0), 1);
    client.await_notice(|notice| matches!(notice, Notice::Lost(_)));
    drop(first);
    assert_eq!(faults.remove(rule), Some(1), "the disk has told it, once");
    assert!(client.done.try_recv().is_err(), "nobody has told the host");

    let _second = kept.serve(Shared::new(&cable), store);
    assert_eq!(client.answer().result, Err(Errno::IO), "what was asked again fails");
    assert_eq!(client.flush(), Ok(()));
}

/// A target that detects that its machine was rolled back.
#[test]
fn a_distrusted_target_fails_flushes_and_forgets_who_wrote() {
    let (a, b) = memory::pair(9014).unwrap();
    let kept = Kept::default();
    let target = kept.serve(Box::new(a), Arc::new(write_back()));
    let client = Client::start(Box::new(b), PATIENCE).connected();
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    let nobody = Uuid::from_u128(77);
    target.distrust(Writer { session: nobody, device: nobody, host: None });
    assert_eq!(kept.0.load(Ordering::SeqCst), 1);
    assert_eq!(target.exported()[0].1.losses(), 1, "hosts of other protocols see it as well");
    assert_eq!(client.flush(), Err(Errno::IO));
}
