//! Many volumes at once, at a target that is killed and started again meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use tyche_testkit::wait::wait_until;

use crate::client::pb::{DeleteVolumeRequest, ListVolumesRequest};
use crate::client::{Client, is_worth_a_retry};
use crate::rig::rig;

/// Volumes at once.
const COUNT: usize = 50;
/// Kills of the target meanwhile.
const KILLS: usize = 4;

#[test]
fn fifty_volumes_are_made_while_the_target_is_killed() {
    let rig = rig!();
    let mut target = Some(rig.serve());
    let driver = rig.drive(0);
    let made = AtomicUsize::new(0);
    let create = |number: usize| {
        let client = Client::new(driver.socket());
        let wanted = rig.wanted(&format!("pvc-{number}"), 16 << 20);
        let mut id = String::new();
        wait_until("the volume is made", || {
            match client.ask(client.controller().create_volume(wanted.clone())) {
                Ok(answer) => id = answer.volume.unwrap().volume_id,
                Err(error) => assert!(is_worth_a_retry(&error), "{error}"),
            }
            !id.is_empty()
        });
        made.fetch_add(1, SeqCst);
        id
    };
    let ids = thread::scope(|scope| {
        let create = &create;
        let all: Vec<_> = (0..COUNT).map(|it| scope.spawn(move || create(it))).collect();
        for kill in 1..=KILLS {
            wait_until("some are made", || made.load(SeqCst) >= kill * COUNT / (KILLS + 2));
            drop(target.take());
            target = Some(rig.serve());
        }
        all.into_iter().map(|it| it.join().unwrap()).collect::<BTreeSet<_>>()
    });
    assert_eq!(ids.len(), COUNT);
    drop(target.take());
    let _target = rig.serve();
    let listed = driver.client.ask(
        driver
            .client
            .controller()
            .list_volumes(ListVolumesRequest { max_entries: 0, starting_token: String::new() }),
    );
    let listed = listed.unwrap().entries.into_iter().map(|it| it.volume.unwrap().volume_id);
    assert_eq!(listed.collect::<BTreeSet<_>>(), ids);
    for volume_id in ids {
        let request = DeleteVolumeRequest { volume_id, ..DeleteVolumeRequest::default() };
        driver.client.ask(driver.client.controller().delete_volume(request)).unwrap();
    }
    rig.assert_empty();
}
