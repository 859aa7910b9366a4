//! Replays the requests in the corpus of the fuzzer `control`, and changes of each byte of them, as
//! a target reads those of admins.

use std::collections::BTreeSet;

use tyche_testkit::corpus::{Bytes, corpus};

use super::*;

/// The requests that an input begins with: steps of a guest after the handshake
/// (`crates/control/tests/hostile/mod.rs`).
fn requests(input: &[u8]) -> Vec<&[u8]> {
    let mut script = Bytes(input);
    let mut requests = Vec::new();
    if script.take(1) != Some(&[3]) {
        return requests;
    }
    while let Some(&[0, len]) = script.take(2) {
        let len = usize::from(len).min(script.0.len());
        requests.extend(script.take(len));
    }
    requests
}

/// The parts of a request that have kinds of their own; a new kind needs a seed.
fn kinds(request: &TargetRequest) -> Vec<&'static str> {
    use TargetRequest::{
        Access, AddExport, AddHost, AddLink, CloneExport, Hosts, Plan, RemoveExport, RemoveHost,
        RemoveLink, RenameExport, Report, Resize, SetExport,
    };
    match request {
        Report => vec!["report"],
        Hosts => vec!["hosts"],
        Resize { size: None, .. } => vec!["resize"],
        Resize { .. } => vec!["resize to"],
        AddExport { new_file: None, .. } => vec!["add"],
        AddExport { .. } => vec!["add in a pool"],
        CloneExport { read_only, .. } => vec![if *read_only { "snapshot" } else { "clone" }],
        RemoveExport { .. } => vec!["remove"],
        RenameExport { .. } => vec!["rename"],
        SetExport { settings, .. } => settings.iter().map(Setting::key).collect(),
        AddLink { .. } => vec!["link add"],
        RemoveLink { .. } => vec!["link del"],
        AddHost { .. } => vec!["host add"],
        RemoveHost { .. } => vec!["host remove"],
        Plan { .. } => vec!["plan"],
        Access { change, .. } => vec![change.name()],
    }
}

/// Reads a request; what it says stays the same when it is sent on.
fn read(text: &[u8]) -> Option<TargetRequest> {
    let request: TargetRequest = serde_json::from_slice(text).ok()?;
    let again = serde_json::to_vec(&request).unwrap();
    assert_eq!(serde_json::from_slice::<TargetRequest>(&again).unwrap(), request);
    let changes_nothing = matches!(kinds(&request)[..], ["report" | "hosts" | "plan"]);
    assert_eq!(request.change().is_none(), changes_nothing);
    Some(request)
}

#[test]
fn a_target_may_be_asked_for_anything() {
    let mut seen = BTreeSet::new();
    for input in corpus(env!("CARGO_MANIFEST_DIR"), "control") {
        for text in requests(&input) {
            seen.extend(read(text).iter().flat_map(kinds));
            for at in 0..text.len() {
                for bit in 0..8 {
                    let mut changed = text.to_vec();
                    changed[at] ^= 1 << bit;
                    read(&changed);
                }
                read(&text[..at]);
                read(&[&text[..at], &text[at + 1..]].concat());
            }
        }
    }
    let settings = Setting::KEYS.map(|(key, _)| key);
    let others = [
        "report",
        "hosts",
        "resize",
        "resize to",
        "add",
        "add in a pool",
        "snapshot",
        "clone",
        "remove",
        "rename",
        "link add",
        "link del",
        "host add",
        "host remove",
        "plan",
        "allow",
        "deny",
        "evict",
        "revert",
    ];
    let all: BTreeSet<_> = settings.into_iter().chain(others).collect();
    assert_eq!(seen, all, "a seed for each kind");
}
