//! Several channels between the same two interfaces.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::rig::{rig, wait_until};

const CHANNELS: usize = 4;

/// The socket filter of a host passes only frames of its session, so all its channels must share
/// one cookie mark.
#[test]
fn all_channels_of_a_link_live() {
    let rig = rig!(9000);
    let _target = rig.serve(&["--export", "disk=mem:16M"]);
    let session = rig.connect(&["--channels", &CHANNELS.to_string()]);
    wait_until("all channels are live", || {
        let stats = rig.stats().0;
        let channels = stats["links"][0]["channels"].as_array().unwrap().clone();
        let live = channels.iter().filter(|channel| channel["live"] == true).count();
        println!("{live} of {} live", channels.len());
        channels.len() == CHANNELS && live == CHANNELS
    });
    // Checks that they stay live: a channel that receives nothing is dropped after a while, and
    // opened again.
    let data = vec![7; 4 << 20];
    let file = File::options().read(true).write(true).open(&session.device).unwrap();
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, data);
    drop(file);
    let links = rig.stats().0["links"].clone();
    assert!(
        links[0]["channels"].as_array().unwrap().iter().all(|it| it["live"] == true),
        "{links}"
    );
    session.disconnect();
}
