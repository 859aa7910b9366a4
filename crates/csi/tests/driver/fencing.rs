//! A node that is lost: it may not have its volume any more, though it still writes, and nobody
//! can ask it to stop. Another node takes over.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use tyche_testkit::process::run;
use tyche_testkit::wait::wait_until;

use crate::client::mounted;
use crate::client::pb::volume_capability::access_mode::Mode;
use crate::client::pb::{ControllerUnpublishVolumeRequest, DeleteVolumeRequest};
use crate::lines;
use crate::rig::{allow, rig, stage, unstage};

/// The digest of a file, past all caches of the node that writes it.
fn digest(path: &Path) -> String {
    run(std::process::Command::new("sha256sum").arg(path))
}

#[test]
fn a_lost_node_writes_nothing_after_its_volume_is_unpublished() {
    let rig = rig!();
    let _target = rig.serve();
    let (first, second) = (rig.drive(0), rig.drive(1));
    let capability = mounted("ext4", Mode::SingleNodeWriter);
    let volume = first.create(rig.wanted("pvc-1", 256 << 20));
    first.attach(&rig, 0, &volume, &capability);
    let count = AtomicU64::new(0);
    let point = rig.point(0);
    let disk = rig.path("pool/vols/pvc-1");
    let kept = thread::scope(|scope| {
        let writer = scope.spawn(|| lines::write(Path::new(&point), &count));
        wait_until("the first node writes", || count.load(SeqCst) >= 20);
        // The second may not have it as long as the first may.
        let ask = allow(&volume, &second.node_id(), &capability);
        let publish =
            || second.client.ask(second.client.controller().controller_publish_volume(ask.clone()));
        assert_eq!(publish().unwrap_err().code(), tonic::Code::FailedPrecondition);
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: first.node_id(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        let mut controller = second.client.controller();
        second.client.ask(controller.controller_unpublish_volume(request)).unwrap();
        let then = digest(&disk);
        let error = writer.join().unwrap();
        assert!(error.raw_os_error().is_some(), "{error}");
        // The file system of the first node tries to write its journal, too.
        let _ = fs::read_dir(rig.point(0)).map(Iterator::count);
        assert_eq!(digest(&disk), then, "the lost node has written");
        publish().unwrap();
        count.load(SeqCst)
    });
    let request = stage(&rig, 1, &volume, &capability);
    second.client.ask(second.client.node().node_stage_volume(request)).unwrap();
    // The last one may be there though its writer was not told.
    let there = lines::read(Path::new(&rig.staging(1)));
    assert!(there == kept || there == kept + 1, "{there} lines, and {kept} were kept");
    // The lost node comes back, and clears away what it has.
    first.detach(&rig, 0, &volume);
    assert!(rig.sessions(0).is_empty());
    let request = unstage(&rig, 1, &volume);
    second.client.ask(second.client.node().node_unstage_volume(request)).unwrap();
    run(std::process::Command::new("e2fsck").args(["-f", "-n"]).arg(&disk));
    // The first one may have it again.
    let request = |node_id: String| ControllerUnpublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        node_id,
        ..ControllerUnpublishVolumeRequest::default()
    };
    let unpublish = |node: String| {
        let mut controller = first.client.controller();
        first.client.ask(controller.controller_unpublish_volume(request(node))).unwrap();
    };
    unpublish(second.node_id());
    first.attach(&rig, 0, &volume, &capability);
    first.detach(&rig, 0, &volume);
    // From all nodes.
    unpublish(String::new());
    let volume_id = volume.volume_id.clone();
    let request = DeleteVolumeRequest { volume_id, ..DeleteVolumeRequest::default() };
    first.client.ask(first.client.controller().delete_volume(request)).unwrap();
    rig.assert_empty();
}
