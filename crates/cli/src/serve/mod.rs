//! `tyche serve`: export disks.

mod access;
mod answers;
mod config;
mod conflict;
mod fcoe;
mod state;
mod vlan;

use std::io::{self, ErrorKind};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tyche_engine::{Target, TargetExport, TargetOptions, restore};
use tyche_fcoe::fc::network::Mode;
use tyche_link::Link;
use tyche_link::ip::Transport;
use tyche_numa::Placement;
use tyche_proto::crypto::{PublicKey, SecretKey};
use tyche_proto::wire::Name;
use tyche_proto::{Allowed, TargetConfig};
use tyche_session::End;
use tyche_session::fcoe::parse_mode;
use tyche_store::file::{FileOptions, FileStore};
use tyche_store::memory::MemoryStore;
use tyche_store::null::NullStore;
use tyche_store::{ResizeError, Store};
use uuid::Uuid;

use crate::complete;
use crate::control::{self, Answer};
use crate::error::{Code, CodedResult, Context, Error, Result};
use crate::fcoe::e_d_tov;
use crate::links::LinkArgs;
use crate::output::{announce, bytes};
use crate::panics;
use crate::placement::PlacementArgs;
use crate::runtime::{self, RuntimeDir};
use access::{Configured, Rights};
use answers::Answers;
use config::{Auth, Config, Export, FcoePort, Host, Initiators, Source};
use fcoe::Fcoe;
use state::{Disk, State};
use vlan::Vlan;

/// Time from which populating a store's memory is logged.
const POPULATE_QUIET: Duration = Duration::from_secs(1);

/// Export disks to hosts on this Ethernet. Runs until it is stopped.
///
/// The command line suffices for one disk; for more, or for access lists, write a TOML file:
///
///   name = "store1"            # default: the host's name
///   link = ["eth0", "eth1"]    # or "udp:0.0.0.0"; default: all interfaces that are up
///   threads = 2                # for each interface; default: 1
///   fcoe_vlan = ["eth2:100"]   # hosts that ask on eth2 are told that its VLAN 100 has FCoE
///   udp_discovery = true       # false: only hosts that know a udp: address find it there
///   key = "/etc/tyche/key"     # of this target; then only these hosts may connect:
///   silent = false             # true: no answer to those who do not know this target's key
///   [[host]]
///   name = "vmhost1"
///   key = "tyche_..."          # or several: ["tyche_...", "tyche_..."]
///   [[fcoe]]                   # Fibre Channel over Ethernet, for other makes as well
///   link = "eth2"
///   mode = "vn2vn"             # default; "fabric" if switches for FCoE are there
///   [[export]]
///   name = "vm1"
///   path = "/srv/vm1.img"      # or a block device, mem:1G, sparse:1T, null:1T
///   write_back = false         # true: faster, durable only when the host flushes
///   read_only = false
///   block_size = 4096          # or 512
///   allow = ["vmhost1"]        # default: every [[host]]
///   hosts = ["UUID"]           # without keys: who may connect; default: everybody
///   initiators = ["WWPN"]      # the same for FCoE, or "any": one of them with a key
///
/// The identity and the last writer of each export are kept in /var/lib/tyche. An export whose file
/// or device was replaced is refused, until --accept-changed-disk accepts the new one.
///
/// SIGHUP makes it check the sizes of its files again and tell the hosts, and read again which
/// hosts may connect: sessions of those that may not any more are ended, and ports of FCoE do not
/// see the export any more; `tyche export resize` makes one larger.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::private_intra_doc_links,
    reason = "TOML in the text of --help"
)]
pub struct ServeArgs {
    /// A disk to export: NAME=PATH for a file or block device; NAME=mem:SIZE for memory, allocated
    /// at the start, or NAME=sparse:SIZE for memory, allocated as it is written (both are lost when
    /// the target stops); NAME=null:SIZE for a disk that stores nothing. May be repeated.
    #[arg(long = "export", value_name = "NAME=PATH", value_parser = Export::parse)]
    exports: Vec<Export>,

