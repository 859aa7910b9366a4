//! `tyche serve`: export disks.

mod access;
mod admins;
mod answers;
mod by;
mod changes;
mod check;
mod complaints;
pub(crate) mod config;
mod conflict;
mod control_port;
mod disks;
mod exports;
mod fcoe;
mod host_changes;
mod hosts;
mod late;
mod link_changes;
mod links;
mod names;
mod own_keys;
mod plan;
pub(crate) mod pool;
mod pool_files;
mod pool_usage;
pub(crate) mod reading;
mod reload;
mod rename;
mod settings;
mod state;
mod vlan;
mod volumes;

use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tyche_engine::restore;
use tyche_fcoe::fc::network::Mode;
use tyche_native::{Target, TargetOptions};
use tyche_proto::wire::Name;
use tyche_proto::{ExportKey, TargetConfig};
use tyche_session::fcoe::parse_mode;
use uuid::Uuid;

use crate::output::{Format, announce};
use crate::shared::complete;
use crate::shared::control::{self, ControlAnswer};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::fcoe::e_d_tov;
use crate::shared::links::LinkArgs;
use crate::shared::log;
use crate::shared::looks::Looks;
use crate::shared::panics;
use crate::shared::placement::PlacementArgs;
use crate::shared::report::{KnownHosts, TargetReport};
use crate::shared::runtime::{self, RuntimeDir};
use access::{Configured, Rights};
use admins::Admins;
use by::By;
use changes::Added;
use config::{Auth, Config, Export, FcoePort, Host, Initiators};
use disks::MissingDisk;
use exports::Exports;
use fcoe::Fcoe;
use links::{LinkTable, Opener};
use own_keys::OwnKeys;
use reload::Reloader;
use state::State;
use vlan::Vlan;

