//! The NBD server and common clients, where they are installed.

#![allow(missing_docs, clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests use the rest")]
mod disk;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use disk::{MemoryDisk, pattern};
use tempfile::TempDir;
use tyche_attach::nbd::{Ending, NbdServer};
use tyche_block::{Errno, Operation};
use tyche_testkit::process::{finish, is_installed};
use tyche_testkit::wait::PATIENCE;

const MIB: usize = 1 << 20;

struct Served {
    server: NbdServer,
    disk: MemoryDisk,
    dir: TempDir,
}

impl Served {
    fn new(disk: MemoryDisk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = NbdServer::start(&dir.path().join("s"), "vol", &disk.dyn_disk()).unwrap();
        Self { server, disk, dir }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///vol?socket={}", self.dir.path().join("s").display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for ending in Ending::ALL.into_iter().filter(|ending| !ending.is_orderly()) {
                assert_eq!(self.server.ended(ending), 0, "{ending}");
            }
            self.disk.wait_all_buffers_back();
        }
    }
}

/// Runs a program with a time limit; `None`, with a message, if it is not installed.
fn client(program: &str, args: &[&str]) -> Option<(bool, String)> {
    if !is_installed(program) {
        eprintln!("SKIPPED: {program} not installed");
        return None;
    }
    let done = finish(Command::new(program).args(args), PATIENCE);
    Some((done.success(), done.stdout + &done.stderr))
}

/// The same for a program that must succeed.
macro_rules! client_ok {
    ($program:expr, $($arg:expr),+ $(,)?) => {
        match client($program, &[$($arg),+]) {
            None => return,
            Some((success, text)) => {
                assert!(success, "{} failed: {text}", $program);
                text
            }
        }
    };
}