    /// Read this TOML file; the command line adds to it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Interface to serve on, or udp:ADDRESS:PORT or tcp:ADDRESS:PORT to listen at; may be
    /// repeated. By default all interfaces that are up, except members of a bridge or bond.
    #[arg(long = "link", value_name = "INTERFACE", add = complete::interfaces())]
    links: Vec<String>,

    /// Interface to serve on by Fibre Channel over Ethernet: hosts see the exports as LUNs, in
    /// their order. May be repeated. Without --link, no other host is served.
    #[arg(long = "fcoe", value_name = "INTERFACE", add = complete::interfaces())]
    fcoe: Vec<String>,

    /// The network of the interfaces of --fcoe: vn2vn without a fabric, or fabric if switches for
    /// FCoE (FCFs) are there. Hosts on it must have the same mode.
    #[arg(long, value_name = "MODE", requires = "fcoe", default_value = "vn2vn",
        value_parser = parse_mode)]
    fcoe_mode: Mode,

    /// E_D_TOV of the ports of --fcoe, 0.05 to 60: data that are lost are noticed after that long.
    /// The larger one of both ends counts.
    #[arg(long, value_name = "SECONDS", requires = "fcoe", default_value_t = 2.0,
        value_parser = e_d_tov)]
    e_d_tov: f64,

    /// Tell hosts that ask on this interface that FCoE is spoken on that VLAN of it (FIP VLAN
    /// discovery, as `tyche discover --fcoe` asks). May be repeated. The VLAN's own interface is
    /// one of --fcoe.
    #[arg(long = "fcoe-vlan", value_name = "INTERFACE:VLAN", requires = "fcoe",
        value_parser = Vlan::parse)]
    fcoe_vlans: Vec<Vlan>,

    /// Port that may know of the exports of the command line over FCoE: its WWPN, or `any`. May be
    /// repeated. By default all, unless this target has a key: then it must be said, because FCoE
    /// has no keys.
    #[arg(long = "fcoe-initiator", value_name = "WWPN", requires = "fcoe",
        value_parser = Initiators::parse)]
    fcoe_initiators: Vec<Initiators>,

    /// File of this target's secret key, which `tyche key generate` makes. Then hosts with a key
    /// may connect, and those without are refused.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Host that may connect: a name of your choice, and its key as `tyche key show` prints it
    /// there. May be repeated, also with the same name: for a host with several keys.
    #[arg(long = "host", value_name = "NAME=KEY", value_parser = Host::parse)]
    hosts: Vec<Host>,

    /// Whether hosts have to prove who they are by a key. By default they have to if this target
    /// has a key.
    #[arg(long, value_name = "WHEN")]
    auth: Option<Auth>,

    /// Do not answer anybody who does not know this target's public key: it is not found by
    /// `tyche discover` without that, and hosts without keys get no reason why.
    #[arg(long)]
    silent: bool,

    /// Threads for each interface or UDP port, 1 to 64: they share the channels on it, each with a
    /// socket of its own. More than one pays for hosts with several queues, and for many hosts.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,

    /// Do not answer hosts that look for targets over UDP without an address, as
    /// `tyche discover --link udp:` does. Hosts that know the address are answered at any rate.
    #[arg(long)]
    no_udp_discovery: bool,

    /// Name of this target, for people. Two targets on one machine need two names.
    #[arg(long)]
    name: Option<String>,

    /// Refuse writes to the exports of the command line.
    #[arg(long)]
    read_only: bool,

    /// Let completed writes to the exports of the command line be volatile until the host
    /// flushes. The default is write-through: complete means durable.
    #[arg(long)]
    write_back: bool,

    /// Bytes in a block of the exports of the command line: 512 or 4096.
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,

    /// Serve this export once although its file or device was replaced; hosts that were connected
    /// to it lose their device. May be repeated.
    #[arg(long = "accept-changed-disk", value_name = "NAME")]
    accepted: Vec<String>,

    #[command(flatten)]
    pub(crate) link: LinkArgs,

    #[command(flatten)]
    placement: PlacementArgs,
}

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    panics::end_the_process();
    let config = configured(args)?;
    let is_configured = args.name.is_none() && config.name.is_some();
    let code = if is_configured { Code::Config } else { Code::Usage };
    let name = args.name.clone().or(config.name.clone()).unwrap_or_else(tyche_session::host_name);
    let checked = target_name(&name).map_err(|error| Error { code, ..error })?;
    let dir = RuntimeDir::take(
        runtime::targets().join(&name),
        &format!("a target named {name} (give another --name)"),
    )?;
    let mut state = State::open(&name);
    let target = TargetConfig {
        uuid: state.target(&name)?,
        name: checked,
        queue_size_max: config.limits.queue_size,
        damq_pages_max: (config.limits.data_queue.as_u64() / 4096) as u32,
        channels_max: config.limits.channels,
        batch: args.link.batch(),
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let spin = args.link.spin();
    let key = access::secret(&config)?;
    let own_key = key.as_ref().map(SecretKey::public);
    let configured = Configured::of(&config, own_key)?;
    let rights = Rights::new(&name, configured, state.decisions()?, &config.export);
    let mut exports = open_exports(&config.export, &args.accepted, &mut state)?;
    for (export, allowed) in exports.iter_mut().zip(rights.allowed()) {
        export.allowed = allowed;
    }
    if let Some(wrapper) = &args.link.wrapper {
        for export in &mut exports {
            export.store = wrapper.store(Arc::clone(&export.store), spin);
        }
    }
    let units = fcoe::number(&config, &exports, &state)?;
    let n_port_ids = state.n_port_ids();
    let described = describe(&exports, &units);
    let placement = args.placement.placement()?;
    let Links { first, further, beacons } = open_links(args, &config, &placement)?;
    let mut interfaces: Vec<_> = first.iter().map(|link| link.name().to_owned()).collect();
    let (remember_writer, renew_generation) = state.into_callbacks();
    let options = TargetOptions {
        target,
        exports,
        key,
        silent: config.is_silent,
        access: rights.access(),
        links: first,
        further_threads: further,
        beacons,
        placement,
        ethertype: args.link.ethertype,
        spin,
        remember_writer,
        renew_generation,
    };
    let target = Target::start(options)?;
    let fcoe = Fcoe::start(&args.link, &config, &target, (&units, n_port_ids))?;
    interfaces.extend(fcoe.described());
    let served = Arc::new(Served { fcoe, target, rights: Mutex::new(rights), own_key });
    watch_generation(&served);
    let (answering, answers) = (Arc::downgrade(&served), Answers::new(&name, &config.export));
    control::serve(&dir.path().join(runtime::CONTROL), move |request| match answering.upgrade() {
        Some(served) => answers.to(served, &request),
        None => Answer::refused(Code::Other, "the target is stopping"),
    })
    .context(Code::Other, "control socket")?;
    let serving = format!("serving {} on {}", described.join(", "), interfaces.join(", "));
    if let Err(error) = announce(&format!("tyche: {serving} as {name}\n")) {
        tracing::warn!("{serving} as {name}, which can't be printed: {error}");
    }
    // Fails only if the supervisor that asked for it is gone.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    await_stop(&mut signals, &served, args, &config.export);
    tracing::info!("stopping");
    drop(served);
    drop(dir);
    Ok(())
}

