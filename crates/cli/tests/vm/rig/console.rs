//! A kernel's console, and the messages on it that report an error in it.

use std::fs;
use std::path::Path;

/// Parts of messages that no test may cause.
const ALARMS: [&str; 7] = [
    "BUG:",
    "Kernel panic",
    "Oops",
    "WARNING: CPU",
    "general protection fault",
    "blocked for more than",
    "Out of memory: Killed",
];

/// The messages on the console of the machine with that directory.
pub(super) fn read(dir: &Path) -> String {
    let bytes = fs::read(dir.join("console")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The lines with such messages.
pub(super) fn alarms(console: &str) -> Vec<&str> {
    console.lines().filter(|line| ALARMS.iter().any(|alarm| line.contains(alarm))).collect()
}

#[cfg(test)]
mod tests {
    use super::alarms;

    #[test]
    fn a_hung_task_is_an_alarm_and_an_error_of_a_device_is_none() {
        let hung = "[  242.1] INFO: task jbd2/ublkb0-8:312 blocked for more than 120 seconds.";
        let error = "[   12.9] I/O error, dev ublkb0, sector 0 op 0x0:(READ) flags 0x0";
        assert_eq!(alarms(&format!("{error}\n{hung}\n")), [hung]);
    }
}
