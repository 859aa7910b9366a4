//! Clocks, and restores of a virtual machine's memory.

use crate::shared::report::Finding;

use super::machine::Machine;

/// Clock sources that are read by a system call or a slow register.
const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];
/// The driver by which a machine learns that its memory was restored.
const GENERATION: [&str; 2] =
    ["/sys/bus/acpi/drivers/vmgenid", "/sys/bus/platform/drivers/vmgenid"];

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = machine.read(source).unwrap_or_default();
    if SLOW.contains(&&*source) {
        let what = format!("the clock source is {source}: each look at the clock is a system call");
        let found = Finding::warning("clock-slow", what);
        let remedy = "see `dmesg | grep -i clocksource` for why it is not tsc: often the firmware, \
                      or `tsc=reliable` helps in a virtual machine";
        findings.push(found.remedy(remedy));
    }
    let is_guest = machine.read("/proc/cpuinfo").is_some_and(|text| {
        text.lines().any(|line| {
            line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
        })
    });
    let has_driver = GENERATION.into_iter().any(|driver| machine.has(driver));
    // Without keys there is nothing that a restored machine would use twice.
    let has_key = machine.has(tyche_session::KEY_FILE);
    if is_guest && has_key && !has_driver {
        let what = "this virtual machine does not learn that its memory was restored (vmgenid)";
        let remedy = "a generation ID in the hypervisor, and Linux 6.10 or later; without, do not \
                      resume it from snapshots of its memory while sessions with keys run";
        findings.push(Finding::note("vmgenid-missing", what).remedy(remedy));
    }
    findings
}
