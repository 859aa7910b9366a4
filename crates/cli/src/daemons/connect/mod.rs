//! `tyche connect`: get a disk.
//!
//! The command starts a daemon, one for each session, and waits until it reports that the device is
//! usable, or why not. With `--foreground` the command is the daemon.

mod adopt;
mod checks;
mod connection;
mod daemon;
mod device;
mod entry;
pub(crate) mod fcoe;
mod first_contact;
mod inputs;
mod last_error;
mod late;
mod leash;
mod leave;
mod memory;
mod options;
mod orders;
mod predecessor;
mod refusal;
mod retry;
mod revival;
mod session;
mod signals;
mod start;
mod target_key;
mod trust;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, ChildStdout, Stdio};
use std::time::Duration;

use clap::{Args, Command, Id};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tyche_proto::ExportState;
use uuid::Uuid;

pub(crate) use entry::Entry;
pub(crate) use fcoe::FcoeArgs;
pub(crate) use refusal::Search;
pub(crate) use session::SessionArgs;

use crate::output::{Format, remark, show};
use crate::shared::attach::Kind;
use crate::shared::changed::Changed;
use crate::shared::control::parse_answer;
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::links::mtu;
use crate::shared::report::{ConnectReport, Output, SessionLink};
use crate::shared::seconds::positive;
use crate::shared::tab::{self, Tab};

/// The identity of a session, and the device that it is for.
pub(crate) struct SessionIdentity {
    pub(crate) session: Uuid,
    pub(crate) device: Uuid,
    /// The disk, as the former session of the device knew it.
    pub(crate) resumes: Option<ExportState>,
}

/// A link that is missing, and why.
#[derive(Clone, Debug)]
pub(crate) struct MissingLink {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// Connect an export and make it a block device of this machine.
///
/// Prints the device's path and returns when it is usable; a daemon stays behind for as long as
/// the export is connected (`tyche disconnect` ends it).
#[derive(Args, Clone, Debug)]
pub struct ConnectArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,

    #[command(flatten)]
    fcoe: FcoeArgs,

    /// Take the options from the line of that export in tychetab(5), or in another such file. Of
    /// the other options, only --foreground, --retry and --output are allowed then.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
        default_missing_value = tab::PATH, conflicts_with_all = OF_A_SESSION)]
    tab: Option<PathBuf>,

    #[command(flatten)]
    device: DeviceArgs,

    /// Stay in the foreground, for a supervisor. SIGTERM disconnects unless the device is in use.
    /// So does Ctrl-C (SIGINT); a second one disconnects in any case.
    #[arg(long)]
    foreground: bool,

    /// If connecting fails, try again after this many seconds, for ever, unless the options are
    /// wrong or a privilege is missing.
    #[arg(long, value_name = "SECONDS", requires = "foreground", value_parser = positive)]
    retry: Option<f64>,

    /// Be the daemon that another `tyche connect` waits for.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    daemon: bool,

    /// Be that daemon again, with its device, after `tyche reload`.
    #[arg(long, hide = true, requires = "daemon")]
    reloaded: bool,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// Options of the device.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArgs {
    /// Kind of device, file or socket to make.
    #[arg(long = "as", value_name = "KIND", default_value = "auto")]
    pub(super) kind: Kind,

    /// Path of the socket, with --as nbd-socket or vhost-user. The default for vhost-user is
    /// /run/tyche/sockets/EXPORT.sock.
    #[arg(long, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,

    /// Let the device grow while it is in use, also as ublk on Linux before 6.16: a device of the
    /// device mapper is put on top, on which the kernel looks for no partitions (kpartx does). All
    /// other block devices can grow in any case.
    #[arg(long)]
    pub(super) growable: bool,
}

/// Seconds between two attempts of a reloaded daemon.
const RELOAD_RETRY: f64 = 1.0;
/// Time that a daemon may take to make its device, beside the time to connect.
const START: Duration = Duration::from_secs(60);

/// Groups of the options that a line of tychetab replaces: all that are about the session.
const OF_A_SESSION: [&str; 6] =
    ["CommonArgs", "NativeArgs", "FcoeArgs", "LinkArgs", "PlacementArgs", "DeviceArgs"];