/// The exports, each with its size and its LUN, if it has one.
fn describe(exports: &[TargetExport], units: &[(Uuid, u8)]) -> Vec<String> {
    let described = exports.iter().enumerate().map(|(index, export)| {
        let (name, size) = (&export.name, bytes(export.store.geometry().size));
        match units.get(index) {
            Some((_, lun)) => format!("{name} ({size}, LUN {lun})"),
            None => format!("{name} ({size})"),
        }
    });
    described.collect()
}

/// The configuration, of the file and of the command line.
fn configured(args: &ServeArgs) -> Result<Config> {
    let mut config = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    config.link.extend(args.links.iter().cloned());
    let port = |link: &String| FcoePort::new(link.clone(), args.fcoe_mode, args.e_d_tov);
    config.fcoe.extend(args.fcoe.iter().map(port));
    config.fcoe_vlan.extend(args.fcoe_vlans.iter().cloned());
    config.host.extend(args.hosts.iter().cloned());
    config.key = args.key.clone().or(config.key);
    config.auth = args.auth.or(config.auth);
    config.is_silent |= args.silent;
    let mut initiators = Initiators::Unsaid;
    args.fcoe_initiators.iter().for_each(|said| initiators.add(said));
    config.export.extend(args.exports.iter().map(|export| Export {
        read_only: args.read_only,
        write_back: args.write_back,
        block_size: args.block_size,
        initiators: initiators.clone(),
        ..export.clone()
    }));
    if config.export.is_empty() {
        let message = "nothing to export: give --export NAME=PATH or --config FILE";
        return Err(Error::new(Code::Usage, message));
    }
    config.check_names(&args.accepted)?;
    conflict::refuse(&config.export)?;
    fcoe::refuse_two_writers(&config)?;
    Ok(config)
}

