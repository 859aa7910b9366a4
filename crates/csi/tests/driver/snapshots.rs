//! Snapshots of volumes in use.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use tyche_testkit::process::run;
use tyche_testkit::wait::wait_until;

use crate::client::mounted;
use crate::client::pb::volume_capability::access_mode::Mode;
use crate::client::pb::volume_content_source::{SnapshotSource, Type};
use crate::client::pb::{
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, DeleteSnapshotRequest,
    DeleteVolumeRequest, Volume, VolumeContentSource,
};
use crate::lines;
use crate::rig::{Driver, Rig, rig};

/// Bytes of a volume.
const SIZE: u64 = 320 << 20;
/// Lines that are written between two snapshots, at least.
const BETWEEN: u64 = 20;

/// Takes a snapshot of a volume; returns its id.
fn snapshot(driver: &Driver, volume: &Volume, name: &str) -> String {
    let request = CreateSnapshotRequest {
        source_volume_id: volume.volume_id.clone(),
        name: name.to_owned(),
        ..CreateSnapshotRequest::default()
    };
    let asked = driver.client.ask(driver.client.controller().create_snapshot(request));
    let snapshot = asked.unwrap().snapshot.unwrap();
    assert!(snapshot.ready_to_use && snapshot.size_bytes >= SIZE.cast_signed());
    snapshot.snapshot_id
}

/// Restores a snapshot to a volume, and reads it at the second node; returns how many lines it has.
fn restored(rig: &Rig, driver: &Driver, (snapshot, kind): (&str, &str), name: &str) -> u64 {
    let capability = mounted(kind, Mode::SingleNodeWriter);
    let mut wanted = rig.wanted(name, SIZE);
    let source = SnapshotSource { snapshot_id: snapshot.to_owned() };
    wanted.volume_content_source =
        Some(VolumeContentSource { r#type: Some(Type::Snapshot(source)) });
    wanted.volume_capabilities = vec![capability.clone()];
    let volume = driver.create(wanted);
    driver.attach(rig, 1, &volume, &capability);
    let count = lines::read(Path::new(&rig.point(1)));
    driver.detach(rig, 1, &volume);
    let disk = rig.path("pool/vols").join(name);
    let check: &[&str] = if kind == "xfs" { &["xfs_repair", "-n"] } else { &["e2fsck", "-fn"] };
    run(std::process::Command::new(check[0]).arg(check[1]).arg(disk));
    delete(driver, &volume);
    count
}

/// Takes a volume from all nodes, and deletes it.
fn delete(driver: &Driver, volume: &Volume) {
    let volume_id = volume.volume_id.clone();
    let request = ControllerUnpublishVolumeRequest {
        volume_id: volume_id.clone(),
        ..ControllerUnpublishVolumeRequest::default()
    };
    driver.client.ask(driver.client.controller().controller_unpublish_volume(request)).unwrap();
    let request = DeleteVolumeRequest { volume_id, ..DeleteVolumeRequest::default() };
    driver.client.ask(driver.client.controller().delete_volume(request)).unwrap();
}

#[test]
fn a_snapshot_under_load_has_all_that_was_kept_before() {
    let rig = rig!();
    let _target = rig.serve();
    let (first, second) = (rig.drive(0), rig.drive(1));
    for kind in ["ext4", "xfs"] {
        let capability = mounted(kind, Mode::SingleNodeWriter);
        let volume = first.create(rig.wanted(&format!("pvc-{kind}"), SIZE));
        first.attach(&rig, 0, &volume, &capability);
        let (count, point) = (AtomicU64::new(0), rig.point(0));
        let ids: Vec<String> = thread::scope(|scope| {
            let writer = scope.spawn(|| lines::write(Path::new(&point), &count));
            let ids = (0..3).map(|number| {
                let enough = BETWEEN * (number + 1);
                wait_until("lines are written", || count.load(SeqCst) >= enough);
                let before = count.load(SeqCst);
                let id = snapshot(&first, &volume, &format!("snap-{kind}-{number}"));
                // The last one may be on the disk before its writer is told.
                let after = count.load(SeqCst) + 1;
                let name = format!("copy-{kind}-{number}");
                let found = restored(&rig, &second, (&id, kind), &name);
                assert!((before..=after).contains(&found), "{before} <= {found} <= {after}");
                id
            });
            let ids = ids.collect();
            let request = ControllerUnpublishVolumeRequest {
                volume_id: volume.volume_id.clone(),
                node_id: first.node_id(),
                ..ControllerUnpublishVolumeRequest::default()
            };
            let mut controller = second.client.controller();
            second.client.ask(controller.controller_unpublish_volume(request)).unwrap();
            writer.join().unwrap();
            ids
        });
        first.detach(&rig, 0, &volume);
        for snapshot_id in ids {
            let request = DeleteSnapshotRequest { snapshot_id, ..DeleteSnapshotRequest::default() };
            first.client.ask(first.client.controller().delete_snapshot(request)).unwrap();
        }
        delete(&first, &volume);
    }
    rig.assert_empty();
}
