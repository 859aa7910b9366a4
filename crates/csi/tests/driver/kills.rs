//! A driver that is killed at any moment: whoever asks again gets what was asked for, and at the
//! end nothing is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tonic::{Code, Status};
use tyche_testkit::random::Random;
use tyche_testkit::wait::wait_until;

use crate::client::pb::volume_capability::access_mode::Mode;
use crate::client::pb::{
    ControllerExpandVolumeRequest, ControllerUnpublishVolumeRequest, CreateSnapshotRequest,
    DeleteSnapshotRequest, DeleteVolumeRequest, NodeExpandVolumeRequest, Volume,
    VolumeContentSource, volume_content_source,
};
use crate::client::{Client, bytes, is_worth_a_retry, mounted};
use crate::rig::{Driver, Rig, allow, publish, rig, stage, unpublish, unstage};

/// Bytes of the volume, at first and later.
const SIZES: [u64; 2] = [320 << 20, 384 << 20];
/// Seed of the moments of kills.
const SEED: u64 = 47;

/// The names that orchestrators keep.
#[derive(Default)]
struct Kept {
    volume: Volume,
    snapshot: String,
    copy: Volume,
}

/// A request, which may be repeated.
type Step = fn(&Rig, &Client, &str, &mut Kept) -> Result<(), Status>;