/// The running target, and its ports of FCoE, which end first.
struct Served {
    fcoe: Fcoe,
    target: Target,
    rights: Mutex<Rights>,
    /// Its key, if it has one.
    own_key: Option<PublicKey>,
}

impl Served {
    /// As [`Target::resize`].
    fn resize(&self, export: usize, size: Option<u64>) -> Result<u64, ResizeError> {
        let size = self.target.resize(export, size)?;
        self.fcoe.resized(export);
        Ok(size)
    }

    /// The access rights of hosts, locked.
    fn rights(&self) -> MutexGuard<'_, Rights> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The links of a target.
#[derive(Default)]
struct Links {
    first: Vec<Box<dyn Link>>,
    /// The same for each further thread.
    further: Vec<Vec<Box<dyn Link>>>,
    /// The ends for questions to everybody.
    beacons: Vec<Box<dyn Link>>,
}

/// Opens the links, or all that there are unless only FCoE is asked for.
fn open_links(args: &ServeArgs, config: &Config, placement: &Placement) -> Result<Links> {
    if config.link.is_empty() && !config.fcoe.is_empty() {
        return Ok(Links::default());
    }
    let end = End::Target { is_found: !config.is_hidden && !args.no_udp_discovery };
    let mut opened = args.link.open_all(&config.link, end, placement)?;
    let beacons = std::mem::take(&mut opened.beacons);
    let first = opened.logged();
    let threads = args.threads.or(config.threads.map(NonZeroU8::get)).unwrap_or(1);
    let names: Vec<_> = first.iter().map(|link| link.name().to_owned()).collect();
    let further = open_again(args, &names, threads, placement)?;
    Ok(Links { first, further, beacons })
}

/// Opens the links once more for each thread but the first.
fn open_again(
    args: &ServeArgs,
    links: &[String],
    threads: u8,
    placement: &Placement,
) -> Result<Vec<Vec<Box<dyn Link>>>> {
    let is_tcp = |link: &&String| Transport::named_by(link) == Some(Transport::Tcp);
    if let Some(link) = links.iter().find(|link| threads > 1 && is_tcp(link)) {
        let message = format!("{link} has one thread: --threads is for Ethernet and UDP");
        return Err(Error::new(Code::Usage, message));
    }
    let open = |_| Ok(args.link.open_all(links, End::TargetThread, placement)?.links);
    (1..threads).map(open).collect()
}

/// Waits for the signal to stop; on SIGHUP looks again at how large the disks are, and who may
/// connect.
fn await_stop(signals: &mut Signals, served: &Served, args: &ServeArgs, exports: &[Export]) {
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        let configured = configured(args)
            .and_then(|config| Ok((Configured::of(&config, served.own_key)?, config)));
        match configured {
            Ok((configured, config)) => {
                served.rights().reconfigure(configured, &served.target);
                served.fcoe.reconfigure(exports, &config);
                tracing::info!("who may connect was read again");
            }
            Err(error) => tracing::error!("who may connect stays as it was: {error}"),
        }
        for (index, export) in exports.iter().enumerate() {
            if let Err(error) = served.resize(index, None) {
                tracing::warn!("export {}: {error}", export.name);
            }
        }
    }
}

fn checked_name(name: &str) -> Result<Name> {
    Name::new(name).filter(|name| !name.is_empty()).ok_or_else(|| {
        let message = format!("`{name}`: a name has 1 to 63 bytes and no control characters");
        Error::new(Code::Usage, message)
    })
}