#[test]
fn nbdinfo() {
    let served = Served::new(MemoryDisk::new(3 * MIB, 4096));
    let text = client_ok!("nbdinfo", &served.uri());
    for line in [
        "export=\"vol\":",
        "export-size: 3145728 (3M)",
        "can_flush: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "can_fast_zero: false",
        "can_multi_conn: true",
        "is_read_only: false",
        "is_rotational: false",
        "block_size_minimum: 4096",
        "block_size_preferred: 4096",
        "block_size_maximum: 4194304",
        "base:allocation",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
    let text = client_ok!("nbdinfo", "--list", &served.uri());
    assert!(text.contains("export=\"vol\":"), "{text}");
}

#[test]
fn nbdcopy() {
    let served = Served::new(MemoryDisk::new(24 * MIB, 512));
    let (src, dst) = (served.file("src"), served.file("dst"));
    let mut content = pattern(1, 24 * MIB);
    content[4 * MIB..12 * MIB].fill(0);
    fs::write(&src, &content).unwrap();
    served.disk.write(0, &pattern(2, 24 * MIB));
    // Several connections, requests in flight, zeroes detected, and a flush in the end.
    client_ok!("nbdcopy", "--flush", src.to_str().unwrap(), &served.uri());
    assert!(served.disk.read(0..24 * MIB) == content);
    let log = served.disk.take_log();
    assert!(log.contains(&(Operation::Flush, 0, 0)));
    let zeroed = |operation: &Operation| matches!(operation, Operation::WriteZeroes { .. });
    assert!(log.iter().any(|(operation, ..)| zeroed(operation)));
    client_ok!("nbdcopy", &served.uri(), dst.to_str().unwrap());
    assert!(fs::read(&dst).unwrap() == content);
    assert!(served.server.counts().accepted > 2, "nbdcopy uses several connections");
}

#[test]
fn nbdcopy_reports_errors() {
    let served = Served::new(MemoryDisk::new(8 * MIB, 512));
    // A hole would not be read.
    served.disk.write(0, &pattern(4, 8 * MIB));
    served.disk.fail(5 << 20..(5 << 20) + 512, Errno::IO);
    let dst = served.file("dst");
    let Some((success, text)) = client("nbdcopy", &[&served.uri(), dst.to_str().unwrap()]) else {
        return;
    };
    assert!(!success && text.contains("Input/output error"), "{text}");
}

#[test]
fn qemu_img() {
    let served = Served::new(MemoryDisk::new(16 * MIB, 512));
    let (src, dst) = (served.file("src"), served.file("dst"));
    let content = pattern(3, 16 * MIB);
    fs::write(&src, &content).unwrap();
    let text = client_ok!("qemu-img", "info", &served.uri());
    assert!(text.contains("16 MiB"), "{text}");
    let (src, dst) = (src.to_str().unwrap(), dst.to_str().unwrap());
    client_ok!("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-W", src, &served.uri());
    assert!(served.disk.read(0..16 * MIB) == content);
    client_ok!("qemu-img", "compare", "-f", "raw", "-F", "raw", src, &served.uri());
    client_ok!("qemu-img", "convert", "-f", "raw", "-O", "raw", &served.uri(), dst);
    assert!(fs::read(dst).unwrap() == content);
}

#[test]
fn qemu_io() {
    let served = Served::new(MemoryDisk::new(16 * MIB, 4096));
    let uri = served.uri();
    let script = [
        "write -P 0x11 0 64k",
        "write -f -P 0x22 64k 64k",
        "write -z -u 128k 64k",
        "write -z 192k 64k",
        "discard 1M 1M",
        "read -P 0x11 0 64k",
        "read -P 0x22 64k 64k",
        "read -P 0 128k 128k",
        "flush",
        // Not aligned to the export's blocks: qemu reads, modifies and writes by itself.
        "write -P 0x33 512 512",
        "read -P 0x33 512 512",
        "read -P 0x11 1024 512",
    ];
    let mut args = vec!["-f", "raw", "-d", "unmap", "-t", "writeback"];
    args.extend(script.iter().flat_map(|command| ["-c", command]));
    args.push(&uri);
    let Some((success, text)) = client("qemu-io", &args) else { return };
    assert!(success && !text.contains("failed"), "{text}");
    let log = served.disk.take_log();
    for expected in [
        Operation::WriteZeroes { fua: false, may_unmap: true },
        Operation::WriteZeroes { fua: false, may_unmap: false },
        Operation::Discard,
        Operation::Flush,
    ] {
        assert!(
            log.iter().any(|(operation, ..)| *operation == expected),
            "no {expected:?} in {log:?}"
        );
    }
}

#[test]
fn fio_with_verification() {
    let served = Served::new(MemoryDisk::new(32 * MIB, 4096));
    let uri = format!("--uri={}", served.uri());
    let text = client_ok!(
        "fio",
        "--name=mixed",
        "--verify_state_save=0",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bsrange=4k-256k",
        "--blockalign=4k",
        "--iodepth=32",
        "--size=32M",
        "--verify=crc32c",
        "--verify_backlog=64",
        "--fsync=50",
    );
    if text.contains("engine nbd not loadable") {
        eprintln!("SKIPPED: fio has no nbd engine");
        return;
    }
    assert!(text.contains("err= 0"), "{text}");
    assert!(served.server.counts().requests > 300);
    assert_eq!(served.server.counts().errors, 0);
}

#[test]
fn nbd_client() {
    let served = Served::new(MemoryDisk::new(MIB, 512));
    let socket = served.file("s");
    let socket = socket.to_str().unwrap();
    let Some((_, text)) = client("nbd-client", &["-l", "-unix", socket]) else { return };
    assert!(text.contains("vol"), "{text}");
    if !std::path::Path::new("/dev/nbd0").exists() {
        eprintln!("SKIPPED: no /dev/nbd0 (kernel module nbd)");
        return;
    }
    let args = ["-N", "vol", "-unix", socket, "-C", "4", "-b", "512", "/dev/nbd0"];
    client_ok!(
        "nbd-client",
        args[0],
        args[1],
        args[2],
        args[3],
        args[4],
        args[5],
        args[6],
        args[7],
        args[8]
    );
    let device = fs::read("/dev/nbd0");
    client_ok!("nbd-client", "-d", "/dev/nbd0");
    assert_eq!(device.unwrap(), vec![0; MIB]);
}