/// Export disks to hosts on this Ethernet. Runs until it is stopped.
///
/// The command line suffices for one disk; for more, or for access lists, write a TOML file:
///
///   name = "store1"            # default: the host's name
///   link = ["eth0", "eth1"]    # or "udp:0.0.0.0"; default: all interfaces, when they come up
///   threads = 2                # for each interface; default: 1
///   fcoe_vlan = ["eth2:100"]   # hosts that ask on eth2 are told that its VLAN 100 has FCoE
///   udp_discovery = true       # false: only hosts that know a udp: address find it there
///   key = "/etc/tyche/key"     # of this target, [present, next] while it is changed; then only
///                              # these hosts may connect:
///   silent = false             # true: no answer to those who do not know this target's key
///   control = "tcp:ADDRESS:8652"   # of this machine: admins ask there, by `tyche .. --at`
///   [[host]]
///   name = "vmhost1"
///   key = "tyche_..."          # or several: ["tyche_...", "tyche_..."]
///   iops = 10000               # limit of its requests; default: none
///   bytes_per_second = "200M"  # the same for what it reads and writes
///   [[admin]]
///   name = "ops"
///   key = "tyche_..."          # not that of a host
///   read_only = false          # true: may look, and change nothing
///   [[fcoe]]                   # Fibre Channel over Ethernet, for other makes as well
///   link = "eth2"
///   mode = "vn2vn"             # default; "fabric" if switches for FCoE are there
///   [[pool]]                   # for `tyche export add --pool`, `export snapshot`, `export clone`
///   name = "fast"
///   path = "dir:/srv/vols"     # snapshots need XFS or btrfs; or "lvm-thin:VG/POOL"
///   [[export]]
///   name = "vm1"
///   path = "/srv/vm1.img"      # or a block device, mem:1G, sparse:1T, null:1T
///   write_back = false         # true: faster, durable only when the host flushes
///   read_only = false
///   block_size = 4096          # or 512
///   iops = 50000               # limits of all hosts together, as those of a host
///   allow = ["vmhost1"]        # default: every [[host]]
///   hosts = ["UUID"]           # without keys: who may connect; default: everybody
///   initiators = ["WWPN"]      # the same for FCoE, or "any": one of them with a key
///
/// The identity and the last writer of each export are kept in /var/lib/tyche. An export whose file
/// or device was replaced is refused, until --accept-changed-disk accepts the new one.
///
/// SIGHUP makes it check the sizes of its files again and tell the hosts, and read the file again:
/// sessions of hosts that may not connect any more are ended, and ports of FCoE do not see the
/// export any more; other limits hold; new exports and links are served; exports that are gone and
/// not connected are not, nor are links that are gone. What takes a restart is logged, and a file
/// with a mistake changes nothing; `--check` says both beforehand. Write the file under another
/// name and rename it, so that it is always whole. `tyche export` adds, removes and enlarges
/// exports, `tyche link` adds and removes links, and `tyche host` hosts, while it runs.
#[derive(Args, Clone, Debug)]
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

    /// Serve nothing: say whether the file of --config is valid and, if the target of that name
    /// runs on this machine, what it would do if it read that file (SIGHUP), and what takes a
    /// restart. Exit code 8 if there is a mistake. Disks are not opened. It reads the target's key,
    /// and asks the target, and LVM about thin pools, as root.
    #[arg(long, requires = "config")]
    check: bool,

    /// How to print the result of --check.
    #[arg(short, long, default_value_t, requires = "check")]
    pub(crate) output: Format,

    /// Interface to serve on, or udp:, tcp: or rdma:ADDRESS:PORT to listen at; may be
    /// repeated. By default all interfaces that are up, or come up later, except members of a
    /// bridge or bond.
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
    /// socket of its own. More than one pays for hosts with several queues, and for many hosts. An
    /// interface of --fcoe has 1, 2, 4, 8 or 16 threads: the most of these.
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
    if let (true, Some(path)) = (args.check, &args.config) {
        return check::run(args, path);
    }
    let config = configured(args)?;
    let (name, checked) = own_name(args, &config)?;
    log::open_journal(&name);
    // Before signals are caught: a file may be a pipe that never ends.
    let own_keys = OwnKeys::read(&config)?;
    let whose = format!("a target named {name} (give another --name)");
    let dir = RuntimeDir::take(runtime::targets().join(&name), &whose)?;
    let mut state = State::open(&name, Fcoe::is_alone(&config));
    let (exports, links) = (state.added()?, state.added_links()?);
    let added = Added { exports, links, hosts: state.added_hosts()? };
    let settled = Mutex::new(state);
    let all = || config.export.iter().chain(&added.exports);
    pool_files::settle(&settled, &all().collect::<Vec<_>>());
    let mut state = settled.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.forget_removed(all());
    state.finish_killed_renames()?;
    let (config, left_out) = changes::with_added(config, added, &own_keys)?;
    changes::warn_of(&left_out);
    if config.export.is_empty() && args.config.is_none() {
        let message = "nothing to export: give --export NAME=PATH or --config FILE";
        return Err(Error::new(Code::Usage, message));
    }
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (served, missing_disks) = start(args, config, (name, checked), own_keys, state)?;
    let described = served.exports.described();
    let interfaces = [served.links().own_names(), served.exports.fcoe.described()].concat();
    let served = Arc::new(served);
    disks::await_missing(missing_disks, &served)?;
    late::watch(&served)?;
    watch_generation(&served);
    control_port::open(&served)?;
    let reloader = Reloader::start(&served)?;
    let socket = dir.path().join(runtime::CONTROL);
    let dir = Arc::new(Mutex::new(Some(dir)));
    answer_at(&socket, &dir, &served)?;
    tell_ready(&served.exports.name, &described, &interfaces);
    await_stop(&mut signals, &reloader);
    tracing::info!("stopping");
    served.stop();
    drop(served);
    drop(dir.lock().unwrap_or_else(PoisonError::into_inner).take());
    Ok(())
}

