//! Options of a session: of either protocol, and of Tyche's own.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_proto::ChannelChoice;
use tyche_proto::wire::Mac;
use tyche_remote::{QUEUE_SIZE, SessionOptions};
use tyche_session::{CHANNELS_MAX, KEEP_ALIVE, NativeOptions, TIMEOUT};
use uuid::Uuid;

use super::trust::{TargetKey, target_key};
use crate::shared::seconds::{positive, within};
use crate::shared::{complete, identity};

/// Options of a session of either protocol.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommonArgs {
    /// Interface that reaches the target, or udp:, tcp: or rdma:HOST:PORT where it listens; may
    /// be repeated: all are used as one. By default every interface that is up, except members of a
    /// bridge or bond.
    #[arg(long = "link", value_name = "INTERFACE", add = complete::interfaces())]
    pub(crate) links: Vec<String>,

    /// Never write. Another host may write at the same time; what it writes may go unseen.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Requests in flight at once, 1 to 1024.
    #[arg(long, value_name = "NUMBER", default_value_t = SessionOptions::default().queue_size,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(*QUEUE_SIZE.end())))]
    pub(crate) queue_size: u16,

    /// How long requests wait for a lost target before they fail with EIO; -1: for ever.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true,
        default_value_t = ctrl_loss_tmo_default(), value_parser = ctrl_loss_tmo)]
    pub(crate) ctrl_loss_tmo: i64,

    /// How long requests wait for a lost target before they fail with EIO, while the session still
    /// tries to reach it until --ctrl-loss-tmo, and serves again when it is back. For RAID on top.
    /// By default they wait until --ctrl-loss-tmo.
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub(crate) fast_io_fail_tmo: Option<f64>,

    /// Queues of the session, 1 to 64, over FCoE to 16; by default 1, or with --affinity one for
    /// each NUMA node that the links are on. Each has a thread, channels or exchanges, memory, and
    /// a socket on each link of its own, so that requests of different queues share nothing. A
    /// block device gets as many queues where its kind can have several.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) queues: Option<u16>,

    /// How long to try before giving up on connecting at all.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT.as_secs_f64(),
        value_parser = positive)]
    pub(crate) timeout: f64,
}

/// Options that only Tyche's own protocol has.
#[derive(Args, Clone, Debug)]
pub(crate) struct NativeArgs {
    /// The target's Ethernet address; by default it is asked for by broadcast.
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub(crate) target: Option<Mac>,

    /// Silence after which the target is taken for lost.
    #[arg(long, value_name = "SECONDS",
        default_value_t = NativeOptions::default().keep_alive.as_secs_f64(),
        value_parser = |text: &str| within(text, &KEEP_ALIVE))]
    pub(crate) keep_alive_tmo: f64,

    /// Pause between two attempts to reach a lost target.
    #[arg(long, value_name = "SECONDS",
        default_value_t = NativeOptions::default().reconnect_delay.as_secs_f64(),
        value_parser = positive)]
    pub(crate) reconnect_delay: f64,

    /// Channels for each pair of a local interface and one of the target's, 1 to 16.
    #[arg(long, value_name = "NUMBER", default_value_t = NativeOptions::default().channels,
        value_parser = clap::value_parser!(u8).range(1..=i64::from(CHANNELS_MAX)))]
    pub(crate) channels: u8,

    /// Which channel a request takes.
    #[arg(long, value_enum, value_name = "POLICY", default_value_t)]
    pub(crate) io_policy: IoPolicy,

    /// The target's key, as `tyche key show` prints it there. Then every frame is encrypted and
    /// authenticated, the target has to prove that it owns that key, and this host has to with its
    /// own: --key. `ask` stands for the key that this machine knows for the target's name; on first
    /// contact `connect` shows its fingerprint on the terminal, and keeps the key if you say yes. A
    /// target whose key is known (tyche key known) is never connected without.
    #[arg(long, value_name = "KEY|ask", value_parser = target_key)]
    pub(crate) target_key: Option<TargetKey>,

    /// File of this host's secret key, which `tyche key generate` makes; by default /etc/tyche/key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,

    /// Do not cover data with checksums (headers and commands always are).
    #[arg(long)]
    pub(crate) no_checksum: bool,

    /// UUID of the host to connect as, instead of this machine's.
    #[arg(long, value_name = "UUID", value_parser = identity::parse_host)]
    pub(crate) host_id: Option<Uuid>,

    /// Name of this host that the target shows to others.
    #[arg(long, value_name = "NAME")]
    pub(crate) host_name: Option<String>,
}

/// How requests are spread over the channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum IoPolicy {
    /// Each channel in turn, whatever its speed: a baseline for measurements.
    RoundRobin,
    /// The channel expected to finish first, by its load in flight and its measured rate. Slow and
    /// lossy links get as much as they can carry.
    #[default]
    LeastOutstanding,
}

impl From<IoPolicy> for ChannelChoice {
    fn from(policy: IoPolicy) -> Self {
        match policy {
            IoPolicy::RoundRobin => Self::RoundRobin,
            IoPolicy::LeastOutstanding => Self::LeastOutstanding,
        }
    }
}

impl CommonArgs {
    /// Time limit for a request; `None`: no limit.
    pub(crate) fn answer_within(&self) -> Option<Duration> {
        u64::try_from(self.ctrl_loss_tmo).ok().map(Duration::from_secs)
    }

    /// These of the session.
    pub(super) fn options(&self) -> SessionOptions {
        SessionOptions {
            queue_size: self.queue_size,
            read_only: self.read_only,
            ctrl_loss_tmo: self.answer_within(),
            fast_io_fail_tmo: self.fast_io_fail_tmo.map(Duration::from_secs_f64),
        }
    }
}

impl NativeArgs {
    /// These of the session.
    pub(super) fn options(&self) -> NativeOptions {
        NativeOptions {
            channels: self.channels,
            choice: self.io_policy.into(),
            checksum: !self.no_checksum,
            keep_alive: Duration::from_secs_f64(self.keep_alive_tmo),
            reconnect_delay: Duration::from_secs_f64(self.reconnect_delay),
            host: self.host_id,
            host_name: self.host_name.clone(),
            ..NativeOptions::default()
        }
    }
}

fn mac(text: &str) -> Result<Mac, String> {
    Mac::parse(text).ok_or_else(|| "an address looks like 02:00:5e:10:00:01".into())
}

/// Seconds, or -1: for ever.
fn ctrl_loss_tmo(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(seconds) if (-1..=1_000_000_000).contains(&seconds) => Ok(seconds),
        _ => Err("0 to 1000000000 seconds, or -1: for ever".into()),
    }
}

/// The default, in seconds.
fn ctrl_loss_tmo_default() -> i64 {
    SessionOptions::default().ctrl_loss_tmo.map_or(-1, |limit| limit.as_secs() as i64)
}