/// Whether an argument of the command is an option of a session.
fn is_of_a_session(command: &Command, argument: &Id) -> bool {
    let mut groups = command.get_groups().filter(|it| OF_A_SESSION.contains(&it.get_id().as_str()));
    groups.any(|group| group.get_args().any(|it| it == argument))
}

impl ConnectArgs {
    /// The arguments, with those of the export's line in tychetab if `--tab` is given. Paths are
    /// absolute: the daemon leaves the directory that it is started in.
    fn resolved(&self) -> Result<Self> {
        let mut args = self.listed()?;
        for path in [&mut args.session.native.key, &mut args.device.socket].into_iter().flatten() {
            *path = leave::absolute(path)?;
        }
        Ok(args)
    }

    fn listed(&self) -> Result<Self> {
        let Some(path) = &self.tab else { return Ok(self.clone()) };
        let path = leave::absolute(path)?;
        let listed = Entry::of(&Tab::read(&path)?.line(&self.session.export)?)?.connect;
        let Self { foreground, retry, daemon, reloaded, output, .. } = *self;
        let session = SessionArgs { approved_key: self.session.approved_key, ..listed.session };
        let tab = Some(path);
        Ok(Self { session, tab, foreground, retry, daemon, reloaded, output, ..listed })
    }

    /// Checks that a daemon which is started with these arguments now would get to connecting, to
    /// this target: the line in tychetab and the keys may have changed since they were read.
    fn check_anew(&self, target: Option<Uuid>, changed: &Changed) -> Result<()> {
        self.resolved()?.settled(target, changed)?.session.keys().map(drop)
    }

    /// Time limit for connecting.
    pub(crate) fn timeout(&self) -> Duration {
        self.session.timeout()
    }

    /// The arguments, with the key that the target has to prove; FCoE has no keys. `before`: UUID
    /// of the target that the device is connected to already, and what has changed since.
    fn settled(&self, before: Option<Uuid>, changed: &Changed) -> Result<Self> {
        let mut session = match self.fcoe.is_wanted() {
            true => self.session.clone(),
            false => self.session.settled(before)?,
        };
        session.renew(changed);
        Ok(Self { session, ..self.clone() })
    }
}

/// The path of this program, whose name `ps` shows; /proc/self/exe if it was replaced meanwhile.
fn program() -> PathBuf {
    let named = std::env::current_exe().ok().filter(|path| path.exists());
    named.unwrap_or_else(|| "/proc/self/exe".into())
}

/// The program that is installed now where this one was started from, which may have been replaced.
fn installed() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?;
    // The kernel's word for a file whose name is gone, or another's.
    let name = path.to_str()?.trim_end_matches(" (deleted)");
    Some(PathBuf::from(name)).filter(|path| path.is_file())
}

pub(crate) fn run(args: &ConnectArgs) -> Result<()> {
    // Before the line in tychetab is read: the daemon that is there does without.
    if args.foreground && adopt::give_back(&args.session.export)? {
        return Ok(());
    }
    let mut args = args.resolved()?;
    if !args.daemon {
        args.session.ask_for_key()?;
    }
    let args = &args;
    // The device that waits for a reloaded daemon has no other.
    let pause = args.retry.or_else(|| args.reloaded.then_some(RELOAD_RETRY));
    if pause.is_some() || args.daemon || args.foreground {
        let pause = pause.map(Duration::from_secs_f64);
        let done = pause.map_or_else(|| daemon::run(args, args.daemon), |it| retry::run(args, it));
        // A detached daemon has told whoever asked for it.
        let told =
            |error| if args.daemon { Error { message: String::new(), ..error } } else { error };
        return done.map_err(told);
    }
    // Warnings about --affinity are printed here: the daemon would write them to its log.
    args.session.placement.placement()?;
    let mut given = std::env::args_os().skip(1);
    let approved = args.session.approved_key;
    let approved = approved.map(|key| OsString::from(format!("--approved-key={key}")));
    let report = {
        let arguments = given.next().into_iter().chain(approved).chain(given);
        start_daemon(arguments, args.session.timeout())?
    };
    for warning in &report.warnings {
        remark(format_args!("tyche: {warning}"));
    }
    args.session.tell_kept();
    let device = report.session.device();
    show(args.output, || Output::Connect(report), || format!("{device}\n"))
}

