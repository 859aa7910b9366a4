//! What volumes are to workloads: file systems and devices, for one node or several, and never
//! formatted if anything is on them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use rustix::process::Signal;
use tonic::Code;
use tyche_testkit::wait::wait_until;

use crate::client::pb::volume_capability::access_mode::Mode;
use crate::client::pb::{
    ControllerUnpublishVolumeRequest, DeleteVolumeRequest, NodeGetVolumeHealthRequest,
    NodeGetVolumeStatsRequest, Volume,
};
use crate::client::{block, is_worth_a_retry, mounted};
use crate::rig::{Driver, Rig, allow, publish, rig, stage, unstage};

/// Bytes of a volume.
const SIZE: u64 = 320 << 20;

fn delete(driver: &Driver, volume: &Volume) {
    let volume_id = volume.volume_id.clone();
    let request = DeleteVolumeRequest { volume_id, ..DeleteVolumeRequest::default() };
    let ask = || driver.client.ask(driver.client.controller().delete_volume(request.clone()));
    ask().unwrap();
}

/// The code with which a volume is not staged.
fn refusal(rig: &Rig, driver: &Driver, volume: &Volume, kind: &str) -> Code {
    let capability = mounted(kind, Mode::SingleNodeWriter);
    let request = stage(rig, 0, volume, &capability);
    driver.client.ask(driver.client.node().node_stage_volume(request)).unwrap_err().code()
}

#[test]
fn file_systems_are_made_once_and_keep_what_is_written() {
    let rig = rig!();
    let _target = rig.serve();
    let driver = rig.drive(0);
    for (kind, other) in [("ext4", "xfs"), ("xfs", "ext4")] {
        let volume = driver.create(rig.wanted(&format!("pvc-{kind}"), SIZE));
        let capability = mounted(kind, Mode::SingleNodeSingleWriter);
        driver.attach(&rig, 0, &volume, &capability);
        let file = Path::new(&rig.point(0)).join("file");
        fs::write(&file, "content").unwrap();
        // For one workload at a time.
        let mut second = publish(&rig, 0, &volume, &capability);
        second.target_path += "-other";
        let asked = driver.client.ask(driver.client.node().node_publish_volume(second));
        assert_eq!(asked.unwrap_err().code(), Code::FailedPrecondition);
        let volume_id = volume.volume_id.clone();
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume_id.clone(),
            volume_path: rig.point(0),
            ..NodeGetVolumeStatsRequest::default()
        };
        let asked = driver.client.ask(driver.client.node().node_get_volume_stats(request));
        let usage = asked.unwrap().usage;
        assert_eq!(usage.len(), 2);
        assert!(usage.iter().all(|it| it.total > 0 && it.available > 0), "{usage:?}");
        let request =
            NodeGetVolumeHealthRequest { volume_id, ..NodeGetVolumeHealthRequest::default() };
        let asked = driver.client.ask(driver.client.node().node_get_volume_health(request));
        assert!(asked.unwrap().volume_health.unwrap().health_statuses.is_empty());
        driver.detach(&rig, 0, &volume);
        assert_eq!(refusal(&rig, &driver, &volume, other), Code::FailedPrecondition);
        let reader = mounted(kind, Mode::SingleNodeReaderOnly);
        driver.detach(&rig, 0, &volume);
        driver.attach(&rig, 0, &volume, &reader);
        assert_eq!(fs::read_to_string(&file).unwrap(), "content");
        fs::write(&file, "other").unwrap_err();
        driver.detach(&rig, 0, &volume);
        delete(&driver, &volume);
    }
    rig.assert_empty();
}