/// Checks a target's name: its directory has the same name, and is removed when the target ends.
fn target_name(name: &str) -> Result<Name> {
    if name.contains('/') || matches!(name, "." | "..") {
        let message =
            format!("`{name}`: a target's name is also that of a directory: no `/` in it");
        return Err(Error::new(Code::Usage, message));
    }
    checked_name(name)
}

/// Watches for snapshots: the target distrusts its state when its virtual machine was restored to
/// an earlier one.
fn watch_generation(served: &Arc<Served>) {
    let served = Arc::downgrade(served);
    let watched = restore::watch_with(move || {
        if let Some(served) = served.upgrade() {
            tracing::warn!("hosts are told that this machine was restored");
            served.target.distrust(state::nobody());
        }
    });
    if let Err(error) = watched {
        tracing::warn!(%error, "restored snapshots of this machine can't be detected");
    }
}

fn open_exports(
    exports: &[Export],
    accepted: &[String],
    state: &mut State,
) -> Result<Vec<TargetExport>> {
    let mut opened = Vec::<TargetExport>::new();
    for export in exports {
        let name = checked_name(&export.name)?;
        let source = export.source().map_err(|message| Error::new(export.place.code(), message))?;
        let lasts = matches!(source, Source::File(_));
        let (store, identity) = open_store(export, source)?;
        let cached = store.geometry().write_cache;
        let known = if lasts {
            state.add(&Disk {
                name: &export.name,
                path: &export.path,
                identity: identity.as_deref(),
                uuid: export.uuid,
                cached,
                accepted: accepted.contains(&export.name),
            })?
        } else {
            state.add_passing(export.uuid, cached)
        };
        opened.push(TargetExport {
            name,
            uuid: known.uuid,
            generation: known.generation,
            store,
            shared: export.shared,
            last_writer: known.writer,
            allowed: Allowed::default(),
        });
    }
    Ok(opened)
}

/// Opens the store of an export; also returns the identity that its disk reports.
fn open_store(export: &Export, source: Source) -> Result<(Arc<dyn Store>, Option<String>)> {
    let block_size = export.block_size.unwrap_or(512);
    let about = format!("export {}", export.name);
    Ok(match source {
        Source::Memory(size) | Source::Sparse(size) => {
            let store = MemoryStore::new(size, block_size)
                .map_err(|error| refused_memory(export, size, &error))?;
            if source == Source::Memory(size) {
                populate(&store, &about)?;
            }
            let store = if export.read_only { store.read_only() } else { store };
            (Arc::new(store), None)
        }
        Source::Null(size) => {
            let store = NullStore::new(size, block_size).context(export.place.code(), about)?;
            let store = if export.read_only { store.read_only() } else { store };
            (Arc::new(store), None)
        }
        Source::File(path) => {
            let options = FileOptions {
                read_only: export.read_only,
                write_back: export.write_back,
                block_size: export.block_size,
                ..FileOptions::default()
            };
            let store = FileStore::open(path, &options).coded()?;
            let identity = store.identity().map(str::to_owned);
            (Arc::new(store), identity)
        }
    })
}

/// The error for a disk of `size` bytes in memory: the size is invalid or too large.
fn refused_memory(export: &Export, size: u64, error: &io::Error) -> Error {
    let about = format!("export {}", export.name);
    if error.kind() == ErrorKind::InvalidInput {
        return Error::new(export.place.code(), format!("{about}: {error}"));
    }
    let size = bytes(size);
    Error::new(Code::Device, format!("{about}: {size} do not fit into memory: {error}; lower it"))
}

/// Populates a store's memory now, so that first writes are as fast as later ones.
fn populate(store: &MemoryStore, about: &str) -> Result<()> {
    let (began, size) = (Instant::now(), bytes(store.geometry().size));
    store.populate().map_err(|error| {
        let remedy = "lower it, or write sparse:SIZE to take memory only as it is written";
        Error::new(
            Code::Device,
            format!("{about}: cannot take {size} of memory: {error}; {remedy}"),
        )
    })?;
    let took = began.elapsed();
    if took > POPULATE_QUIET {
        tracing::info!("{about}: took {size} of memory in {:.1} s", took.as_secs_f64());
    }
    Ok(())
}
