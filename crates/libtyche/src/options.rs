//! The options of a volume.

use std::path::PathBuf;
use std::time::Duration;

use tyche_engine::identity;
use tyche_native::HostOptions;
use tyche_numa::Placement;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{ETHERTYPE, Mac};
use tyche_proto::{HostKeys, QUEUES_MAX, SessionConfig};
use tyche_remote::HostLink;
use tyche_session::fcoe::E_D_TOV;
use tyche_session::{
    End, KEY_FILE, KnownTarget, KnownTargets, LinkOptions, MEMORY, Opened, TIMEOUT, log_warnings,
    read_key, wanted,
};
use uuid::Uuid;

pub use tyche_fcoe::fc::network::Mode as FcoeMode;
pub use tyche_remote::SessionOptions;
pub use tyche_session::NativeOptions;

use crate::error::OpenError;

/// Maximum memory of a volume for its own buffers, in bytes.
const MEMORY_MAX: usize = 64 << 30;

/// The thread that drives the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The calling thread: the shortest path, for one thread that polls.
    #[default]
    Inline,
    /// A thread of the volume's own, to which any number of threads submit requests.
    Queue,
}

/// Options of a volume over Fibre Channel over Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcoeOptions {
    /// The network: [`FcoeMode::Vn2vn`], the default, or [`FcoeMode::Fabric`] if switches for FCoE
    /// (FCFs) are there.
    pub mode: FcoeMode,
    /// Name of the port of this end, for access lists of the target; `None`: it follows from the
    /// interface's address.
    pub wwpn: Option<String>,
    /// E_D_TOV, 0.05 s to 60 s: what is lost is noticed after that long. The larger one of both
    /// ends counts. 2 s by default.
    pub e_d_tov: Duration,
}

impl Default for FcoeOptions {
    fn default() -> Self {
        Self { mode: FcoeMode::default(), wwpn: None, e_d_tov: E_D_TOV }
    }
}

/// Options to open a volume with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the export, as `tyche discover` lists it; over FCoE `WWPN` or `WWPN:LUN`, as `tyche
    /// discover --fcoe` does.
    pub export: String,
    /// Options of Fibre Channel over Ethernet, to connect by that on one interface, which is the
    /// link. `None`, the default: Tyche's own protocol. Options that only the latter has must have
    /// their defaults over FCoE.
    pub fcoe: Option<FcoeOptions>,
    /// Interfaces that reach the target, or `udp:HOST:PORT`, `tcp:HOST:PORT` or `rdma:HOST:PORT`
    /// where it listens: all are used together. Empty: every interface that is up.
    pub links: Vec<String>,
    /// The target's Ethernet address; `None`: found by broadcast.
    pub target: Option<[u8; 6]>,
    /// EtherType of the frames, the same on both sides; 0x88b5 by default.
    pub ethertype: u16,
    /// Whether to send through the interface's queueing discipline, so that traffic control (tc)
    /// applies; costs some speed, and is off by default.
    pub qdisc: bool,
    /// The thread that drives the session.
    pub mode: Mode,
    /// Queues of the session, 1 to 64, each for one thread:
    /// [`open_queue`](crate::Volume::open_queue) opens all but the first. 1 by default. Over FCoE
    /// up to 16 in queue mode, and one in inline mode.
    pub queues: usize,
    /// Bytes of memory of each queue for the data of requests; 64 MiB by default.
    pub memory: usize,
    /// The longest spin for more work before sleeping; zero, the default: never.
    pub spin: Duration,
    /// The longest time to open; 10 s by default.
    pub timeout: Duration,
    /// Options of a session of either protocol.
    pub session: SessionOptions,
    /// Options that only Tyche's own protocol has.
    pub native: NativeOptions,
    /// The target's key, as `tyche key show` prints it there. With it, every frame is encrypted and
    /// authenticated, and both ends have to prove who they are. `None`, the default: the key that
    /// this machine knows for the target (`tyche key known`), and if it knows none, in the clear. A
    /// machine that knows keys of targets wants the export as `TARGET/EXPORT`.
    pub target_key: Option<PublicKey>,
    /// File of the secret key of this end, if the target has a key; `/etc/tyche/key` by default.
    pub key: PathBuf,
}

