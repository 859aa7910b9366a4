//! LVM's own programs. None is a shell's, each is waited for a bounded time, and one that changes
//! something has its turn: others of any target on this machine wait for it.
//!
//! The turn is the lock of a file, which is the standard input of the program. So a program that
//! goes on when its target is killed keeps its turn until it has ended, and whoever looks for what
//! it has left over, with a turn of his own, sees all of it. LVM closes what else it inherits.
//!
//! None is killed: it may have suspended a device, which would stay so. It is asked to end
//! (SIGTERM, which LVM heeds where it may), and left alone then.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tyche_session::runtime_dir;

use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::runtime;

/// Time limit for a program. LVM waits up to five seconds for a volume that is in use, and before a
/// snapshot for all writes that are under way.
pub(in super::super) const LIMIT: Duration = Duration::from_secs(60);
/// The pause between two looks whether a program has ended, or a turn is free.
const LOOK: Duration = Duration::from_millis(1);
/// The most that is read of what a program prints.
const PRINTED_MAX: u64 = 64 << 20;
/// The most bytes of an error of LVM that are passed on.
const SAID_MAX: usize = 400;
/// The file whose lock is the turn, in the run-time directory.
const TURN: &str = "lvm.lock";
/// Where udev listens. Without it LVM has to make the nodes of devices by itself, and would wait
/// for udev in vain.
const UDEV: &str = "/run/udev/control";
/// The number of the capability that the kernel's device mapper asks for.
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// Settings of each program. Who monitors a thin pool is the machine's business: LVM would start
/// its daemon (dmeventd) in our place in the system, where it ends with us.
const SETTINGS: &str = "activation/monitoring=0";

/// The right to change something of LVM, until it is dropped and its programs have ended.
pub(super) struct Turn(File);

impl Turn {
    /// Takes it when it is free.
    ///
    /// # Errors
    /// `Device` if it is not free in time; `Permission` if its file can't be made.
    pub(super) fn take() -> Result<Self> {
        let (dir, deadline) = (runtime_dir(), Instant::now() + LIMIT);
        runtime::create(&dir)?;
        let path = dir.join(TURN);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).context(Code::Permission, path.display())?;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() >= deadline => {
                    let message = "a program of LVM that was started before has not ended: ps -C \
                                   lvcreate,lvremove,lvextend,lvrename,lvchange";
                    return Err(Error::new(Code::Device, message));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(LOOK),
                Err(errno) => return Err(errno).context(Code::Other, path.display()),
            }
        }
    }

    /// Runs a program, with its further arguments.
    ///
    /// # Errors
    /// `Device`, with what LVM says.
    pub(super) fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        self.run_while(program, args, || ())
    }

    /// The same, and calls `look` again and again meanwhile.
    pub(super) fn run_while(&self, program: &str, args: &[&str], look: impl FnMut()) -> Result<()> {
        let stdin = self.0.try_clone().context(Code::Other, TURN)?;
        let command = command(program, &[&["--yes"], args].concat());
        run(command, Stdio::from(stdin), look).map(drop)
    }
}

/// A logical volume, as LVM reports it: all of it as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Row {
    pub(super) lv_name: String,
    pub(super) lv_uuid: String,
    pub(super) vg_uuid: String,
    /// Bytes.
    pub(super) vg_extent_size: String,
    pub(super) lv_attr: String,
    /// Bytes.
    pub(super) lv_size: String,
    pub(super) lv_metadata_size: String,
    pub(super) pool_lv: String,
    pub(super) lv_tags: String,
    pub(super) data_percent: String,
    pub(super) metadata_percent: String,
    pub(super) lv_when_full: String,
    pub(super) lv_health_status: String,
}

/// The columns of a [`Row`].
const COLUMNS: &str = "lv_name,lv_uuid,vg_uuid,vg_extent_size,lv_attr,lv_size,lv_metadata_size,\
                       pool_lv,lv_tags,data_percent,metadata_percent,lv_when_full,lv_health_status";

/// The form of a report of LVM.
#[derive(Deserialize)]
struct Printed {
    report: Vec<Section>,
}

#[derive(Deserialize)]
struct Section {
    #[serde(default)]
    lv: Vec<Row>,
}

/// The logical volumes of a group.
///
/// # Errors
/// `Device`, with what LVM says.
pub(super) fn volumes(group: &str) -> Result<Vec<Row>> {
    let form = ["--reportformat", "json", "--units", "b", "--nosuffix", "--options", COLUMNS];
    let command = command("lvs", &[&form[..], &[group]].concat());
    parse(&run(command, Stdio::null(), || ())?)
}

fn parse(printed: &str) -> Result<Vec<Row>> {
    let printed: Printed = serde_json::from_str(printed).context(Code::Device, "lvs")?;
    Ok(printed.report.into_iter().flat_map(|section| section.lv).collect())
}

fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["--config", SETTINGS]).args(args);
    // A service manager may leave out where they are; and errors are looked at.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/bin:/bin";
    command.env("PATH", path).env("LC_ALL", "C").env("LVM_SUPPRESS_FD_WARNINGS", "1");
    if !Path::new(UDEV).exists() {
        command.env("DM_DISABLE_UDEV", "1");
    }
    command
}

/// Runs a program to its end; returns what it prints.
fn run(mut command: Command, stdin: Stdio, mut look: impl FnMut()) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let deadline = Instant::now() + LIMIT;
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let message = format!("there is no program {name}: install lvm2");
            Error::new(Code::Device, message)
        }
        _ => Error::new(Code::Device, format!("{name}: {error}")),
    })?;
    // What it has as its standard input is its own from now on.
    drop(command);
    let (stdout, stderr) = (printed(child.stdout.take()), printed(child.stderr.take()));
    let status = loop {
        match child.try_wait().context(Code::Device, &name)? {
            Some(status) => break status,
            None if Instant::now() >= deadline => return Err(give_up(child, &name)),
            None => look(),
        }
        thread::sleep(LOOK);
    };
    let left = || deadline.saturating_duration_since(Instant::now());
    let said = stderr.recv_timeout(left()).unwrap_or_default();
    if !status.success() {
        return Err(failure(&name, status, &said));
    }
    stdout.recv_timeout(left()).context(Code::Device, &name)
}

