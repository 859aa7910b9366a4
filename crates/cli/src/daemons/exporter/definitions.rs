//! Metrics that come from no table of counters: states, sizes and times of a report.

use std::borrow::Cow;

use tyche_counters::Kind;

use super::derived::Scope;
use super::families::Definition;

/// Labels of a session.
pub(super) const SESSION: &[&str] = &["export", "uuid"];
/// Labels of a link, of a session (`side="host"`) or a target (`side="target"`).
pub(super) const LINK: &[&str] = &["side", "export", "uuid", "target", "link"];
/// Labels of an export of a target.
pub(super) const EXPORT: &[&str] = &["target", "export"];
/// Labels of a pool of a target.
pub(super) const POOL: &[&str] = &["target", "pool"];

/// The requests of a session.
pub(super) const REQUESTS: Scope = Scope { prefix: "", labels: SESSION };
/// The frames of a link.
pub(super) const LINK_SCOPE: Scope = Scope { prefix: "link_", labels: LINK };
/// The requests of a host at an export.
pub(super) const USE: Scope = Scope { prefix: "export_", labels: &["target", "export", "host"] };

macro_rules! definitions {
    ($( $(#[doc = $help:literal])+ $id:ident = $name:literal: $kind:ident by $labels:expr; )+) => {
        $(
            $(#[doc = $help])+
            pub(super) static $id: Definition = Definition {
                name: Cow::Borrowed($name),
                kind: Kind::$kind,
                labels: Cow::Borrowed($labels),
                help: Cow::Borrowed(concat!($($help),+).trim_ascii()),
            };
        )+

        /// All of them.
        #[cfg(test)]
        pub(super) static ALL: &[&Definition] = &[$( &$id ),+];
    };
}

definitions! {
    /// 1, with the version of the exporter.
    BUILD_INFO = "tyche_build_info": Gauge by &["version"];
    /// Seconds that it took to ask all daemons.
    LOOK = "tyche_exporter_look_seconds": Gauge by &[];
    /// Whether the daemon of a session or a target answers.
    DAEMON_UP = "tyche_daemon_up": Gauge by &["side", "export", "uuid", "target"];
    /// CPU time that the daemon has used.
    CPU = "tyche_cpu_seconds": Counter by &["side", "export", "uuid", "target"];

    /// 1, with the session's target (its name if it was connected by that, else its UUID), device
    /// and kind of device.
    SESSION_INFO = "tyche_session_info": Gauge
        by &["export", "uuid", "target", "device", "attachment"];
    /// Whether the session is in that state: live, lost, failed, gone, ending, starting, silent,
    /// dead or unknown.
    SESSION_STATE = "tyche_session_state": Gauge by &["export", "uuid", "state"];
    /// Seconds since the target was lost; 0 if it answers.
    SESSION_LOST = "tyche_session_lost_seconds": Gauge by SESSION;
    /// Seconds until all requests fail, of a session whose target is lost; none without a limit.
    SESSION_TIME_LEFT = "tyche_session_time_left_seconds": Gauge by SESSION;
    /// Queues of the session.
    SESSION_QUEUES = "tyche_session_queues": Gauge by SESSION;
    /// Size of the disk.
    SESSION_SIZE = "tyche_session_size_bytes": Gauge by SESSION;
    /// Requests in progress.
    IN_PROGRESS = "tyche_requests_in_progress": Gauge by SESSION;
    /// The longest time in seconds that a request in progress has waited, since it was submitted or
    /// last made progress.
    LONGEST_WAIT = "tyche_request_longest_wait_seconds": Gauge by SESSION;
    /// Lost channels that the target has not confirmed to be closed.
    FENCES = "tyche_session_fences": Gauge by SESSION;
    /// Failed requests, by operation and by kind of error.
    REQUEST_ERRORS = "tyche_request_errors": Counter by &["export", "uuid", "op", "errno"];
    /// Time of successful requests from the device's side.
    DURATION = "tyche_request_duration_seconds": Histogram by &["export", "uuid", "op"];
    /// Links of the session.
    LINKS = "tyche_links": Gauge by SESSION;
    /// Links of the session that reach the target.
    LINKS_LIVE = "tyche_links_live": Gauge by SESSION;

    /// Whether a session reaches the target on that link, or a target has no fault there.
    LINK_UP = "tyche_link_up": Gauge by LINK;
    /// Open channels.
    LINK_CHANNELS = "tyche_link_channels": Gauge by LINK;
    /// Round-trip time, smoothed, of a session's link that is up.
    LINK_RTT = "tyche_link_round_trip_seconds": Gauge by LINK;
    /// Frames that a session's link may have in flight.
    LINK_WINDOW = "tyche_link_congestion_window_frames": Gauge by LINK;
    /// Longest frame that has reached the target.
    LINK_FRAME = "tyche_link_frame_bytes": Gauge by LINK;
    /// Requests that a target has answered on that link; over FCoE commands.
    LINK_REQUESTS = "tyche_link_requests": Counter by LINK;
    /// A counter that only another version of the program knows, by its name there.
    LINK_UNKNOWN = "tyche_link_unknown": Counter
        by &["side", "export", "uuid", "target", "link", "counter"];
    /// Frames dropped, by reason: those of all links of a session, those of each link of a target.
    REJECTED = "tyche_rejected_frames": Counter
        by &["side", "export", "uuid", "target", "link", "reason"];
    /// Attempts to connect that a target has refused, by reason. A host that waits for another to
    /// leave tries again and again.
    REFUSED = "tyche_refused_connects": Counter by &["target", "link", "reason"];

    /// 1, with the UUID of the export and its file or device.
    EXPORT_INFO = "tyche_export_info": Gauge by &["target", "export", "uuid", "path"];
    /// Whether the file or device of the export is there and without a fault.
    EXPORT_UP = "tyche_export_up": Gauge by EXPORT;
    /// Size of the export.
    EXPORT_SIZE = "tyche_export_size_bytes": Gauge by EXPORT;
    /// Whether nobody may write.
    EXPORT_READ_ONLY = "tyche_export_read_only": Gauge by EXPORT;
    /// Sessions of a host that has the export connected, with the name of the host as it says
    /// itself, and whether it may write.
    EXPORT_HELD = "tyche_export_held": Gauge
        by &["target", "export", "host", "name", "access"];
    /// Hosts that a command has let in though the configuration does not.
    EXPORT_ALLOWED = "tyche_export_allowed_hosts": Gauge by EXPORT;
    /// Hosts that a command keeps out, whatever the configuration says.
    EXPORT_DENIED = "tyche_export_denied_hosts": Gauge by EXPORT;
    /// Requests that the file or device has failed, by operation and by kind of error.
    EXPORT_ERRORS = "tyche_export_errors": Counter by &["target", "export", "op", "errno"];

    /// Bytes that the export's file or thin volume has in its pool, those that it shares with
    /// clones included.
    EXPORT_ALLOCATED = "tyche_export_allocated_bytes": Gauge by EXPORT;

    /// Size of a pool, or of its file system.
    POOL_SIZE = "tyche_pool_size_bytes": Gauge by POOL;
    /// Bytes of a pool, or of its file system, that have data, whoever has written them.
    POOL_USED = "tyche_pool_used_bytes": Gauge by POOL;
    /// Size of the metadata of a thin pool.
    POOL_METADATA_SIZE = "tyche_pool_metadata_size_bytes": Gauge by POOL;
    /// Bytes of the metadata of a thin pool that are used.
    POOL_METADATA_USED = "tyche_pool_metadata_used_bytes": Gauge by POOL;
    /// Sizes of the exports in a pool, all together.
    POOL_PROVISIONED = "tyche_pool_provisioned_bytes": Gauge by POOL;

    /// Initiators that are logged in at a target's port of FCoE.
    FCOE_INITIATORS = "tyche_fcoe_initiators": Gauge by &["target", "link"];
    /// Frames without effect, and commands that failed on their way, at a target's port of FCoE, by
    /// reason.
    FCOE_IGNORED = "tyche_fcoe_ignored": Counter by &["target", "link", "reason"];
}
