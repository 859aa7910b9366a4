//! The laboratory's program. Cargo builds only the programs of the package under test, so it is
//! built here, beside `tyche`, unless `TYCHE_LAB` names one: `cargo xtask test` builds those of all
//! packages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use tyche_testkit::process::finish;

/// Time limit for building it.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// `tyche-lab`.
pub(crate) static LAB: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(built) = std::env::var_os("TYCHE_LAB") {
        return built.into();
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_tyche")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "tyche-lab", "--target-dir"]);
    build
        .arg(programs.parent().unwrap())
        .args(programs.ends_with("release").then_some("--release"));
    let done = finish(&mut build, BUILD_LIMIT);
    assert!(done.success(), "{}", done.stderr);
    programs.join("tyche-lab")
});
