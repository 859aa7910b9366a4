//! The library in a C program: `smoke.c`, built against the header and the static library, runs
//! over a virtual cable whose other end is a target of this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tyche_engine::{Target, TargetExport, TargetOptions};
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_numa::Placement;
use tyche_proto::wire::{ETHERTYPE, Name, Uuid};
use tyche_proto::{BatchPolicy, TargetConfig};
use tyche_store::memory::MemoryStore;
use tyche_testkit::need_root;
use tyche_testkit::net::{Namespace, lay_cable};
use tyche_testkit::process::{is_installed, run};

/// The ends of the cable.
const LINKS: [&str; 2] = ["tylib-t", "tylib-h"];
/// System libraries that the static library needs.
const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

#[test]
fn a_c_program_uses_all_of_the_library() {
    need_root!();
    if !is_installed("cc") {
        return println!("SKIPPED: no C compiler (cc)");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path());
    let [ours, theirs] = LINKS;
    let namespace = Namespace::new(format!("tylib-{}", std::process::id()));
    lay_cable(LINKS.map(|link| (&namespace, link, 9000)));
    let options = PacketOptions::new(ours);
    let _target = target(namespace.on_thread(|| PacketLink::open(&options)).unwrap());
    for mode in ["inline", "queue"] {
        run(namespace.command(&program).args(["disk", theirs, mode]));
    }
}

/// Builds the program with all warnings enabled, for the header too.
fn compile(dir: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = dir.join("smoke");
    let exe = std::env::current_exe().unwrap();
    let library = exe.ancestors().skip(1).take(2).map(|dir| dir.join("libtyche.a"));
    let library = library.into_iter().find(|it| it.exists()).expect("built with the test");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-D_GNU_SOURCE", "-I"]);
    cc.arg(root.join("include")).arg(root.join("tests/smoke.c")).arg(library).args(SYSTEM);
    run(cc.arg("-o").arg(&program));
    program
}

fn target(link: PacketLink) -> Target {
    let name = |text| Name::new(text).unwrap();
    Target::start(TargetOptions {
        target: TargetConfig {
            uuid: Uuid::from_u128(1),
            name: name("target"),
            queue_size_max: 64,
            damq_pages_max: 1024,
            channels_max: 4,
            batch: BatchPolicy::default(),
        },
        exports: vec![TargetExport {
            name: name("disk"),
            uuid: Uuid::from_u128(7),
            generation: Uuid::from_u128(8),
            store: Arc::new(MemoryStore::new(16 << 20, 4096).unwrap()),
            shared: false,
            hosts: Vec::new(),
            last_writer: None,
        }],
        links: vec![Box::new(link)],
        further_threads: Vec::new(),
        placement: Placement::default(),
        ethertype: ETHERTYPE,
        spin: Duration::ZERO,
        remember_writer: Box::new(|_, _| Ok(())),
        renew_generation: Box::new(|_, _| Uuid::from_u128(9)),
    })
    .unwrap()
}
