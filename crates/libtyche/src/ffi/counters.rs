//! Counters of a session by name, as `tyche stats` has them.

use std::ffi::{CStr, c_char, c_int};

use tyche_counters::CounterGroup;
use tyche_engine::PortStats;
use tyche_remote::HostReport;

use super::tyche_volume;

/// A counter of the session, or of this queue of it in inline mode, by the name that it has in
/// `tyche stats -o json`: those of requests (`reads`, `read_bytes`), of the protocol
/// (`retransmitted`, `batches`), of links (`rx_frames`, `tx_bytes`), and those of the links' kind,
/// such as `udp_trains_sent`, or `fc_aborts` over FCoE. Links are added up. -ENOENT: there is no
/// such counter. -EBUSY: another thread is in a call on this volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_get_counter(
    volume: *const tyche_volume,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    if name.is_null() || value.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: not null, and a string as the header demands.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(report) = handle.volume.report() else { return -libc::EBUSY };
    let Some(found) = name.to_str().ok().and_then(|name| counter(&report, name)) else {
        return -libc::ENOENT;
    };
    // SAFETY: not null, and writable as the header demands.
    unsafe { value.write(found) };
    0
}

/// The sum over all links; `None` if there is no such counter.
fn counter(report: &HostReport, name: &str) -> Option<u64> {
    let mut port = PortStats::default();
    report.links.iter().for_each(|link| port += link.port);
    let own = report.links.iter().flat_map(|link| &link.link_counters);
    let own = own.filter(|(it, _)| it.name == name).map(|(_, value)| *value);
    let requests = report.requests.succeeded.named(name).or(report.node_counts.named(name));
    let known = requests.or(report.channel.named(name)).or(port.named(name));
    known.or_else(|| own.reduce(|sum, it| sum + it))
}