/// Starts the target with these names; returns the disks that are missing as well.
fn start(
    args: &ServeArgs,
    config: Config,
    (name, checked): (String, Name),
    own_keys: OwnKeys,
    state: State,
) -> Result<(Served, Vec<(ExportKey, MissingDisk)>)> {
    let target = target_config(args, &config, (state.target(&name)?, checked));
    let uuid = target.uuid;
    let configured = Configured::of(&config, &own_keys.public())?;
    let rights = Rights::new(&name, configured, state.decisions()?);
    let opener = Arc::new(Opener::new(args, &config, args.placement.placement()?));
    let fcoe = Fcoe::new(args.link.clone(), opener.threads(), state.n_port_ids());
    let state = Arc::new(Mutex::new(state));
    let (remember_writer, renew_generation) = State::callbacks(&state);
    // Exports first, then links: no host finds it without them.
    let target = Target::start(TargetOptions {
        target,
        keys: own_keys.for_target(),
        silent: config.is_silent,
        access: rights.access(),
        exports: Vec::new(),
        links: Vec::new(),
        further_threads: Vec::new(),
        beacons: Vec::new(),
        placement: opener.placement().clone(),
        ethertype: args.link.ethertype,
        spin: args.link.spin(),
        remember_writer,
        renew_generation,
    })?;
    let (link, current) = (args.link.clone(), Mutex::new(config.clone()));
    let changing = Mutex::default();
    let exports = Exports { name, fcoe, target, state, config, current, changing, link };
    let missing_disks = exports.open_all(&args.accepted, &rights)?;
    exports.set_limits(&exports.config);
    let mut table = LinkTable::default();
    table.serve(&exports.target, opener.open()?)?;
    table.missing.extend(exports.fcoe.start(&exports.config)?);
    let admins = Admins::new(&exports.config.admin);
    let served = Served {
        uuid,
        exports,
        opener,
        rights: Mutex::new(rights),
        own_keys,
        links: Mutex::new(table),
        admins,
        pools: pool_usage::Looks::default(),
        reports: Looks::default(),
        known_hosts: Looks::default(),
        args: args.clone(),
        is_stopping: AtomicBool::new(false),
    };
    Ok((served, missing_disks))
}

fn target_config(args: &ServeArgs, config: &Config, (uuid, name): (Uuid, Name)) -> TargetConfig {
    TargetConfig {
        uuid,
        name,
        queue_size_max: config.limits.queue_size,
        damq_pages_max: (config.limits.data_queue.as_u64() / 4096) as u32,
        memory_pages: config.limits.memory.as_u64() / 4096,
        batch: args.link.batch(),
    }
}

/// Tells user and supervisor what is served.
fn tell_ready(name: &str, exports: &[String], interfaces: &[String]) {
    let on = if interfaces.is_empty() { "no interface yet" } else { &interfaces.join(", ") };
    let what = if exports.is_empty() { "no export yet" } else { &exports.join(", ") };
    let serving = format!("serving {what} on {on} as {name}");
    if let Err(error) = announce(&format!("tyche: {serving}\n")) {
        tracing::warn!("{serving}, which can't be printed: {error}");
    }
    // Fails only if the supervisor that asked for it is gone.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
}

/// The target's name: the one that it was given, or the machine's.
fn own_name(args: &ServeArgs, config: &Config) -> Result<(String, Name)> {
    let is_configured = args.name.is_none() && config.name.is_some();
    let code = if is_configured { Code::Config } else { Code::Usage };
    let given = args.name.clone().or(config.name.clone());
    let hint = if given.is_some() { "" } else { "; it is this machine's: give --name" };
    let name = given.unwrap_or_else(tyche_session::host_name);
    let checked = target_name(&name)
        .map_err(|Error { message, .. }| Error { code, message: message + hint })?;
    Ok((name, checked))
}

/// Answers requests at a control socket in `dir`, as long as the target runs.
fn answer_at(
    socket: &Path,
    dir: &Arc<Mutex<Option<RuntimeDir>>>,
    served: &Arc<Served>,
) -> Result<()> {
    let (answering, dir) = (Arc::downgrade(served), Arc::clone(dir));
    let removed = move || {
        let mut dir = dir.lock().unwrap_or_else(PoisonError::into_inner);
        let restored = dir.as_mut().map_or(Ok(false), RuntimeDir::restore);
        restored.inspect_err(|error| tracing::debug!(%error, "run-time directory")).is_ok()
    };
    control::serve(socket, removed, move |request, asker| match answering.upgrade() {
        Some(served) => answers::answer(served, &request, &By::User(asker.uid())),
        None => ControlAnswer::refused(Code::Other, "the target is stopping"),
    })
    .context(Code::Other, "control socket")
}

