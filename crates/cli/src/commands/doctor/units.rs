//! Units of systemd and lines of fstab: time-outs that are shorter than a disk may take.

use crate::shared::report::Finding;

use super::machine::Machine;

/// Directories with units and changes of them by the administrator.
const DIRECTORIES: [&str; 2] = ["/etc/systemd/system", "/run/systemd/system"];
/// Units of the package: how their names begin.
const UNITS: [&str; 2] = ["tyche@", "tyche-"];
/// Seconds that a unit may need to stop.
const STOP_MIN: u64 = 30;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files(machine) {
        let text = machine.read(&file).unwrap_or_default();
        for line in text.lines() {
            findings.extend(setting(&file, line.trim()));
        }
    }
    findings.extend(fstab(machine));
    findings
}

/// The files of our units in these directories.
fn files(machine: &Machine) -> Vec<String> {
    let mut files = Vec::new();
    for directory in DIRECTORIES {
        for name in machine.names(directory) {
            if !UNITS.into_iter().any(|unit| name.starts_with(unit)) {
                continue;
            }
            let path = format!("{directory}/{name}");
            match name.ends_with(".d") {
                true => {
                    let parts = machine.names(&path).into_iter();
                    files.extend(parts.map(|part| format!("{path}/{part}")));
                }
                false => files.push(path),
            }
        }
    }
    files
}

/// The finding on a line of a unit.
fn setting(file: &str, line: &str) -> Option<Finding> {
    let (key, value) = line.split_once('=')?;
    let limit = seconds(value.trim())?;
    match key.trim() {
        "TimeoutStartSec" | "TimeoutSec" => {
            let what = format!(
                "{file}: {key} is {value}: a unit whose target does not answer for so long fails"
            );
            let remedy = "take it out: starting waits for the disk (TimeoutStartSec=infinity)";
            Some(Finding::warning("unit-timeout", what).remedy(remedy))
        }
        "TimeoutStopSec" if limit < STOP_MIN => {
            let what = format!("{file}: {key} is {value}: a disk in use needs {STOP_MIN} s");
            Some(
                Finding::warning("unit-timeout", what)
                    .remedy("TimeoutStopSec=45, as in the package"),
            )
        }
        _ => None,
    }
}

/// A time span of systemd in seconds; none if it has no end, or is none.
fn seconds(text: &str) -> Option<u64> {
    let mut total = 0;
    let mut rest = text;
    if rest.is_empty() || rest == "infinity" || rest == "0" {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        total += match &rest[..letters] {
            "" | "s" | "sec" | "second" | "seconds" => number,
            "ms" | "msec" => number / 1000,
            "m" | "min" | "minute" | "minutes" => number * 60,
            "h" | "hr" | "hour" | "hours" => number * 3600,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
    }
    Some(total)
}

/// Lines of fstab for disks of Tyche that would be mounted before the network, or hold up the boot.
fn fstab(machine: &Machine) -> Vec<Finding> {
    let text = machine.read("/etc/fstab").unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("/dev/disk/by-id/tyche-"));
    let mut findings = Vec::new();
    for line in lines {
        let fields: Vec<_> = line.split_whitespace().collect();
        let options: Vec<_> = fields.get(3).unwrap_or(&"").split(',').collect();
        let point = fields.get(1).unwrap_or(&"?");
        if !options.contains(&"_netdev") && !options.contains(&"noauto") {
            let what = format!("fstab mounts {point} from a disk of Tyche without `_netdev`");
            let found = Finding::warning("fstab-netdev", what);
            let remedy = "the options that tychetab(5) has: `_netdev,nofail,..`; otherwise it is \
                          waited for before the network, and unmounted after it";
            findings.push(found.remedy(remedy));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_those_of_systemd() {
        for (text, wanted) in [
            ("90", Some(90)),
            ("1min 30s", Some(90)),
            ("2h", Some(7200)),
            ("500ms", Some(0)),
            ("infinity", None),
            ("soon", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
