//! The machine as the checks see it: files below a root, interfaces, sessions and targets.
//!
//! With another root than `/`, files of `/proc`, `/sys`, `/dev` and `/etc` are those below it: of
//! an image, or of a set-up that a test has broken on purpose.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use tyche_engine::identity;
use tyche_link::packet::{interfaces, relations};

use crate::daemons::connect::Entry;
use crate::daemons::serve::config::Config;
use crate::daemons::serve::reading;
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::{SessionReport, TargetReport};
use crate::shared::runtime;
use crate::shared::sessions::{named_sessions, targets};
use crate::shared::tab::{self, Line, Tab};

/// The configuration of the target's unit.
pub(super) const TARGET_CONFIG: &str = "/etc/tyche/target.toml";
/// The socket of the journal, where logs of sessions are kept if it is there.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// The longest part of a file that is looked at, in bytes.
const READ_MAX: u64 = 1 << 20;
/// Time limit for a program of the system.
const TOOL_LIMIT: Duration = Duration::from_secs(5);

/// Runs a program of the system; returns its output, if it is there and succeeds.
pub(super) type Tool = fn(&str, &[&str]) -> Option<String>;

/// An Ethernet interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) mac: String,
    pub(super) mtu: usize,
    /// Administratively.
    pub(super) is_up: bool,
    /// Whether it has a carrier as well.
    pub(super) is_running: bool,
    /// The bridge or bond that it is a member of.
    pub(super) master: Option<String>,
}

/// A link that a file, a session or a target names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedLink {
    /// Name of an interface, or `udp:HOST:PORT` and the like.
    pub(super) name: String,
    /// The file, session or target that names it, in words.
    pub(super) by: String,
}

impl NamedLink {
    /// Whether it is over IP.
    pub(super) fn is_over_ip(&self) -> bool {
        self.name.contains(':')
    }
}

/// See the [module](self).
pub(super) struct Machine {
    pub(super) root: PathBuf,
    pub(super) interfaces: Vec<Interface>,
    pub(super) sessions: Vec<SessionReport>,
    pub(super) targets: Vec<TargetReport>,
    /// Why daemons can't be asked, in words.
    pub(super) unasked: Option<String>,
    /// The lines of tychetab; an error if it can't be read.
    pub(super) tab: Result<Vec<Line>>,
    /// The configuration of the target's unit, if there is one.
    pub(super) config: Option<Result<Config>>,
    /// Directories that daemons write to.
    pub(super) directories: Vec<PathBuf>,
    pub(super) tool: Tool,
}

impl Machine {
    /// This machine, with the files below `root`.
    pub(super) fn new(root: &Path) -> Self {
        let (sessions, targets) = (named_sessions(None), targets());
        let unasked = sessions.as_ref().err().or(targets.as_ref().err());
        let unasked = unasked.map(|error| error.message.clone());
        let targets = targets.unwrap_or_default().into_iter().map(|(_, report)| report).collect();
        let mut directories = vec![identity::state_dir(), tyche_session::runtime_dir()];
        let has_journal = Path::new(JOURNAL).exists();
        let logs = runtime::logs().or_else(|| (!has_journal).then(|| runtime::LOGS.into()));
        directories.extend(logs);
        let is_here = root == Path::new("/");
        Self {
            interfaces: read_interfaces(),
            sessions: sessions.unwrap_or_default(),
            targets,
            unasked,
            directories,
            tool: if is_here { run } else { |_, _| None },
            ..Self::of_files(root)
        }
    }

    /// The machine with the files below `root`, without interfaces, sessions and targets.
    pub(super) fn of_files(root: &Path) -> Self {
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        let tab = match Tab::read(&below(tab::PATH)) {
            Ok(tab) => Ok(tab.into_lines()),
            Err(Error { code: Code::NotFound, .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let config = below(TARGET_CONFIG);
        let config = config.exists().then(|| reading::read_at_start(&config));
        Self {
            root: root.to_owned(),
            interfaces: Vec::new(),
            sessions: Vec::new(),
            targets: Vec::new(),
            unasked: None,
            tab,
            config,
            directories: Vec::new(),
            tool: |_, _| None,
        }
    }

    /// The place of a file.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file, without blanks around it; none if it can't be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.path(path)).ok()?.take(READ_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number in a file.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.read(path)?.parse().ok()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a directory, sorted; none if there is none.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The processors that are online.
    pub(super) fn cpus(&self) -> usize {
        let online = self.read("/sys/devices/system/cpu/online").unwrap_or_default();
        numbers(&online).len().max(1)
    }

    /// The configuration of the target's unit, if it can be read.
    pub(super) fn good_config(&self) -> Option<&Config> {
        self.config.as_ref()?.as_ref().ok()
    }

    /// The entries of tychetab, those without a mistake.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Line, Entry)> {
        let lines = self.tab.iter().flatten();
        lines.filter_map(|line| Some((line, Entry::of(line).ok()?)))
    }

    /// The interface of that name.
    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|it| it.name == name)
    }

