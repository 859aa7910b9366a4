//! csi-sanity, the test suite of CSI: all specifications of the capabilities that the driver
//! announces. `cargo xtask csi` builds it, and runs this.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tyche_testkit::process::finish;

use crate::rig::rig;

/// The path of csi-sanity.
const SANITY: &str = "TYCHE_CSI_SANITY";
/// Time limit for all of it.
const LIMIT: Duration = Duration::from_secs(1800);

#[test]
#[ignore = "it takes minutes, and csi-sanity: cargo xtask csi"]
fn the_suite_of_csi_passes() {
    let program = std::env::var_os(SANITY).expect("cargo xtask csi sets it");
    let rig = rig!();
    for kind in ["mount", "block"] {
        let target = rig.serve();
        let driver = rig.drive(0);
        let lines = |entries: Vec<(&str, &str)>| -> String {
            entries.iter().map(|(name, value)| format!("{name}: {value:?}\n")).collect()
        };
        let class = rig.class();
        let class = class.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fs::write(rig.path("class.yaml"), lines(class)).unwrap();
        let limits = vec![("iops", "100000"), ("bytesPerSecond", "10G")];
        fs::write(rig.path("limits.yaml"), lines(limits)).unwrap();
        let option = |name: &str, value: &Path| format!("--csi.{name}={}", value.display());
        let mut sanity = Command::new(Path::new(&program));
        sanity.arg(option("endpoint", driver.socket()));
        sanity.arg(option("mountdir", &rig.path("sanity-mount")));
        sanity.arg(option("stagingdir", &rig.path("sanity-stage")));
        sanity.arg(option("testvolumeparameters", &rig.path("class.yaml")));
        sanity.arg(option("testvolumemutableparameters", &rig.path("limits.yaml")));
        sanity.arg(format!("--csi.testvolumesize={}", 1u64 << 30));
        sanity.arg(format!("--csi.testvolumeexpandsize={}", 2u64 << 30));
        sanity.arg(format!("--csi.testvolumeaccesstype={kind}"));
        sanity.args(["--ginkgo.no-color", "--ginkgo.v"]);
        let done = finish(&mut sanity, LIMIT);
        let summary = done.stdout.lines().filter(|line| {
            line.starts_with("Ran ") || line.contains(" Passed | ") || line.contains("[FAIL]")
        });
        summary.for_each(|line| println!("RESULT {kind}: {}", line.trim()));
        assert!(done.success(), "{}\n{}", done.stdout, done.stderr);
        drop(driver);
        rig.assert_empty();
        drop(target);
    }
}