/// The life of a volume, of a snapshot of it, and of a copy of that.
const STEPS: [(&str, Step); 14] = [
    ("create", |rig, client, _, kept| {
        let mut wanted = rig.wanted("pvc-1", SIZES[0]);
        wanted.volume_capabilities = vec![xfs()];
        let made = client.ask(client.controller().create_volume(wanted))?;
        kept.volume = made.volume.unwrap();
        Ok(())
    }),
    ("allow", |_, client, node, kept| {
        let request = allow(&kept.volume, node, &xfs());
        client.ask(client.controller().controller_publish_volume(request)).map(drop)
    }),
    ("stage", |rig, client, _, kept| {
        client.ask(client.node().node_stage_volume(stage(rig, 0, &kept.volume, &xfs()))).map(drop)
    }),
    ("publish", |rig, client, _, kept| {
        let request = publish(rig, 0, &kept.volume, &xfs());
        client.ask(client.node().node_publish_volume(request))?;
        fs::write(Path::new(&rig.point(0)).join("file"), "content").unwrap();
        Ok(())
    }),
    ("expand", |_, client, _, kept| {
        let request = ControllerExpandVolumeRequest {
            volume_id: kept.volume.volume_id.clone(),
            capacity_range: bytes(SIZES[1]),
            ..ControllerExpandVolumeRequest::default()
        };
        let done = client.ask(client.controller().controller_expand_volume(request))?;
        assert!(done.node_expansion_required && done.capacity_bytes == SIZES[1].cast_signed());
        Ok(())
    }),
    ("expand at the node", |rig, client, _, kept| {
        let request = NodeExpandVolumeRequest {
            volume_id: kept.volume.volume_id.clone(),
            volume_path: rig.point(0),
            capacity_range: bytes(SIZES[1]),
            ..NodeExpandVolumeRequest::default()
        };
        client.ask(client.node().node_expand_volume(request)).map(drop)
    }),
    ("snapshot", |_, client, _, kept| {
        let request = CreateSnapshotRequest {
            name: "snapshot-1".to_owned(),
            source_volume_id: kept.volume.volume_id.clone(),
            ..CreateSnapshotRequest::default()
        };
        let made = client.ask(client.controller().create_snapshot(request))?.snapshot.unwrap();
        assert!(made.ready_to_use && made.creation_time.is_some());
        kept.snapshot = made.snapshot_id;
        Ok(())
    }),
    ("copy", |rig, client, _, kept| {
        let snapshot_id = kept.snapshot.clone();
        let source = volume_content_source::SnapshotSource { snapshot_id };
        let mut wanted = rig.wanted("pvc-2", 2 * SIZES[1]);
        let r#type = Some(volume_content_source::Type::Snapshot(source));
        wanted.volume_content_source = Some(VolumeContentSource { r#type });
        let made = client.ask(client.controller().create_volume(wanted))?;
        kept.copy = made.volume.unwrap();
        assert_eq!(kept.copy.capacity_bytes, 2 * SIZES[1].cast_signed());
        Ok(())
    }),
    ("unpublish", |rig, client, _, kept| {
        client.ask(client.node().node_unpublish_volume(unpublish(rig, 0, &kept.volume))).map(drop)
    }),
    ("unstage", |rig, client, _, kept| {
        client.ask(client.node().node_unstage_volume(unstage(rig, 0, &kept.volume)))?;
        assert!(rig.sessions(0).is_empty() && rig.mounts().is_empty());
        Ok(())
    }),
    ("forbid", |_, client, node, kept| {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: kept.volume.volume_id.clone(),
            node_id: node.to_owned(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        client.ask(client.controller().controller_unpublish_volume(request)).map(drop)
    }),
    ("delete the snapshot", |_, client, _, kept| {
        let snapshot_id = kept.snapshot.clone();
        let request = DeleteSnapshotRequest { snapshot_id, ..DeleteSnapshotRequest::default() };
        client.ask(client.controller().delete_snapshot(request)).map(drop)
    }),
    ("delete the copy", |_, client, _, kept| delete(client, &kept.copy)),
    ("delete", |_, client, _, kept| delete(client, &kept.volume)),
];

/// A file system that grows in use without CAP_SYS_RESOURCE.
fn xfs() -> crate::client::pb::VolumeCapability {
    mounted("xfs", Mode::SingleNodeWriter)
}

fn ext4() -> crate::client::pb::VolumeCapability {
    mounted("ext4", Mode::SingleNodeWriter)
}

fn delete(client: &Client, volume: &Volume) -> Result<(), Status> {
    let volume_id = volume.volume_id.clone();
    let request = DeleteVolumeRequest { volume_id, ..DeleteVolumeRequest::default() };
    client.ask(client.controller().delete_volume(request)).map(drop)
}

/// Repeats a request until it succeeds.
fn insist(what: &str, mut step: impl FnMut() -> Result<(), Status>) {
    wait_until(what, || match step() {
        Ok(()) => true,
        Err(error) => {
            assert!(is_worth_a_retry(&error), "{what}: {error}");
            false
        }
    });
}

#[test]
fn requests_are_repeated_after_each_is_done() {
    let rig = rig!();
    let _target = rig.serve();
    let mut driver = rig.drive(0);
    let (node, mut kept) = (driver.node_id(), Kept::default());
    for (name, step) in STEPS {
        step(&rig, &driver.client, &node, &mut kept).unwrap_or_else(|it| panic!("{name}: {it}"));
        driver.kill();
        driver = rig.drive(0);
        step(&rig, &driver.client, &node, &mut kept).unwrap_or_else(|it| panic!("{name}: {it}"));
    }
    rig.assert_empty();
}

#[test]
fn requests_are_repeated_after_a_kill_in_the_middle() {
    let rig = rig!();
    let _target = rig.serve();
    let mut random = Random(SEED);
    let (mut kept, node) = (Kept::default(), rig.drive(0).node_id());
    for _ in 0..3 {
        for (name, step) in STEPS {
            let driver = rig.drive(0);
            let began = Instant::now();
            let client = Client::new(driver.socket());
            // Longer than the shortest of them takes, shorter than the longest.
            let moment = Duration::from_millis(random.below(250));
            thread::scope(|scope| {
                let kill = scope.spawn(move || {
                    thread::sleep(moment.saturating_sub(began.elapsed()));
                    driver.kill();
                });
                // Done, or broken off.
                let _ = step(&rig, &client, &node, &mut kept);
                kill.join().unwrap();
            });
            let driver = rig.drive(0);
            insist(name, || step(&rig, &driver.client, &node, &mut kept));
        }
        rig.assert_empty();
    }
}

/// A driver whose mkfs does not end before there is a file `go`; each run of it leaves a line.
fn with_a_slow_mkfs(rig: &Rig) -> Driver {
    let programs = rig.path("programs");
    fs::create_dir_all(&programs).unwrap();
    let (script, dir) = (programs.join("mkfs.ext4"), programs.display());
    let text = format!(
        "#!/bin/sh\necho run >>{dir}/runs\nwhile [ ! -e {dir}/go ]; do sleep 0.05; done\n\
         PATH=${{PATH#*:}} exec mkfs.ext4 \"$@\"\n"
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{dir}:{}", std::env::var("PATH").unwrap());
    rig.drive_with(0, &|command| {
        command.env("PATH", &path);
    })
}

#[test]
fn no_second_mkfs_begins_while_one_of_a_killed_driver_is_at_work() {
    let rig = rig!();
    let _target = rig.serve();
    let driver = with_a_slow_mkfs(&rig);
    let volume = driver.create(rig.wanted("pvc-1", SIZES[0]));
    let request = allow(&volume, &driver.node_id(), &ext4());
    driver.client.ask(driver.client.controller().controller_publish_volume(request)).unwrap();
    let ask = |client: &Client| {
        let request = stage(&rig, 0, &volume, &ext4());
        client.ask(client.node().node_stage_volume(request)).map(drop)
    };
    let runs = || fs::read_to_string(rig.path("programs/runs")).unwrap_or_default();
    thread::scope(|scope| {
        let client = Client::new(driver.socket());
        let first = scope.spawn(move || ask(&client));
        wait_until("mkfs is at work", || !runs().is_empty());
        driver.kill();
        first.join().unwrap().unwrap_err();
    });
    let driver = with_a_slow_mkfs(&rig);
    assert_eq!(ask(&driver.client).unwrap_err().code(), Code::Aborted);
    fs::write(rig.path("programs/go"), "").unwrap();
    insist("it is staged", || ask(&driver.client));
    assert_eq!(runs(), "run\n", "once");
    let request = unstage(&rig, 0, &volume);
    driver.client.ask(driver.client.node().node_unstage_volume(request)).unwrap();
    delete(&driver.client, &volume).unwrap();
    rig.assert_empty();
}
