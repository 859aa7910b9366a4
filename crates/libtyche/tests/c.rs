//! The library in a C program: `smoke.c`, built against the header and the static library, runs
//! over a virtual cable whose other end is a target of this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod fcoe_target;
#[path = "../../native/tests/rig/target.rs"]
mod target;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_store::Store;
use tyche_store::memory::MemoryStore;
use tyche_testkit::need_root;
use tyche_testkit::net::{Namespace, lay_cable};
use tyche_testkit::process::{is_installed, run};

use fcoe_target::fcoe_target;
use target::target;

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
    let link = namespace.on_thread(|| PacketLink::open(&options)).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(16 << 20, 4096).unwrap());
    let _target = target(Box::new(link), Arc::clone(&store));
    let (_fcoe, wwpn) = fcoe_target(&namespace, ours, &store);
    for mode in ["inline", "queue"] {
        run(namespace.command(&program).args(["disk", theirs, mode, "tyche"]));
        let mut over_fcoe = namespace.command(&program);
        run(over_fcoe.env("TYCHE_RUNTIME_DIR", dir.path()).args([&*wwpn, theirs, mode, "fcoe"]));
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
