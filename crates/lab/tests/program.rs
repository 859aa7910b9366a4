//! The program `tyche-lab`: its output, its errors and their exit codes.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tyche_testkit::process::{Done, finish};
use tyche_testkit::wait::PATIENCE;

fn run(program: &Path, args: &[&str]) -> Done {
    finish(Command::new(program).args(args), PATIENCE)
}

fn lab(args: &[&str]) -> Done {
    run(Path::new(env!("CARGO_BIN_EXE_tyche-lab")), args)
}

/// The only JSON object of an output.
fn object(output: &Done) -> Value {
    serde_json::from_str(&output.stdout).unwrap()
}

#[test]
fn seeds_are_counted_and_repeatable() {
    let seeds = ["sim", "--seeds", "4", "--first", "7", "-o", "json"];
    let (once, again) = (lab(&seeds), lab(&seeds));
    assert_eq!(once.status.code(), Some(0), "{}", once.stderr);
    let report = object(&once);
    assert_eq!(report, object(&again));
    assert_eq!((&report["schema"], &report["seeds"]), (&"tyche.sim/1".into(), &4.into()));
    assert!(report["frames"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_canary_is_caught_and_an_unknown_one_is_an_error() {
    let caught = lab(&["sim", "--canary", "payload", "-o", "json"]);
    assert_eq!(caught.status.code(), Some(0), "{}", caught.stderr);
    assert_eq!(object(&caught)["caught"][0]["canary"], "payload");
    let unknown = lab(&["sim", "--canary", "dodo", "-o", "json"]);
    assert_eq!(unknown.status.code(), Some(2));
    let said = &unknown.stderr;
    assert!(said.starts_with("tyche-lab: ") && said.contains("payload"), "{said}");
    assert_eq!(object(&unknown)["code"], "usage");
}

#[test]
fn commands_with_links_have_the_options_of_wrappers_besides_their_own() {
    let bench: &[&str] = &["--iodepth", "--stages", "--stages-svg"];
    for (command, about, more) in
        [("serve", "Export disks", &[][..]), ("bench", "Measure an export", bench)]
    {
        let help = lab(&[command, "--help"]);
        let said = &help.stdout;
        assert!(said.starts_with(about), "{said}");
        for option in ["--link", "--fault", "--hand-over"].iter().chain(more) {
            assert!(said.contains(option), "{option}: {said}");
        }
    }
}

#[test]
fn messages_are_measured_by_size_and_one_is_cut_into_stages() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tyche-lab"));
    let model = ["--rdma-double", "--rdma-model", "ics2006"];
    command.args(["messages", "--runtime-ms", "2", "-o", "json"]).args(model);
    let done = finish(command.env("TMPDIR", dir.path()), PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    let report = object(&done);
    let sizes = report["sizes"].as_array().unwrap();
    assert_eq!((&sizes[0]["bytes"], &sizes[13]["bytes"]), (&8.into(), &65_536.into()));
    let stages = report["stages"].as_array().unwrap();
    assert_eq!((&stages[1]["stage"], &stages[1]["ns"]), (&"start of DMA".into(), &500.0.into()));
}

#[test]
fn a_demo_needs_root_and_the_program_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("tyche-lab");
    fs::copy(env!("CARGO_BIN_EXE_tyche-lab"), &alone).unwrap();
    let done = run(&alone, &["demo", "--dir", dir.path().to_str().unwrap()]);
    let said = &done.stderr;
    if !rustix::process::geteuid().is_root() {
        assert_eq!(done.status.code(), Some(4), "{said}");
        return;
    }
    assert_eq!(done.status.code(), Some(1), "{said}");
    let wanted = format!("{}", dir.path().join("tyche").display());
    assert!(said.contains(&wanted) && said.contains("cargo xtask demo"), "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something is left");
}
