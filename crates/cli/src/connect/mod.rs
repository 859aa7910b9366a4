//! `tyche connect`: get a disk.
//!
//! The command starts a daemon, one for each session, and waits until it says that the device is
//! usable, or why not. With `--foreground` the command is the daemon.

mod attach;
mod daemon;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use serde_json::Value;
use tyche_proto::wire::Mac;
use uuid::Uuid;

pub(crate) use attach::clean_stale;

use crate::error::{Code, Context, Error, Result};
use crate::links::LinkArgs;
use crate::output::{Format, show};

/// Connect an export and make it a block device of this machine.
///
/// Prints the device's path and returns when it is usable; a daemon stays behind for as long as
/// the export is connected (`tyche disconnect` ends it).
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectArgs {
    /// Name of the export, as `tyche discover` lists it.
    pub(crate) export: String,

    /// Interface that reaches the target. By default the only one that is up.
    #[arg(long = "link", value_name = "INTERFACE")]
    pub(crate) links: Vec<String>,

    /// The target's Ethernet address; by default it is asked for by broadcast.
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub(crate) target: Option<Mac>,

    /// What to make of it.
    #[arg(long = "as", value_name = "KIND", default_value = "loop")]
    pub(crate) kind: Kind,

    /// Never write. Another host may write at the same time; what it writes may go unseen.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Requests in flight at once, 1 to 1024.
    #[arg(long, value_name = "NUMBER", default_value_t = 128,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) queue_size: u16,

    /// Silence after which the target is taken for lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = keep_alive)]
    pub(crate) keep_alive_tmo: f64,

    /// Pause between two attempts to reach a lost target.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = positive)]
    pub(crate) reconnect_delay: f64,

    /// How long requests wait for a lost target before they fail with EIO; -1: for ever.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, allow_negative_numbers = true)]
    pub(crate) ctrl_loss_tmo: i64,

    /// How long to try before giving up on connecting at all.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    pub(crate) timeout: f64,

    /// Do not cover data with checksums (headers and commands always are).
    #[arg(long)]
    pub(crate) no_checksum: bool,

    /// Be this host rather than this machine.
    #[arg(long, value_name = "UUID")]
    pub(crate) host_id: Option<Uuid>,

    /// Name of this host that the target shows to others.
    #[arg(long, value_name = "NAME")]
    pub(crate) host_name: Option<String>,

    /// Stay in the foreground, for a supervisor. SIGTERM disconnects unless the device is in
    /// use; a second one does in any case.
    #[arg(long)]
    pub(crate) foreground: bool,

    /// Be the daemon that another `tyche connect` waits for.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    daemon: bool,

    #[command(flatten)]
    pub(crate) link: LinkArgs,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// What the export becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A loop device: a block device on any kernel.
    Loop,
    /// A file in a FUSE file system.
    Fuse,
    /// An NBD server on a Unix socket, for QEMU, nbdcopy, fio and others.
    NbdSocket,
}

fn mac(text: &str) -> Result<Mac, String> {
    Mac::parse(text).ok_or_else(|| "an address looks like 02:00:5e:10:00:01".into())
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number < 1e9 => Ok(number),
        _ => Err("a number of seconds greater than 0".into()),
    }
}

fn keep_alive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.1..=3600.0).contains(&number) => Ok(number),
        _ => Err("0.1 to 3600 seconds".into()),
    }
}

pub(crate) fn run(args: &ConnectArgs) -> Result<()> {
    if args.daemon || args.foreground {
        return daemon::run(args, args.daemon);
    }
    let mut child = Command::new("/proc/self/exe")
        .arg0("tyche")
        .args(std::env::args_os().skip(1))
        .arg("--daemon")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context(Code::Other, "start the daemon")?;
    let stdout = child.stdout.take().expect("piped above");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context(Code::Other, "hear of the daemon")?;
    let Ok(value) = serde_json::from_str::<Value>(&line) else {
        let status = child.wait().context(Code::Other, "wait for the daemon")?;
        return Err(Error::new(Code::Other, format!("the daemon died ({status})")));
    };
    if let Some(message) = value["error"].as_str() {
        let code = Code::from_name(value["code"].as_str().unwrap_or_default());
        // It has nothing more to say, but must be gone before anybody tries again.
        let _ = child.wait();
        return Err(Error::new(code, message));
    }
    let device = value["device"].as_str().unwrap_or_default().to_owned();
    show(args.output, || value, || format!("{device}\n"));
    Ok(())
}
