//! `tyche connect`: get a disk.
//!
//! The command starts a daemon, one for each session, and waits until it says that the device is
//! usable, or why not. With `--foreground` the command is the daemon.

mod daemon;
mod device_name;
mod former;
mod orders;
mod session;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;

pub(crate) use session::{SessionArgs, positive};

use crate::attach::Kind;
use crate::error::{Code, Context, Error, Result};
use crate::output::{Format, show};

/// Connect an export and make it a block device of this machine.
///
/// Prints the device's path and returns when it is usable; a daemon stays behind for as long as
/// the export is connected (`tyche disconnect` ends it).
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    session: SessionArgs,

    /// What to make of it.
    #[arg(long = "as", value_name = "KIND", default_value = "auto")]
    kind: Kind,

    /// Queues of the block device, 1 to 64, where it can have several. One is served by the thread
    /// that talks to the target, without any hand-over; more have a thread each, which pays where
    /// copying is what takes the time.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,

    /// Stay in the foreground, for a supervisor. SIGTERM disconnects unless the device is in
    /// use; a second one does in any case.
    #[arg(long)]
    foreground: bool,

    /// Be the daemon that another `tyche connect` waits for.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    daemon: bool,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// This program: by its name, which is what `ps` shows, unless it was replaced meanwhile.
fn program() -> PathBuf {
    let named = std::env::current_exe().ok().filter(|path| path.exists());
    named.unwrap_or_else(|| "/proc/self/exe".into())
}

pub(crate) fn run(args: &ConnectArgs) -> Result<()> {
    if args.daemon || args.foreground {
        return daemon::run(args, args.daemon);
    }
    // What it has to say about --affinity is said here, for the daemon says it to its log.
    args.session.placement.placement()?;
    let mut child = Command::new(program())
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
    let warnings = value["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    for warning in warnings.iter().filter_map(Value::as_str) {
        eprintln!("tyche: {warning}");
    }
    let device = value["device"].as_str().unwrap_or_default().to_owned();
    show(args.output, || value, || format!("{device}\n"));
    Ok(())
}

/// Links whose path takes only shorter frames than the interface here, in words: found by probing,
/// and worked around.
fn narrow_links(session: &Value) -> Vec<String> {
    let links = session["links"].as_array().map_or(&[][..], Vec::as_slice);
    let narrow = |link: &Value| {
        let interface = link["interface"].as_str()?;
        let (found, own) = (link["frame_len"].as_u64()?, link["frame_len_max"].as_u64()?);
        (found > 0 && found < own).then(|| {
            format!(
                "{interface} takes frames of {own} bytes, but the way to the target drops those \
                 longer than {found}: the target's interface or a switch has a smaller MTU. \
                 Frames of {found} bytes are used instead, which costs speed"
            )
        })
    };
    links.iter().filter_map(narrow).collect()
}