impl Options {
    /// The defaults, for the export of that name.
    pub fn new(export: impl Into<String>) -> Self {
        Self {
            export: export.into(),
            fcoe: None,
            links: Vec::new(),
            target: None,
            ethertype: ETHERTYPE,
            qdisc: false,
            mode: Mode::default(),
            queues: 1,
            memory: MEMORY,
            spin: Duration::ZERO,
            timeout: TIMEOUT,
            session: SessionOptions::default(),
            native: NativeOptions::default(),
            target_key: None,
            key: KEY_FILE.into(),
        }
    }

    /// Opens the links of a queue: those that open, of several.
    pub(crate) fn open_links(&self, queue: usize) -> Result<Vec<HostLink>, OpenError> {
        let placement = &Placement::default();
        let options = LinkOptions { ethertype: self.ethertype, qdisc: self.qdisc, placement };
        let Opened { links, warnings, .. } = options.open_available(&self.links, End::Host)?;
        if queue == 0 {
            log_warnings(&warnings);
        }
        let target = self.target.map(Mac);
        Ok(links.into_iter().map(|link| HostLink { link, target }).collect())
    }

    pub(crate) fn checked_queues(&self) -> Result<usize, OpenError> {
        if (1..=QUEUES_MAX).contains(&self.queues) {
            return Ok(self.queues);
        }
        Err(OpenError::Option(format!("a session has 1 to {QUEUES_MAX} queues")))
    }

    /// The engine's options for a session, with the links of each of its queues.
    pub(crate) fn of_host(
        &self,
        session: &SessionConfig,
        mut queues: Vec<Vec<HostLink>>,
    ) -> Result<HostOptions, OpenError> {
        Ok(HostOptions {
            session: session.clone(),
            links: queues.remove(0),
            further_queues: queues,
            placement: Placement::default(),
            ethertype: self.ethertype,
            arena_size: self.pages()?.into(),
            spin: self.spin,
        })
    }

    /// Pages of memory of a queue.
    pub(crate) fn pages(&self) -> Result<usize, OpenError> {
        if (1..=MEMORY_MAX).contains(&self.memory) {
            return Ok(self.memory.div_ceil(tyche_block::PAGE));
        }
        Err(OpenError::Option("memory is 1 byte to 64 GiB".to_owned()))
    }

    /// The key that the target has to prove, if any, and its UUID if it is known: a known target is
    /// never connected without.
    fn key_of_target(&self) -> Result<Option<(PublicKey, Option<Uuid>)>, OpenError> {
        if let Some(key) = self.target_key {
            return Ok(Some((key, None)));
        }
        let (target, _) = wanted(&self.export).map_err(|it| OpenError::Option(it.to_string()))?;
        let known = KnownTargets::read();
        let key = |known: &KnownTarget| (known.key, Some(known.uuid));
        let found = known.and_then(|known| Ok(known.look_up(&target)?.map(key)));
        found.map_err(|error| OpenError::Option(error.to_string()))
    }

    /// The keys of the session, if it shall have any.
    fn keys(&self) -> Result<Option<HostKeys>, OpenError> {
        let Some((target, target_uuid)) = self.key_of_target()? else { return Ok(None) };
        let key = read_key(&self.key).map_err(|error| OpenError::Option(error.to_string()))?;
        Ok(Some(HostKeys { secret: key, target, target_uuid }))
    }

    /// The configuration of the session.
    pub(crate) fn config(&self) -> Result<SessionConfig, OpenError> {
        self.pages()?;
        let ids = (identity::host().map_err(OpenError::Identity)?, Uuid::new_v4());
        let config = self.native.config(&self.session, &self.export, self.keys()?, ids);
        config.map_err(|error| OpenError::Option(error.to_string()))
    }
}