/// Reads what a program prints, in a thread of its own.
fn printed(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, text) = sync_channel(1);
    let read = move || {
        let mut bytes = Vec::new();
        let is_read = from.is_some_and(|it| it.take(PRINTED_MAX).read_to_end(&mut bytes).is_ok());
        if is_read {
            // Nobody waits for it after the time limit.
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        }
    };
    // Without a thread, the sender is gone, and so is the text.
    let _ = thread::Builder::new().name("tyche-lvm".into()).spawn(read);
    text
}

/// Leaves a program alone that does not end.
fn give_up(mut child: Child, name: &str) -> Error {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended.
        let _ = kill_process(pid, Signal::TERM);
    }
    let wait = move || drop(child.wait());
    // Without a thread it stays a zombie.
    let _ = thread::Builder::new().name("tyche-lvm".into()).spawn(wait);
    let message = format!("{name} has not ended within {} s", LIMIT.as_secs());
    Error::new(Code::Device, message)
}

/// The error of a program, in one line: what it says, without warnings.
fn failure(name: &str, status: ExitStatus, said: &str) -> Error {
    let lines = said.lines().map(str::trim);
    let lines: Vec<_> = lines.filter(|it| !it.is_empty() && !it.starts_with("WARNING")).collect();
    let mut said = lines.join("; ");
    if let Some((end, _)) = said.char_indices().nth(SAID_MAX) {
        said.truncate(end);
    }
    if said.is_empty() {
        said = status.to_string();
    }
    if !is_admin() {
        said += "; LVM needs CAP_SYS_ADMIN, which this process does not have: see \"Pools of LVM\" \
                 in the guide";
    }
    Error::new(Code::Device, format!("{name}: {said}"))
}

/// Whether the kernel lets this process change devices.
fn is_admin() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_none_or(|bits| bits & CAP_SYS_ADMIN != 0)
}

#[cfg(test)]
mod tests {
    use tyche_testkit::wait::wait_until;

    use super::*;

    /// As LVM 2.03.16 prints it.
    const PRINTED: &str = r#"  {
      "report": [
          {
              "lv": [
                  {"lv_name":"thin", "lv_uuid":"a-b", "vg_uuid":"c-d", "vg_extent_size":"4194304",
                   "lv_attr":"twi-aotz--", "lv_size":"536870912", "lv_metadata_size":"4194304",
                   "pool_lv":"", "lv_tags":"", "data_percent":"12.50", "metadata_percent":"11.23",
                   "lv_when_full":"queue", "lv_health_status":""},
                  {"lv_name":"vm1", "lv_uuid":"e", "vg_uuid":"c-d", "lv_attr":"Vwi-a-tz--",
                   "lv_size":"67108864", "pool_lv":"thin", "lv_tags":"tyche-1,other"}
              ]
          }
      ]
  }
"#;

    #[test]
    fn a_report_of_lvm_is_read() {
        let rows = parse(PRINTED).unwrap();
        assert_eq!((rows.len(), &*rows[0].data_percent), (2, "12.50"));
        assert_eq!((&*rows[1].pool_lv, &*rows[1].lv_tags), ("thin", "tyche-1,other"));
        assert_eq!(parse(r#"{"report": [{"lv": []}]}"#).unwrap(), []);
        assert!(parse("").unwrap_err().message.starts_with("lvs: "));
    }

    #[test]
    fn errors_are_one_line_without_warnings() {
        let script =
            "echo ' WARNING: sums' >&2; echo '  No such group' >&2; echo ' Stop' >&2; exit 5";
        let mut failing = Command::new("sh");
        failing.args(["-c", script]);
        let error = run(failing, Stdio::null(), || ()).unwrap_err();
        assert!(error.message.starts_with("sh: No such group; Stop"), "{error}");
        let missing = run(Command::new("no-such-lvm"), Stdio::null(), || ()).unwrap_err();
        assert_eq!(missing.message, "there is no program no-such-lvm: install lvm2");
    }

    #[test]
    fn arguments_are_arguments() {
        let command = command("lvremove", &["vg0/$(x); y"]);
        let args: Vec<_> = command.get_args().collect();
        assert_eq!(args, ["--config", SETTINGS, "vg0/$(x); y"]);
        let set = |name| command.get_envs().find(|(it, _)| *it == name).and_then(|(_, it)| it);
        assert_eq!(set("LC_ALL").unwrap(), "C");
        assert!(set("PATH").unwrap().to_string_lossy().contains(":/usr/sbin:"));
    }

    /// A program keeps the turn that its target had, also after that.
    #[test]
    fn a_turn_lasts_as_long_as_its_program() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || OpenOptions::new().read(true).write(true).open(file.path()).unwrap();
        let is_free = || flock(open(), FlockOperation::NonBlockingLockExclusive).is_ok();
        let turn = Turn(open());
        flock(&turn.0, FlockOperation::NonBlockingLockExclusive).unwrap();
        let stdin = Stdio::from(turn.0.try_clone().unwrap());
        let mut child = Command::new("sleep").arg("100").stdin(stdin).spawn().unwrap();
        drop(turn);
        assert!(!is_free());
        child.kill().unwrap();
        child.wait().unwrap();
        // A program that another test starts has all descriptors until it is executed.
        wait_until("the turn is over", is_free);
    }
}
