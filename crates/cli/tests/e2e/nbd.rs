//! Common NBD clients on the Unix socket of `--as nbd-socket`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tyche_testkit::random::Random;

use crate::rig::{Rig, Session, finish, rig, run};

const SIZE: u64 = 256 << 20;
/// Time limit for fio, which moves some hundred megabytes in small pieces.
const FIO_LIMIT: Duration = Duration::from_secs(180);

fn uri(session: &Session<'_>) -> String {
    format!("nbd+unix:///{}?socket={}", "disk", session.device.display())
}

/// A file of random bytes, with a hole in the middle.
fn image(rig: &Rig) -> std::path::PathBuf {
    let path = rig.file("source.img", SIZE);
    let file = File::options().write(true).open(&path).unwrap();
    let mut part = vec![0; 1 << 20];
    let mut random = Random(5);
    for offset in (0..96 << 20).chain((192 << 20)..SIZE).step_by(part.len()) {
        random.fill(&mut part);
        std::os::unix::fs::FileExt::write_all_at(&file, &part, offset).unwrap();
    }
    { file }.flush().unwrap();
    path
}

fn sum(path: &Path) -> String {
    let text = run(Command::new("sha256sum").arg(path));
    text.split(' ').next().unwrap().to_owned()
}

#[test]
fn nbdinfo_and_qemu_img_tell_size_and_abilities() {
    let rig = rig!(9000);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect_as("nbd-socket", &[]);
    let info = run(Command::new("nbdinfo").arg("--json").arg(uri(&session)));
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], SIZE);
    for ability in ["can_flush", "can_fua", "can_trim", "can_zero"] {
        assert_eq!(export[ability], true, "{ability} of {export}");
    }
    let info = run(Command::new("qemu-img").args(["info", "--output=json"]).arg(uri(&session)));
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["virtual-size"], SIZE, "{info}");
    session.disconnect();
}

#[test]
fn nbdcopy_there_and_back_under_loss() {
    let rig = rig!(9000);
    let _target = rig.serve_file(SIZE);
    rig.cable.lose_of_10000(20);
    let source = image(&rig);
    let session = rig.connect_as("nbd-socket", &[]);
    run(Command::new("nbdcopy").arg("--flush").arg(&source).arg(uri(&session)));
    session.disconnect();
    let session = rig.connect_as("nbd-socket", &[]);
    let back = rig.path("back.img");
    run(Command::new("nbdcopy").arg(uri(&session)).arg(&back));
    assert_eq!(sum(&source), sum(&back));
    println!("{} MB there and back: SHA-256 {}", SIZE >> 20, sum(&back));
    session.disconnect();
}

#[test]
fn fio_verifies_random_sizes_at_depth_32() {
    let rig = rig!(9000);
    let engines = run(Command::new("fio").arg("--enghelp"));
    if !engines.split_whitespace().any(|engine| engine == "nbd") {
        println!("SKIPPED: fio has no nbd engine");
        return;
    }
    let _target = rig.serve_file(SIZE);
    let session = rig.connect_as("nbd-socket", &[]);
    let mut fio = Command::new("fio");
    fio.args(["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-1M"]);
    fio.args([
        "--iodepth=32",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--size=192M",
        "--randseed=7",
    ]);
    fio.args(["--output-format=terse", "--verify_state_save=0"])
        .arg(format!("--uri={}", uri(&session)));
    let done = finish(fio.current_dir(rig.path("")), FIO_LIMIT);
    assert!(done.success(), "{}{}", done.stdout, done.stderr);
    let (stats, _) = rig.stats();
    println!("fio: no error; {}", stats["requests"]);
    assert_eq!(stats["requests"]["errors"], 0);
    session.disconnect();
}
