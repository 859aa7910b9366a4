//! Counters of a session by name, as `tyche stats` has them.

use std::ffi::{CStr, c_char, c_int};

use tyche_proto::ChannelStats;
use tyche_remote::HostReport;

use super::tyche_volume;

/// A counter of the session, or of this queue of it in inline mode, by the name that it has in
/// `tyche stats -o json`: `rx_frames`, `tx_frames`, `retransmitted`, `batches`, `batch_entries`,
/// `batch_sizes`, and those of the links' kind, such as `udp_trains_sent`, or `fc_aborts`
/// over FCoE. Links are added up. -ENOENT: there is no such counter. -EBUSY: another thread is in a
/// call on this volume.
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

/// The sum over all links; `None` if none of them has that counter.
fn counter(report: &HostReport, name: &str) -> Option<u64> {
    let ChannelStats { retransmitted, batches, batch_entries, batch_sizes, .. } = report.channel;
    let ports = || report.links.iter().map(|link| &link.port);
    let own = || {
        let all = report.links.iter().flat_map(|link| &link.link_counters);
        all.filter(|(it, _)| *it == name).map(|(_, value)| *value).reduce(|sum, it| sum + it)
    };
    match name {
        "rx_frames" => Some(ports().map(|port| port.rx_frames).sum()),
        "tx_frames" => Some(ports().map(|port| port.tx_frames).sum()),
        "retransmitted" => Some(retransmitted),
        "batches" => Some(batches),
        "batch_entries" => Some(batch_entries),
        "batch_sizes" => Some(batch_sizes),
        _ => own(),
    }
}
