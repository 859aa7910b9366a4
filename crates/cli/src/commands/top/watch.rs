//! The daemons of this machine, or a target elsewhere, each asked at its own pace: one that hangs
//! delays no other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::shared::error::{Code, Context, Result};
use crate::shared::report::{SessionReport, TargetReport, TopReport};
use crate::shared::runtime;
use crate::shared::sessions::{Session, target_at};
use crate::shared::target_control::AtArgs;

use super::rates::{self, Look};

/// A daemon that is asked, by the directory that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Session,
    Target,
    /// A target elsewhere, which has the place in words instead of a directory.
    Elsewhere,
}

/// The content of a directory.
enum Found {
    Session(Box<SessionReport>),
    Target(Box<TargetReport>),
    /// Its process has ended, or is about to begin.
    Nothing,
}

/// The answer of a daemon.
struct Answer {
    dir: PathBuf,
    at: Instant,
    found: Found,
}

/// The last two looks at a daemon.
struct Looks<T> {
    now: Look<T>,
    before: Option<Look<T>>,
}

impl<T> Looks<T> {
    /// The looks after another one.
    fn after(earlier: Option<Self>, now: Look<T>) -> Self {
        Self { now, before: earlier.map(|it| it.now) }
    }
}

/// See the [module](self).
pub(super) struct Watch {
    at: Arc<AtArgs>,
    sessions: BTreeMap<PathBuf, Looks<SessionReport>>,
    targets: BTreeMap<PathBuf, Looks<TargetReport>>,
    /// Those that have not answered yet.
    asked: BTreeSet<PathBuf>,
    answers: (Sender<Answer>, Receiver<Answer>),
}

impl Watch {
    /// Watches the daemons of this machine, or the target elsewhere.
    ///
    /// # Errors
    /// The target elsewhere does not answer, is another, or refuses.
    pub(super) fn new(at: AtArgs) -> Result<Self> {
        if at.is_elsewhere() {
            at.targets()?;
        }
        Ok(Self {
            at: Arc::new(at),
            sessions: BTreeMap::new(),
            targets: BTreeMap::new(),
            asked: BTreeSet::new(),
            answers: channel(),
        })
    }

    /// Asks all daemons but those that have not answered yet, each in a thread of its own. Its wait
    /// is bounded as that of `tyche list`.
    ///
    /// # Errors
    /// `Permission`: the run-time directory can't be read.
    pub(super) fn ask(&mut self) -> Result<()> {
        if self.at.is_elsewhere() {
            self.ask_one(Path::new(&self.at.place()), Kind::Elsewhere);
            return Ok(());
        }
        let below = |dir: PathBuf| runtime::below(&dir).context(Code::Permission, dir.display());
        let (sessions, targets) = (below(runtime::sessions())?, below(runtime::targets())?);
        self.sessions.retain(|dir, _| sessions.contains(dir));
        self.targets.retain(|dir, _| targets.contains(dir));
        let all = sessions.into_iter().map(|dir| (dir, Kind::Session));
        for (dir, kind) in all.chain(targets.into_iter().map(|dir| (dir, Kind::Target))) {
            self.ask_one(&dir, kind);
        }
        Ok(())
    }

    fn ask_one(&mut self, dir: &Path, kind: Kind) {
        if !self.asked.insert(dir.to_owned()) {
            return;
        }
        let (answers, path, at) = (self.answers.0.clone(), dir.to_owned(), Arc::clone(&self.at));
        let asking = thread::Builder::new().name("top-ask".into()).spawn(move || {
            let found = look(&path, kind, &at);
            // Nobody waits any more if the program ends.
            let _ = answers.send(Answer { dir: path, at: Instant::now(), found });
        });
        if asking.is_err() {
            // No thread to spare: it is asked the next time.
            self.asked.remove(dir);
        }
    }

    /// Takes the answers until all have come, for `limit` at most. Returns whether any did.
    pub(super) fn take(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut is_any = false;
        while !self.asked.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            match self.answers.1.recv_timeout(left) {
                Ok(answer) => self.note(answer),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
            is_any = true;
        }
        is_any
    }

    /// Whether a daemon has not answered yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    fn note(&mut self, Answer { dir, at, found }: Answer) {
        self.asked.remove(&dir);
        let (session, target) = (self.sessions.remove(&dir), self.targets.remove(&dir));
        match found {
            Found::Session(report) => {
                let looks = Looks::after(session, Look { at, report: *report });
                self.sessions.insert(dir, looks);
            }
            Found::Target(report) => {
                let looks = Looks::after(target, Look { at, report: *report });
                self.targets.insert(dir, looks);
            }
            Found::Nothing => {}
        }
    }

    /// The present rates, in the order of names.
    pub(super) fn report(&self) -> TopReport {
        let session = |it: &Looks<SessionReport>| rates::session(&it.now, it.before.as_ref());
        let target = |it: &Looks<TargetReport>| rates::target(&it.now, it.before.as_ref());
        let mut sessions: Vec<_> = self.sessions.values().map(session).collect();
        sessions.sort_by(|a, b| (&a.export, &a.device).cmp(&(&b.export, &b.device)));
        TopReport { sessions, targets: self.targets.values().map(target).collect() }
    }
}

fn look(dir: &Path, kind: Kind, at: &AtArgs) -> Found {
    let target = match kind {
        Kind::Session => {
            let session = Session::find(dir.to_owned());
            return session.map_or(Found::Nothing, |it| Found::Session(Box::new(it.report)));
        }
        Kind::Target => target_at(dir),
        Kind::Elsewhere => match at.targets() {
            Ok(found) => found.into_iter().next().map(|it| it.report),
            // It stays, with the reason.
            Err(error) => {
                let (name, problem) = (at.place(), Some(error.message));
                Some(TargetReport { name, problem, ..TargetReport::default() })
            }
        },
    };
    target.map_or(Found::Nothing, |report| Found::Target(Box::new(report)))
}
