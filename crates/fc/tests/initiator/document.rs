//! FC.md has the times that the tests find.

use std::fs;

use tyche_fc::initiator::{SENSE_LEN_MAX, WRITE_FRAMES};
use tyche_testkit::document::table;

use crate::script::{E_D_TOV, R_A_TOV, REC_TOV, config};

#[test]
fn the_table_of_timers_is_right() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../FC.md");
    let document = fs::read_to_string(path).unwrap();
    let shown = table(&document, "### Timers and bounds of an initiator");
    let value = |name: &str| {
        let row = shown.iter().find(|row| row[0] == name);
        row.unwrap_or_else(|| panic!("no row {name}"))[1]
    };
    assert_eq!(value("E_D_TOV"), format!("{} s", E_D_TOV / 1000));
    assert_eq!(value("R_A_TOV"), format!("{} s", R_A_TOV / 1000));
    assert_eq!(value("REC_TOV"), format!("E_D_TOV + {} s", (REC_TOV - E_D_TOV) / 1000));
    assert_eq!(value("command"), format!("{} s", config().command_timeout.as_secs()));
    assert_eq!(value("write data"), format!("{WRITE_FRAMES} frames"));
    assert_eq!(value("sense data"), format!("{SENSE_LEN_MAX} bytes"));
}