#[test]
fn a_disk_with_anything_on_it_is_never_formatted() {
    let rig = rig!();
    let _target = rig.serve();
    let driver = rig.drive(0);
    let volume = driver.create(rig.wanted("pvc-1", SIZE));
    let request = allow(&volume, &driver.node_id(), &mounted("ext4", Mode::SingleNodeWriter));
    driver.client.ask(driver.client.controller().controller_publish_volume(request)).unwrap();
    let disk = File::options().write(true).open(rig.path("pool/vols/pvc-1")).unwrap();
    let entry = [0, 1, 1, 0, 0x83, 1, 1, 0, 8, 0, 0, 0, 8, 0, 0, 0];
    let contents: [&[(u64, &[u8])]; 3] = [
        &[(0, b"LUKS\xba\xbe\x00\x01")],
        // Version 1, and the number of the last page.
        &[(1024, &[1, 0, 0, 0, 255, 0, 0, 0]), (4086, b"SWAPSPACE2")],
        // A partition.
        &[(446, &entry), (510, b"\x55\xaa")],
    ];
    for content in contents {
        disk.write_all_at(&vec![0; 1 << 20], 0).unwrap();
        for (offset, bytes) in content {
            disk.write_all_at(bytes, *offset).unwrap();
        }
        disk.sync_all().unwrap();
        assert_eq!(refusal(&rig, &driver, &volume, "ext4"), Code::FailedPrecondition);
        let request = unstage(&rig, 0, &volume);
        driver.client.ask(driver.client.node().node_unstage_volume(request)).unwrap();
        let disk = File::open(rig.path("pool/vols/pvc-1")).unwrap();
        for (offset, bytes) in content {
            let mut found = vec![0; bytes.len()];
            disk.read_exact_at(&mut found, *offset).unwrap();
            assert_eq!(found, *bytes);
        }
    }
    delete(&driver, &volume);
    rig.assert_empty();
}

#[test]
fn devices_are_for_several_nodes_if_they_are_made_so() {
    let rig = rig!();
    let _target = rig.serve();
    let drivers = [rig.drive(0), rig.drive(1)];
    let shared = block(Mode::MultiNodeMultiWriter);
    let own = drivers[0].create(rig.wanted("pvc-own", SIZE));
    let request = allow(&own, &drivers[0].node_id(), &shared);
    let controller = || drivers[0].client.controller();
    let asked = drivers[0].client.ask(controller().controller_publish_volume(request));
    assert_eq!(asked.unwrap_err().code(), Code::InvalidArgument);
    // What a node has never had, it has no more.
    let request = ControllerUnpublishVolumeRequest {
        volume_id: own.volume_id.clone(),
        node_id: drivers[1].node_id(),
        ..ControllerUnpublishVolumeRequest::default()
    };
    drivers[0].client.ask(controller().controller_unpublish_volume(request)).unwrap();
    let mut wanted = rig.wanted("pvc-shared", SIZE);
    wanted.volume_capabilities = vec![shared.clone()];
    let volume = drivers[0].create(wanted);
    for (node, driver) in drivers.iter().enumerate() {
        driver.attach(&rig, node, &volume, &shared);
        let shown = fs::metadata(rig.point(node)).unwrap();
        assert!(shown.file_type().is_block_device());
        let device = File::options().write(true).open(rig.point(node)).unwrap();
        device.write_all_at(&[node as u8 + 1; 4096], 4096 * node as u64).unwrap();
        device.sync_all().unwrap();
    }
    for (node, driver) in drivers.iter().enumerate() {
        driver.detach(&rig, node, &volume);
        assert!(!Path::new(&rig.point(node)).exists());
    }
    let mut found = [0; 8192];
    let disk = File::open(rig.path("pool/vols/pvc-shared")).unwrap();
    disk.read_exact_at(&mut found, 0).unwrap();
    assert!(found[..4096].iter().all(|it| *it == 1) && found[4096..].iter().all(|it| *it == 2));
    delete(&drivers[0], &volume);
    delete(&drivers[0], &own);
    rig.assert_empty();
}

/// The daemon of a session is killed while its disk is mounted; it is staged again.
#[test]
fn a_dead_session_is_replaced() {
    let rig = rig!();
    let _target = rig.serve();
    let driver = rig.drive(0);
    let volume = driver.create(rig.wanted("pvc-1", SIZE));
    let capability = mounted("ext4", Mode::SingleNodeWriter);
    let request = allow(&volume, &driver.node_id(), &capability);
    driver.client.ask(driver.client.controller().controller_publish_volume(request)).unwrap();
    let ask = || {
        let request = stage(&rig, 0, &volume, &capability);
        driver.client.ask(driver.client.node().node_stage_volume(request)).map(drop)
    };
    ask().unwrap();
    let file = Path::new(&rig.staging(0)).join("file");
    fs::write(&file, "content").unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    let pid = rig.sessions(0)[0]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    wait_until("the daemon is dead", || rig.sessions(0)[0]["state"] == "dead");
    wait_until("it is staged again", || match ask() {
        Ok(()) => true,
        Err(error) => {
            assert!(is_worth_a_retry(&error), "{error}");
            false
        }
    });
    assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    let request = unstage(&rig, 0, &volume);
    driver.client.ask(driver.client.node().node_unstage_volume(request)).unwrap();
    delete(&driver, &volume);
    rig.assert_empty();
}
