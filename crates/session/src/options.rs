//! The options of a session, with their defaults and limits.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tyche_proto::wire::Name;
use tyche_proto::{
    BatchPolicy, ChannelChoice, ExportId, HostKeys, SessionConfig, TargetId, parse_export,
};
use uuid::Uuid;

/// Operations in progress at once; the rest waits in the queue.
pub const OPERATIONS_MAX: usize = 1024;
/// The most requests at the target at once.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// The most channels for each pair of a local interface and one of the target's.
pub const CHANNELS_MAX: u8 = 16;
/// The valid times of silence after which a target is taken for lost.
pub const KEEP_ALIVE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// Defaults of the options.
pub mod defaults {
    use std::time::Duration;

    /// Requests at the target at once.
    pub const QUEUE_SIZE: u16 = 128;
    /// Channels for each pair of a local interface and one of the target's.
    pub const CHANNELS: u8 = 1;
    /// Silence after which the target is taken for lost.
    pub const KEEP_ALIVE: Duration = Duration::from_secs(3);
    /// Pause between two attempts to reach a lost target.
    pub const RECONNECT_DELAY: Duration = Duration::from_millis(500);
    /// The time that requests wait for a lost target before they fail.
    pub const CTRL_LOSS_TMO: Duration = Duration::from_secs(600);
    /// The longest time to connect.
    pub const TIMEOUT: Duration = Duration::from_secs(10);
    /// Bytes of memory for the data of requests.
    pub const MEMORY: usize = 64 << 20;
}

/// An option with an invalid value, and the valid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidOption(&'static str);

/// The options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions<'a> {
    /// `EXPORT` or `TARGET/EXPORT`, each a name or a UUID.
    pub export: &'a str,
    /// The host that asks.
    pub host: Uuid,
    /// Its name, for people.
    pub host_name: &'a str,
    /// The most requests at the target at once, up to [`QUEUE_SIZE_MAX`].
    pub queue_size: u16,
    /// Channels for each pair of interfaces, up to [`CHANNELS_MAX`].
    pub channels: u8,
    /// Policy by which a request gets its channel.
    pub choice: ChannelChoice,
    /// Whether to open the export read-only.
    pub read_only: bool,
    /// Whether checksums cover data.
    pub checksum: bool,
    /// Silence after which the target is taken for lost, within [`KEEP_ALIVE`].
    pub keep_alive: Duration,
    /// Pause between two attempts to reach a lost target.
    pub reconnect_delay: Duration,
    /// The time that requests wait for a lost target before they fail; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// The batching of requests in frames.
    pub batch: BatchPolicy,
    /// The keys, if frames are to be sealed.
    pub keys: Option<HostKeys>,
}

impl SessionOptions<'_> {
    /// The configuration of a new session with that identity.
    ///
    /// # Errors
    /// An option has an invalid value.
    pub fn config(&self, session: Uuid) -> Result<SessionConfig, InvalidOption> {
        let (target, export) = wanted(self.export)?;
        let bounded =
            |right: bool, message| if right { Ok(()) } else { Err(InvalidOption(message)) };
        bounded((1..=QUEUE_SIZE_MAX).contains(&self.queue_size), "a queue size is 1 to 1024")?;
        bounded((1..=CHANNELS_MAX).contains(&self.channels), "an interface has 1 to 16 channels")?;
        bounded(KEEP_ALIVE.contains(&self.keep_alive), "a keep-alive time is 0.1 s to 60 s")?;
        Ok(SessionConfig {
            target,
            queue_size: self.queue_size,
            operations_max: OPERATIONS_MAX as u32,
            read_only: self.read_only,
            checksum: self.checksum,
            keep_alive: self.keep_alive,
            reconnect_delay: self.reconnect_delay,
            ctrl_loss_tmo: self.ctrl_loss_tmo,
            batch: self.batch,
            channels: self.channels.into(),
            choice: self.choice,
            keys: self.keys.clone().map(Arc::new),
            ..SessionConfig::new(self.host, Name::truncated(self.host_name), session, export)
        })
    }
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
        let options = SessionOptions {
            export: "store1/vm1",
            host: Uuid::nil(),
            host_name: "host",
            queue_size: defaults::QUEUE_SIZE,
            channels: defaults::CHANNELS,
            choice: ChannelChoice::default(),
            read_only: false,
            checksum: true,
            keep_alive: defaults::KEEP_ALIVE,
            reconnect_delay: defaults::RECONNECT_DELAY,
            ctrl_loss_tmo: None,
            batch: BatchPolicy::default(),
            keys: None,
        };
        assert!(options.config(Uuid::nil()).is_ok());
        let keep_alive = Duration::from_secs(61);
        for wrong in [
            SessionOptions { export: "", ..options.clone() },
            SessionOptions { queue_size: 0, ..options.clone() },
            SessionOptions { queue_size: 1025, ..options.clone() },
            SessionOptions { channels: 17, ..options.clone() },
            SessionOptions { keep_alive, ..options.clone() },
        ] {
            assert!(wrong.config(Uuid::nil()).is_err(), "{wrong:?}");
        }
    }
}
