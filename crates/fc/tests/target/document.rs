//! FC.md has the times and bounds that the tests find.

use std::fs;

use tyche_fc::target_end::SENSE_LEN_MAX;
use tyche_testkit::document::table;

use crate::rig::{BURST_LEN, BURST_TIMES, E_D_TOV, HOLES, MANAGEMENT, R_A_TOV, RESERVED, TURN};

#[test]
fn the_table_of_bounds_is_right() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../FC.md");
    let document = fs::read_to_string(path).unwrap();
    let shown = table(&document, "### Timers and bounds of a target");
    let value = |name: &str| {
        let row = shown.iter().find(|row| row[0] == name);
        row.unwrap_or_else(|| panic!("no row {name}"))[1]
    };
    assert_eq!(value("E_D_TOV"), format!("{} s", E_D_TOV.as_secs()));
    assert_eq!(value("R_A_TOV"), format!("{} s", R_A_TOV.as_secs()));
    assert_eq!(value("task management"), format!("{} s", MANAGEMENT.as_secs()));
    assert_eq!(value("burst"), format!("{} KiB", BURST_LEN >> 10));
    assert_eq!(value("time of a burst"), format!("{BURST_TIMES} × E_D_TOV"));
    assert_eq!(value("turn"), format!("{TURN} frames"));
    assert_eq!(value("ranges"), HOLES.to_string());
    assert_eq!(value("slots for task management"), RESERVED.to_string());
    assert_eq!(value("sense data"), format!("{SENSE_LEN_MAX} bytes"));
}
