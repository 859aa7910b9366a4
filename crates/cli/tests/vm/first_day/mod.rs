//! A first day with Tyche: `first_day.sh` types what a new user would, from the package to its
//! removal, at two machines in one guest (`machines.sh`), and checks what is printed. The
//! transcript is docs/first-day.md: the commands there are those that were typed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::attachment::Kernel;
use crate::rig::{Rig, Shape};

/// Time limit for the day.
const LIMIT: Duration = Duration::from_secs(1800);
/// The transcript, as the guest and the documents have it.
const TRANSCRIPT: &str = "first-day.md";

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm/first_day")
}

/// The commands of a transcript, without what differs from day to day.
fn commands(transcript: &str) -> Vec<String> {
    let is_typed = |line: &&str| line.starts_with("host# ") || line.starts_with("target# ");
    let plain = |word: &str| match word.split_once("tyche-") {
        Some((before, uuid)) if uuid.len() >= 36 => format!("{before}tyche-UUID"),
        _ => word.to_owned(),
    };
    let typed = transcript.lines().filter(is_typed);
    typed.map(|line| line.split(' ').map(plain).collect::<Vec<_>>().join(" ")).collect()
}

/// A run with TYCHE_BLESS=1 writes the document.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn from_the_package_to_its_removal() {
    let rig = Rig::new();
    // The kernel of Debian 12.
    let kernel = Kernel::V6_1;
    let guest = rig.boot(0, &Shape { debian: true, ..Shape::from(kernel) });
    for number in ["1", "2"] {
        let package = format!("package-{number}.deb");
        guest.put(&kernel.image().with_file_name(&package), &package);
    }
    guest.put(&here().join("machines.sh"), "machines.sh");
    let script = fs::read_to_string(here().join("first_day.sh")).unwrap();
    let done = guest.start(&script).finish(LIMIT);
    let transcript = fs::read_to_string(guest.shared(TRANSCRIPT)).unwrap_or_default();
    assert_eq!(done.code, 0, "{}\n{transcript}", done.output);
    println!("{transcript}");
    let document = here().join("../../../../../docs").join(TRANSCRIPT);
    if std::env::var_os("TYCHE_BLESS").is_some() {
        fs::write(&document, &transcript).unwrap();
    }
    let written = fs::read_to_string(&document).unwrap();
    assert_eq!(commands(&written), commands(&transcript), "{}: TYCHE_BLESS=1", document.display());
}