/// Starts a daemon with the arguments of a `tyche connect`, the command's name first, and waits
/// until it reports that the device is usable. It may take `timeout` to connect.
///
/// # Errors
/// The daemon's own, if the device does not become usable.
pub(crate) fn start_daemon(
    arguments: impl IntoIterator<Item = OsString>,
    timeout: Duration,
) -> Result<Box<ConnectReport>> {
    // Of our caller's descriptors the daemon inherits only the standard streams, and keeps them
    // until it has answered: a process that waits for a pipe to end, or for a lock, must not wait
    // for the daemon.
    tyche_attach::keep_from_children().context(Code::Other, "close_range")?;
    let mut arguments = arguments.into_iter();
    let mut child = process::Command::new(program())
        .arg0("tyche")
        .args(arguments.next())
        .arg("--daemon")
        .args(arguments)
        // See `leash`: kept until the daemon has reported.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context(Code::Other, "start the daemon")?;
    let stdout = child.stdout.take().expect("piped above");
    let limit = timeout + START;
    if !is_readable(&stdout, limit)? {
        let _ = child.kill();
        let (pid, limit) = (child.id(), limit.as_secs_f64());
        let message = format!(
            "the daemon (process {pid}) has not reported within {limit} s: it was stopped or \
             stuck, and is killed"
        );
        return Err(Error::new(Code::Unreachable, message));
    }
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context(Code::Other, "read the daemon's report")?;
    match parse_answer(&line) {
        Ok(Ok(Output::Connect(report))) => Ok(report),
        Ok(Err(error)) => {
            // It has no more output, but must be gone before the next attempt.
            let _ = child.wait();
            Err(error)
        }
        Ok(Ok(_)) | Err(_) => {
            let status = child.wait().context(Code::Other, "wait for the daemon")?;
            Err(Error::new(Code::Other, format!("the daemon died ({status})")))
        }
    }
}

/// Waits for output; false if there is none in time.
fn is_readable(output: &ChildStdout, limit: Duration) -> Result<bool> {
    let limit = Timespec::try_from(limit).ok();
    let mut output = [PollFd::new(output, PollFlags::IN)];
    loop {
        match poll(&mut output, limit.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready.map_err(std::io::Error::from)? > 0),
        }
    }
}

/// Warnings about links whose path takes shorter frames than the local interface: found by probing,
/// and worked around.
fn narrow_links(links: &[SessionLink]) -> Vec<String> {
    let narrow = |link: &SessionLink| {
        let SessionLink { interface, frame_len: found, frame_len_max: own, .. } = link;
        (*found > 0 && found < own).then(|| {
            format!(
                "{interface} has an MTU of {} (frames of {own} bytes), but the way to the target \
                 drops frames longer than {found}: the target's interface or a switch has a \
                 smaller MTU. Frames of {found} bytes are used instead, which costs speed",
                mtu(*own)
            )
        })
    };
    links.iter().filter_map(narrow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_line_of_tychetab_can_say_is_not_said_beside_it() {
        let command = ConnectArgs::augment_args(Command::new("connect"));
        let ids = command.get_arguments().map(clap::Arg::get_id);
        let beside: Vec<_> =
            ids.filter(|id| !is_of_a_session(&command, id)).map(Id::as_str).collect();
        let wanted = [
            "export",
            "approved_key",
            "tab",
            "foreground",
            "retry",
            "daemon",
            "reloaded",
            "output",
        ];
        assert_eq!(beside, wanted, "each other option is in a group of OF_A_SESSION");
        let parse = |arguments: &[&str]| {
            let command = command.clone().no_binary_name(true);
            command.try_get_matches_from(arguments).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(parse(&["vm1", "--tab", "--foreground", "--retry=1", "-o", "json"]), Ok(()));
        assert_eq!(parse(&["vm1", "--tab=x"]), Ok(()));
        for option in ["--read-only", "--link=eth0", "--as=fuse", "--spin=1"] {
            let conflict = clap::error::ErrorKind::ArgumentConflict;
            assert_eq!(parse(&["vm1", "--tab", option]), Err(conflict), "{option}");
        }
    }
}