    /// The links that files, sessions and targets name, each once.
    pub(super) fn named_links(&self) -> Vec<NamedLink> {
        let mut found = Vec::<NamedLink>::new();
        let mut note = |name: &str, by: String| {
            if found.iter().all(|it| it.name != name) {
                found.push(NamedLink { name: name.to_owned(), by });
            }
        };
        for (line, entry) in self.entries() {
            for link in &entry.connect.session.common.links {
                note(link, format!("tychetab's line of {}", line.export));
            }
        }
        if let Some(config) = self.good_config() {
            let ports = config.fcoe.iter().map(|port| &port.link);
            for link in config.link.iter().chain(ports) {
                note(link, "target.toml".to_owned());
            }
        }
        for session in &self.sessions {
            for link in session.links().iter().filter(|link| !link.unnamed) {
                note(&link.interface, format!("the session of {}", session.record.export));
            }
        }
        for target in &self.targets {
            let ports = target.fcoe.iter().map(|port| &port.interface);
            for link in target.links.iter().map(|link| &link.interface).chain(ports) {
                note(link, format!("target {}", target.name));
            }
        }
        found
    }

    /// Whether that is an interface which is named, and can't be used: a finding of its own.
    pub(super) fn has_unusable(&self, name: &str) -> bool {
        let can_be = |it: &Interface| it.is_running && it.master.is_none();
        let is_named = || self.named_links().iter().any(|link| link.name == name);
        !name.contains(':') && !self.interface(name).is_some_and(can_be) && is_named()
    }

    /// The interfaces that Tyche uses: those that are named, or that sessions have found.
    pub(super) fn used_interfaces(&self) -> Vec<&Interface> {
        let named = self.named_links();
        let of_sessions = self.sessions.iter().flat_map(|session| session.links());
        let live: Vec<_> = of_sessions.filter(|link| link.live).collect();
        let is_used = |it: &&Interface| {
            named.iter().any(|link| link.name == it.name)
                || live.iter().any(|link| link.interface == it.name)
        };
        self.interfaces.iter().filter(is_used).collect()
    }
}

/// The numbers of a list such as `0-3,8`, up to 4096.
pub(super) fn numbers(list: &str) -> Vec<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?.min(4096))
    });
    ranges.flatten().collect()
}

fn read_interfaces() -> Vec<Interface> {
    let all = interfaces().unwrap_or_default();
    let master = |index: i32| {
        let master = relations(index).ok()?.master?;
        let name = all.iter().find(|it| it.index == master).map(|it| it.name.clone());
        Some(name.unwrap_or_else(|| format!("interface {master}")))
    };
    let found = all.iter().map(|it| Interface {
        name: it.name.clone(),
        mac: tyche_proto::wire::Mac(it.mac).to_string(),
        mtu: it.mtu,
        is_up: it.up,
        is_running: it.running,
        master: master(it.index),
    });
    found.collect()
}

/// Runs a program for a bounded time.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (sender, text) = sync_channel(1);
    let reading = thread::Builder::new().name("doctor-tool".into()).spawn(move || {
        let mut text = String::new();
        let is_read = stdout.take(READ_MAX).read_to_string(&mut text).is_ok();
        // Nobody waits any more after the time limit.
        let _ = sender.send(Some(text).filter(|_| is_read));
    });
    let text = reading.ok().and_then(|_| text.recv_timeout(TOOL_LIMIT).ok()).flatten();
    if text.is_none() {
        let _ = child.kill();
    }
    let succeeds = child.wait().is_ok_and(|status| status.success());
    text.filter(|_| succeeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_read_and_programs_that_are_not_there_say_nothing() {
        assert_eq!(numbers("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(numbers(""), [0; 0]);
        assert_eq!(numbers("0-99999999").len(), 4097);
        assert_eq!(run("sh", &["-c", "echo yes"]).as_deref(), Some("yes\n"));
        assert_eq!(run("sh", &["-c", "echo no; exit 1"]), None);
        assert_eq!(run("no-such-program", &[]), None);
    }
}
