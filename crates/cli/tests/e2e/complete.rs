//! Shell completion, called as a shell calls it.

use std::path::Path;

use crate::links::{HOSTS, TARGETS};
use crate::rig::{DISK, Rig, Side, rig, run};

/// The candidates that bash offers for the last of these words.
fn offered(rig: &Rig, side: Side, words: &[&str]) -> Vec<String> {
    let tyche = env!("CARGO_BIN_EXE_tyche");
    let script = "PATH=$(dirname \"$1\"):$PATH; shift; source <(tyche completions bash) || exit; \
                  COMP_WORDS=(\"$@\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                  $(complete -p tyche | sed 's/.*-F //; s/ .*//') tyche \"${COMP_WORDS[-1]}\"; \
                  printf '%s\\n' \"${COMPREPLY[@]}\"";
    let args = [&["-c", script, "bash", tyche, "tyche"], words].concat();
    let text = run(&mut rig.at(side, Path::new("bash"), &args));
    println!("{words:?}: {text}");
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn names_of_exports_sessions_targets_and_interfaces_are_completed() {
    let rig = rig!(1500);
    let link = rig.cable.link(Side::Host);
    let _target = rig.serve_file(64 << 20);
    // Interfaces that are not running are left out.
    rig.cable.await_running(&[(Side::Host, link)]);
    let host = |words: &[&str]| offered(&rig, Side::Host, words);
    assert_eq!(host(&["connec"]), ["connect", "connect-all"]);
    // This name is known only from the network.
    assert!(host(&["connect", "di"]).contains(&DISK.to_owned()));
    assert!(host(&["bench", ""]).contains(&DISK.to_owned()));
    for words in [&["connect", DISK, "--link", ""][..], &["discover", "--link", ""]] {
        assert_eq!(host(words), [link]);
    }
    assert_eq!(offered(&rig, Side::Target, &["export", "resize", ""])[0], DISK);
    assert_eq!(host(&["export", "resize", "--target", "e"]), ["e2e"]);
    // Their values follow at once.
    assert_eq!(host(&["export", "set", DISK, "read"]), ["read_only="]);
    assert_eq!(
        host(&["export", "set", DISK, "iops=none", "b"]),
        ["bytes_per_second=", "block_size="]
    );

    assert_eq!(host(&["disconnect", "di"]), [""; 0]);
    let session = rig.connect_as("fuse", &[]);
    for words in [&["disconnect", "di"][..], &["link", "add", "di"], &["stats", "di"]] {
        assert_eq!(host(words), [DISK], "{words:?}");
    }
    assert_eq!(host(&["link", "add", DISK, "ty"]), [link]);
    assert_eq!(host(&["stats", "e"]), ["e2e"]);
    session.disconnect();
}

#[test]
fn links_of_the_named_session_alone_are_completed() {
    let rig = rig!(1500);
    rig.cable.add(&[(TARGETS[0], HOSTS[0])], 1500);
    let served = ["--link", rig.cable.link(Side::Target), "--link", TARGETS[0]];
    let _target = rig.serve_on(&served, &["--export", "disk=mem:8M", "--export", "other=mem:8M"]);
    let link = rig.cable.link(Side::Host);
    let disk = rig.connect_as("fuse", &[]);
    let other = rig.connect_disk(Side::Host, "other", &["--link", HOSTS[0], "--as", "fuse"]);
    let offered = |name: &str| offered(&rig, Side::Host, &["link", "del", name, "ty"]);
    assert_eq!(offered(DISK), [link]);
    assert_eq!(offered(other.device.to_str().unwrap()), [HOSTS[0]]);
    assert_eq!(offered(&other.value["session"].as_str().unwrap()[..8]), [HOSTS[0]]);
    other.disconnect();
    disk.disconnect();
}
