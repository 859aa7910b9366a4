//! The driver as a process: its socket, its parts, its end.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tracing_subscriber::EnvFilter;
use tyche_console::error::{Code, Context, Error, Result};

use crate::controller::Controller;
use crate::locks::Locks;
use crate::node::{Keeper, Node, Sessions};
use crate::options::{Mode, Options, SessionKeeper};
use crate::proto::controller_server::ControllerServer;
use crate::proto::identity_server::IdentityServer;
use crate::proto::node_server::NodeServer;
use crate::services::{ControllerService, IdentityService, NodeService};
use crate::tyche::Tyche;

/// Requests at work at a time; others wait.
const REQUESTS_MAX: usize = 64;
/// The command that runs a program on the host: in the namespaces of its first process, but for
/// that of PIDs, which is shared.
const ON_HOST: [&str; 8] = ["nsenter", "--target", "1", "--mount", "--uts", "--ipc", "--net", "--"];
/// The root directory of the first process, and where it sees that systemd is the init system.
const SYSTEMD: [&str; 2] = ["/proc/1/root", "run/systemd/system"];

/// Runs the driver until it gets SIGTERM or SIGINT. What it is at work with then can be repeated.
///
/// # Errors
/// It can't be set up, or its socket is gone.
pub fn run(options: &Options) -> Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_ansi(false).init();
    let has = |mode| options.mode == Mode::All || options.mode == mode;
    let controller = has(Mode::Controller).then(|| controller(options)).transpose()?.map(Arc::new);
    let node = has(Mode::Node).then(|| node(options)).transpose()?.map(Arc::new);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(REQUESTS_MAX)
        .build()?;
    let served = runtime.block_on(serve(&options.endpoint, controller, node));
    runtime.shutdown_background();
    served
}

fn controller(options: &Options) -> Result<Controller> {
    let tyche = Tyche::new(vec![options.tyche.clone().into()]);
    let (key, targets) = (options.key.clone(), options.targets.clone());
    Ok(Controller::new(tyche, key, targets, locks(options, "controller")?))
}

/// The locks of a half of the driver.
fn locks(options: &Options, half: &str) -> Result<Locks> {
    let dir = options.locks.join(half);
    Locks::new(&dir).context(Code::Other, dir.display())
}

fn node(options: &Options) -> Result<Node> {
    let keeper = match options.sessions {
        SessionKeeper::Systemd => Keeper::Systemd,
        SessionKeeper::Auto if PathBuf::from_iter(SYSTEMD).exists() => Keeper::Systemd,
        SessionKeeper::Auto | SessionKeeper::Daemon => Keeper::Daemon,
    };
    let command: Vec<OsString> = match keeper {
        Keeper::Daemon => vec![options.tyche.clone().into()],
        Keeper::Systemd => {
            let installed = install(&options.tyche, &options.install)?;
            ON_HOST.map(OsString::from).into_iter().chain([installed.into()]).collect()
        }
    };
    let (key, kind) = (options.node_key.clone(), options.kind.clone());
    let sessions = Sessions::new(Tyche::new(command), keeper, key, kind);
    let made = sessions.public_key();
    made.map_err(|error| Error::new(Code::Other, error.message().to_owned()))?;
    let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = options.node_name.clone().unwrap_or_else(machine);
    Ok(Node::new(name, sessions, locks(options, "node")?))
}

/// Copies the program to the host, and returns its path there. Sessions go on with the former one.
fn install(program: &Path, dir: &Path) -> Result<PathBuf> {
    let found = find(program)?;
    let (path, aside) = (dir.join("tyche"), dir.join("tyche.new"));
    let copied = fs::create_dir_all(dir).and_then(|()| {
        fs::copy(&found, &aside)?;
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o755))?;
        fs::rename(&aside, &path)
    });
    copied.context(Code::Other, format_args!("copy {} to {}", found.display(), path.display()))?;
    Ok(path)
}

/// The path of a program.
fn find(program: &Path) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|dir| dir.join(program));
    let missing = || Error::new(Code::NotFound, format!("there is no {}", program.display()));
    found.find(|it| it.is_file()).ok_or_else(missing)
}

async fn serve(
    endpoint: &Path,
    controller: Option<Arc<Controller>>,
    node: Option<Arc<Node>>,
) -> Result<()> {
    let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let listener = listen(endpoint).context(Code::Other, endpoint.display())?;
    tracing::info!("{} answers at {}", env!("CARGO_PKG_NAME"), endpoint.display());
    let server = Server::builder()
        .concurrency_limit_per_connection(REQUESTS_MAX)
        .add_service(IdentityServer::new(IdentityService))
        .add_optional_service(controller.map(|it| ControllerServer::new(ControllerService(it))))
        .add_optional_service(node.map(|it| NodeServer::new(NodeService(it))));
    let [terminate, interrupt] = &mut ends;
    tokio::select! {
        served = server.serve_with_incoming(UnixListenerStream::new(listener)) => {
            served.context(Code::Other, "the server")
        }
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// A socket at that path, in the place of one that a former driver has left.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}
