//! A device that is left to the next daemon, which may be this process again, as another program.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{ConnectArgs, installed};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::runtime;
use crate::shared::state::State;

/// The directory in which this process was started, if it has left that.
static STARTED_IN: OnceLock<PathBuf> = OnceLock::new();

/// Releases the standard streams: the parent must not wait for our output to end.
pub(super) fn release_stdio() -> Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&null).map_err(std::io::Error::from)?;
    Ok(())
}

/// The absolute form of a path that is relative to the directory in which this process was started.
pub(super) fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    match STARTED_IN.get() {
        Some(dir) => Ok(dir.join(path)),
        None => std::path::absolute(path),
    }
}

/// Leaves the directory of the caller, whose file system is to be unmounted when he likes. It stays
/// if paths of ours are relative to it.
pub(super) fn leave_directory() {
    let is_fixed = |name| std::env::var_os(name).is_none_or(|path| Path::new(&path).is_absolute());
    if runtime::VARIABLES.into_iter().all(is_fixed) {
        // Without one that has a name there is none to return to.
        let _ = std::env::current_dir().map(|dir| STARTED_IN.set(dir));
        // Fails if the root is not there; the directory is then a matter of taste.
        let _ = std::env::set_current_dir("/");
    }
}

/// Checks that the device of a session can be left to the next daemon, which will have the same
/// arguments, read in the same directory. Returns the program that is to be that, if this process
/// is to go on `again` as such; it is in that directory then.
///
/// # Errors
/// `Device` if the device ends with its daemon; `NotFound` if there is no program; or what the next
/// daemon would fail with.
pub(super) fn may_leave(state: &State, args: &ConnectArgs, again: bool) -> Result<Option<PathBuf>> {
    let State { device, kind, lasting, known, changed, .. } = state;
    if lasting.is_none() {
        let message = format!(
            "{} ends with its daemon, as each device of kind {}: disconnect it when it is not in \
             use, and connect it anew",
            device.display(),
            kind.name()
        );
        return Err(Error::new(Code::Device, message));
    }
    let gone = || Error::new(Code::NotFound, "the program is not where it was started from");
    let program = if again { Some(installed().ok_or_else(gone)?) } else { None };
    // It may be gone, which matters to relative paths only.
    let _ = STARTED_IN.get().map(std::env::set_current_dir);
    let target = known.as_ref().map(|known| known.0.target);
    if let Err(error) = args.check_anew(target, changed) {
        leave_directory();
        let message = format!("the device keeps its daemon: the next would fail: {error}");
        return Err(Error { message, ..error });
    }
    Ok(program)
}

/// Goes on as that program, with the same arguments, in the same process.
///
/// # Errors
/// Its descriptors can't be kept from the program.
pub(super) fn go_on_as(program: PathBuf, detached: bool) -> Result<()> {
    tyche_attach::keep_from_children().context(Code::Other, "close_range")?;
    let mut given = std::env::args_os();
    let mut next = Command::new(program);
    next.arg0(given.next().unwrap_or_else(|| "tyche".into()));
    next.args(given.next());
    if detached {
        next.args(["--daemon", "--reloaded"]);
    }
    next.args(given.filter(|it| it != "--daemon" && it != "--reloaded"));
    let error = next.exec();
    // The device waits for another daemon now, as after a crash.
    tracing::error!("cannot begin anew: {error}");
    crate::shared::log::flush();
    std::process::abort()
}
