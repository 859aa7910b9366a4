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

pub(crate) fn uri(session: &Session<'_>) -> String {
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

/// A part of a disk: where it begins, its length, and whether there are data.
type Part = (u64, u64, bool);

/// Adds a part, to the last one if that is alike.
fn push(parts: &mut Vec<Part>, (start, len, is_data): Part) {
    match parts.last_mut() {
        Some((before, before_len, was_data)) if *was_data == is_data => {
            assert_eq!(*before + *before_len, start, "parts follow each other");
            *before_len += len;
        }
        _ if len > 0 => parts.push((start, len, is_data)),
        _ => {}
    }
}

/// The map of a file by `lseek`.
fn map_by_seek(path: &Path) -> Vec<Part> {
    use rustix::fs::{SeekFrom, seek};
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < size {
        let data = seek(&file, SeekFrom::Data(at)).unwrap_or(size);
        push(&mut parts, (at, data - at, false));
        let hole = if data < size { seek(&file, SeekFrom::Hole(data)).unwrap() } else { size };
        push(&mut parts, (data, hole - data, true));
        at = hole;
    }
    parts
}

/// The same by its extents.
fn map_by_filefrag(path: &Path, size: u64) -> Vec<Part> {
    let text = run(Command::new("filefrag").args(["-s", "-v", "-b4096"]).arg(path));
    let (mut parts, mut at) = (Vec::new(), 0);
    for line in text.lines().filter(|line| !line.contains("unwritten")) {
        // Number: first.. last: ..
        let mut fields = line.split(':');
        let number = fields.next().and_then(|number| number.trim().parse::<u64>().ok());
        let Some((first, last)) = fields.next().and_then(|it| it.split_once("..")) else {
            continue;
        };
        let (Some(_), Ok(first), Ok(last)) =
            (number, first.trim().parse::<u64>(), last.trim().parse::<u64>())
        else {
            continue;
        };
        push(&mut parts, (at, first * 4096 - at, false));
        let end = ((last + 1) * 4096).min(size);
        push(&mut parts, (first * 4096, end - first * 4096, true));
        at = end;
    }
    push(&mut parts, (at, size - at, false));
    parts
}

/// The same as an NBD client sees it.
fn map_by_nbdinfo(uri: &str) -> Vec<Part> {
    let text = run(Command::new("nbdinfo").args(["--map", "--json", uri]));
    let map: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut parts = Vec::new();
    for part in map.as_array().unwrap() {
        let kind = part["type"].as_u64().unwrap();
        assert!(matches!(kind, 0 | 3), "data, or a hole that reads as zeroes: {part}");
        let [start, len] = ["offset", "length"].map(|field| part[field].as_u64().unwrap());
        push(&mut parts, (start, len, kind == 0));
    }
    parts
}

/// The same as another sees it.
fn map_by_qemu(uri: &str) -> Vec<Part> {
    let text = run(Command::new("qemu-img").args(["map", "--output=json", uri]));
    let map: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut parts = Vec::new();
    for part in map.as_array().unwrap() {
        let [start, len] = ["start", "length"].map(|field| part[field].as_u64().unwrap());
        assert_ne!(part["data"], part["zero"], "{part}");
        push(&mut parts, (start, len, part["data"] == true));
    }
    parts
}

#[test]
fn holes_of_the_targets_file_reach_nbd_clients() {
    let rig = rig!(9000);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect_as("nbd-socket", &[]);
    let (uri, file) = (uri(&session), rig.path("disk.img"));
    let agree = |what: &str| {
        let expected = map_by_seek(&file);
        assert_eq!(map_by_filefrag(&file, SIZE), expected, "filefrag, {what}");
        assert_eq!(map_by_nbdinfo(&uri), expected, "nbdinfo, {what}");
        assert_eq!(map_by_qemu(&uri), expected, "qemu-img map, {what}");
        expected
    };
    assert_eq!(agree("empty"), [(0, SIZE, false)]);
    let qemu_io = |commands: &[&str]| {
        let mut program = Command::new("qemu-io");
        program.args(["-f", "raw"]);
        for command in commands {
            program.args(["-c", command]);
        }
        run(program.arg(&uri));
    };
    // The last block, and one that is not aligned to those of the file system.
    qemu_io(&["write -P 1 0 1M", "write -P 2 100M 12M", "write -P 3 200M 512"]);
    qemu_io(&["write -P 4 268431360 4096"]);
    let written = agree("written");
    assert_eq!(written.iter().filter(|part| part.2).count(), 4, "{written:?}");
    qemu_io(&["write -z -u 104M 4M", "discard 512k 512k"]);
    let punched = agree("zeroed and discarded");
    assert!(punched.contains(&(104 << 20, 4 << 20, false)), "{punched:?}");
    // More parts than one answer tells.
    let mut lines = Vec::new();
    for number in 0..700 {
        lines.push(format!("write -P 5 {} 4096", (16 << 20) + number * 16384));
    }
    qemu_io(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let many = agree("many");
    assert!(many.len() > 1400, "{}", many.len());

    let before = rig.stats().0["requests"]["read_bytes"].as_u64().unwrap();
    let copy = rig.path("copy.img");
    run(Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "raw", &uri]).arg(&copy));
    let read = rig.stats().0["requests"]["read_bytes"].as_u64().unwrap() - before;
    assert_eq!(sum(&copy), sum(&file));
    assert!(read < SIZE / 8, "{read} bytes read: holes are not");
    session.disconnect();
}

#[test]
fn memory_tells_what_was_never_written() {
    let rig = rig!(9000);
    let _target = rig.serve(&["--export", "disk=sparse:64M"]);
    let session = rig.connect_as("nbd-socket", &[]);
    let uri = uri(&session);
    let size = 64 << 20;
    assert_eq!(map_by_nbdinfo(&uri), [(0, size, false)]);
    run(Command::new("qemu-io").args(["-f", "raw", "-c", "write -P 1 1M 64k"]).arg(&uri));
    let parts =
        [(0, 1 << 20, false), (1 << 20, 64 << 10, true), (17 << 16, size - (17 << 16), false)];
    assert_eq!(map_by_qemu(&uri), parts);
    session.disconnect();
}
