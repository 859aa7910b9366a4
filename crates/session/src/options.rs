//! The options of a session, with their defaults and limits.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tyche_proto::wire::Name;
use tyche_proto::{
    BatchPolicy, ChannelChoice, ExportId, HostKeys, SessionConfig, TargetId, parse_export,
};
use tyche_remote::{QUEUE_SIZE, SessionOptions};
use uuid::Uuid;

/// Operations in progress at once; the rest waits in the queue.
pub const OPERATIONS_MAX: usize = 1024;
/// The most channels for each pair of a local interface and one of the target's.
pub const CHANNELS_MAX: u8 = 16;
/// The valid times of silence after which a target is taken for lost.
pub const KEEP_ALIVE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
/// The longest time to connect, by default.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of memory for the data of requests, by default.
pub const MEMORY: usize = 64 << 20;

/// An option with an invalid value, and the valid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidOption(&'static str);

/// Options of a session that only Tyche's own protocol has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeOptions {
    /// Channels for each pair of a local interface and one of the target's, up to
    /// [`CHANNELS_MAX`]; 1 by default.
    pub channels: u8,
    /// Policy by which a request gets its channel.
    pub choice: ChannelChoice,
    /// Whether checksums cover data; they do by default. Headers and commands are always covered.
    pub checksum: bool,
    /// Silence after which the target is taken for lost, within [`KEEP_ALIVE`]; 3 s by default.
    pub keep_alive: Duration,
    /// Pause between two attempts to reach a lost target; 0.5 s by default.
    pub reconnect_delay: Duration,
    /// The batching of requests in frames.
    pub batch: BatchPolicy,
    /// The host to present; `None`, the default: this machine.
    pub host: Option<Uuid>,
    /// Its name, for people; `None`, the default: that of this machine.
    pub host_name: Option<String>,
}

impl Default for NativeOptions {
    fn default() -> Self {
        Self {
            channels: 1,
            choice: ChannelChoice::default(),
            checksum: true,
            keep_alive: Duration::from_secs(3),
            reconnect_delay: Duration::from_millis(500),
            batch: BatchPolicy::default(),
            host: None,
            host_name: None,
        }
    }
}

impl NativeOptions {
    /// The configuration of a new session with that identity, on an export as in [`wanted`]; its
    /// frames are sealed if it has keys. `machine`: the identity of this one.
    ///
    /// # Errors
    /// An option has an invalid value.
    pub fn config(
        &self,
        common: &SessionOptions,
        export: &str,
        keys: Option<HostKeys>,
        (machine, session): (Uuid, Uuid),
    ) -> Result<SessionConfig, InvalidOption> {
        let (target, export) = wanted(export)?;
        check(common)?;
        ensure((1..=CHANNELS_MAX).contains(&self.channels), "an interface has 1 to 16 channels")?;
        ensure(KEEP_ALIVE.contains(&self.keep_alive), "a keep-alive time is 0.1 s to 60 s")?;
        let host = self.host.unwrap_or(machine);
        let host_name = Name::truncated(&self.host_name.clone().unwrap_or_else(host_name));
        Ok(SessionConfig {
            target,
            queue_size: common.queue_size,
            operations_max: OPERATIONS_MAX as u32,
            read_only: common.read_only,
            checksum: self.checksum,
            keep_alive: self.keep_alive,
            reconnect_delay: self.reconnect_delay,
            ctrl_loss_tmo: common.ctrl_loss_tmo,
            fast_io_fail_tmo: common.fast_io_fail_tmo,
            batch: self.batch,
            channels: self.channels.into(),
            choice: self.choice,
            keys: keys.map(Arc::new),
            ..SessionConfig::new(host, host_name, session, export)
        })
    }
}

/// Checks options of a session of either protocol.
///
/// # Errors
/// An option has an invalid value.
pub fn check(options: &SessionOptions) -> Result<(), InvalidOption> {
    ensure(QUEUE_SIZE.contains(&options.queue_size), "a queue size is 1 to 1024")?;
    let lives_on = |fails: Duration| options.ctrl_loss_tmo.is_none_or(|ends| fails < ends);
    ensure(
        options.fast_io_fail_tmo.is_none_or(lives_on),
        "requests can fail early (fast-io-fail-tmo) only before the session does (ctrl-loss-tmo)",
    )
}

fn ensure(is_right: bool, message: &'static str) -> Result<(), InvalidOption> {
    if is_right { Ok(()) } else { Err(InvalidOption(message)) }
}

/// Parses `EXPORT` or `TARGET/EXPORT`.
///
/// # Errors
/// It is neither.
pub fn wanted(export: &str) -> Result<(TargetId, ExportId), InvalidOption> {
    parse_export(export).ok_or(InvalidOption(
        "an export is [TARGET/]EXPORT, each a UUID or a name of 1 to 63 bytes without control \
         characters",
    ))
}

/// This machine's name, as others see it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_bounds_are_refused() {
        let ids = (Uuid::nil(), Uuid::nil());
        let (common, native) = (SessionOptions::default(), NativeOptions::default());
        let config = |native: &NativeOptions, common: &SessionOptions, export: &str| {
            native.config(common, export, None, ids).is_ok()
        };
        assert!(config(&native, &common, "store1/vm1"));
        assert!(!config(&native, &common, ""));
        for queue_size in [0, 1025] {
            assert!(!config(&native, &SessionOptions { queue_size, ..common.clone() }, "vm1"));
        }
        let keep_alive = Duration::from_secs(61);
        assert!(!config(&NativeOptions { channels: 17, ..native.clone() }, &common, "vm1"));
        assert!(!config(&NativeOptions { keep_alive, ..native.clone() }, &common, "vm1"));
        let early = |seconds, common: &SessionOptions| {
            let fast_io_fail_tmo = Some(Duration::from_secs(seconds));
            config(&native, &SessionOptions { fast_io_fail_tmo, ..common.clone() }, "vm1")
        };
        let for_ever = SessionOptions { ctrl_loss_tmo: None, ..common.clone() };
        assert!(early(599, &common) && early(600, &for_ever));
        assert!(!early(600, &common));
    }
}