/// The configuration at the start, of the file and of the command line.
fn configured(args: &ServeArgs) -> Result<Config> {
    let file = args.config.as_deref().map(reading::read_at_start).transpose()?;
    merged(args, file.unwrap_or_default())
}

/// The configuration of a file, with what the command line adds to it.
fn merged(args: &ServeArgs, mut config: Config) -> Result<Config> {
    config.name = args.name.clone().or(config.name);
    config.threads = args.threads.and_then(NonZeroU8::new).or(config.threads);
    config.is_hidden |= args.no_udp_discovery;
    let links = args.links.iter().filter(|link| !config.link.contains(link));
    config.link.extend(links.cloned().collect::<Vec<_>>());
    let port = |link: &String| FcoePort::new(link.clone(), args.fcoe_mode, args.e_d_tov);
    config.fcoe.extend(args.fcoe.iter().map(port));
    config.fcoe_vlan.extend(args.fcoe_vlans.iter().cloned());
    config.host.extend(args.hosts.iter().cloned());
    config.key = args.key.clone().map_or(config.key, |key| vec![key]);
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
    config.check_names(&args.accepted)?;
    changes::check(&config)?;
    Ok(config)
}

/// The running target.
struct Served {
    /// The target's UUID.
    uuid: Uuid,
    exports: Exports,
    opener: Arc<Opener>,
    rights: Mutex<Rights>,
    /// Its keys, if it has any.
    own_keys: OwnKeys,
    links: Mutex<LinkTable>,
    /// Those who may ask it from elsewhere.
    admins: Admins,
    /// How full its pools are.
    pools: pool_usage::Looks,
    /// Its reports.
    reports: Looks<TargetReport>,
    /// Its reports on the hosts that it knows by their keys.
    known_hosts: Looks<KnownHosts>,
    /// Its command line.
    args: ServeArgs,
    is_stopping: AtomicBool,
}

impl Served {
    /// Its links, locked. Not to be held while something is waited for.
    fn links(&self) -> MutexGuard<'_, LinkTable> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The access rights of hosts, locked.
    fn rights(&self) -> MutexGuard<'_, Rights> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the target is to end: no step of a change is begun any more.
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Ends all sessions in an orderly way, whoever is still changing something.
    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.exports.stop();
    }
}

/// Waits for the signal to stop; on SIGHUP has the configuration read again. Nothing else is waited
/// for here: the target can be stopped at any time.
fn await_stop(signals: &mut Signals, reloader: &Reloader) {
    for signal in signals.forever() {
        if signal != SIGHUP {
            return;
        }
        reloader.request();
    }
}

fn checked_name(name: &str) -> Result<Name> {
    Name::new(name).filter(|name| !name.is_empty()).ok_or_else(|| {
        let name = name.escape_debug();
        let message =
            format!("`{name}`: a name has 1 to 63 bytes, and no characters that are not shown");
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
            served.exports.target.distrust(state::nobody());
        }
    });
    if let Err(error) = watched {
        tracing::warn!(%error, "restored snapshots of this machine can't be detected");
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn refused(arguments: &[&str]) -> Error {
        let command = ServeArgs::augment_args(Command::new("serve")).no_binary_name(true);
        let matches = command.try_get_matches_from(arguments).unwrap();
        configured(&ServeArgs::from_arg_matches(&matches).unwrap()).unwrap_err()
    }

    #[test]
    fn an_export_that_is_to_be_accepted_is_one() {
        let error = refused(&["--export", "a=mem:1M", "--accept-changed-disk", "b"]);
        assert_eq!(error.code, Code::Usage);
        assert!(error.message.contains("there is no such export"), "{error}");
    }
}
