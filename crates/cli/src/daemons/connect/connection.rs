//! The start of a session, and the wait for its connection.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};

use signal_hook::iterator::Signals;
use tyche_remote::{Notice, Remote};
use tyche_session::{log_warnings, wait_connected};
use uuid::Uuid;

use super::inputs::Input;
use super::last_error::LastError;
use super::late::MissingLinks;
use super::predecessor::Predecessor;
use super::signals::{SignalHandler, Stage, interrupted};
use super::start::{Started, start};
use super::{ConnectArgs, SessionArgs, SessionIdentity};
use crate::shared::error::{Code, Error, Result};
use crate::shared::state::KnownExport;

/// The warning for a daemon that takes over the device of one whose requests have failed.
const AWAY: &str = "the target was away for too long: requests fail until it is back";

/// A session that is connected, and has no device yet.
pub(super) struct Connected {
    pub(super) host: Remote,
    pub(super) known: KnownExport,
    pub(super) signals: SignalHandler,
    pub(super) warnings: Vec<String>,
    pub(super) missing: Arc<MissingLinks>,
    pub(super) last_error: Arc<LastError>,
}

/// The state that the predecessor has left, if there is one.
#[derive(Clone, Copy)]
pub(super) enum Before {
    /// The export, as it knew it.
    Known(Option<KnownExport>),
    /// The same, and its requests failed because the target was away for too long: it is not waited
    /// for, and until it is back those of the next daemon fail as well.
    Failed(KnownExport),
}

impl Before {
    /// The state that a predecessor has left, for a daemon with these arguments.
    pub(super) fn of(predecessor: Option<&Predecessor>, args: &ConnectArgs) -> Self {
        // A session over FCoE takes no request before it is connected.
        let fails = |it: &&Predecessor| it.changed.fails && !args.fcoe.is_wanted();
        let failed = predecessor.filter(fails).map(|it| Self::Failed(it.known));
        failed.unwrap_or(Self::Known(predecessor.map(|it| it.known)))
    }
}

/// Connects a session. From now on it gets the signals; `is_new`: nobody uses the device yet.
pub(super) fn connect(
    args: &ConnectArgs,
    identity: &SessionIdentity,
    (signals, is_new): (Signals, bool),
    before: Before,
    (sender, inputs): (&Sender<Input>, &Receiver<Input>),
) -> Result<Connected> {
    let (notices, caught) = (sender.clone(), sender.clone());
    let last_error = Arc::<LastError>::default();
    let (noted, session) = (Arc::clone(&last_error), args.session.clone());
    let started = start(args, identity, move |notice| {
        noted.note(&notice, &session);
        // A daemon that no longer listens is ending.
        let _ = notices.send(Input::Notice(notice));
    })?;
    let Started { remote: host, mut check, warnings, missing } = started;
    log_warnings(&warnings);
    let stage = if is_new { Stage::Making } else { Stage::Made };
    let hand_over = move |signal| caught.send(Input::Signal(signal)).is_ok();
    let signals = SignalHandler::start(signals, Arc::clone(host.control()), stage, hand_over)?;
    let missing = MissingLinks::new(missing);
    let known = match before {
        Before::Failed(known) => {
            host.control().fail_until_connected();
            known
        }
        Before::Known(known) => {
            let known = await_connection(&mut *check, (sender, inputs), &args.session, known);
            known.map_err(|error| missing.added_to(error))?
        }
    };
    Ok(Connected { host, known, signals, warnings, missing, last_error })
}

/// Logs that a session has begun, with that target; returns the warnings, also that it has
/// `no_log`. If the session `fails`, it has the device of a predecessor, and no target yet.
pub(super) fn begun(
    args: &SessionArgs,
    session: Uuid,
    (target, fails): (Uuid, bool),
    no_log: Option<String>,
) -> Vec<String> {
    let export = &args.export;
    let warning = if fails {
        tracing::warn!(export, %session, "{AWAY}");
        Some(AWAY.to_owned())
    } else {
        tracing::info!(export, %session, "connected");
        args.remember(target)
    };
    logged(no_log).into_iter().chain(warning).collect()
}

/// Logs a warning, if there is one, and returns it.
pub(super) fn logged(warning: Option<String>) -> Option<String> {
    log_warnings(warning.as_slice());
    warning
}

/// Opens the session's log. Returns its place, or else a warning: the session works without a log.
pub(super) fn open_log(export: &str, session: Uuid) -> (Option<String>, Option<String>) {
    let none = |error| (None, Some(format!("this session has no log: {error}")));
    crate::shared::log::open(export, session).map_or_else(none, |log| (Some(log), None))
}

/// Waits until the session is live, and has `check` say why it is not. Returns the state of the
/// export: the one that was `known`, unless the target sends another. Another key of the target is
/// an input again, for later: the one that it has proved may not be kept yet.
fn await_connection(
    check: &mut dyn FnMut(bool) -> Result<()>,
    (sender, inputs): (&Sender<Input>, &Receiver<Input>),
    args: &SessionArgs,
    mut known: Option<KnownExport>,
) -> Result<KnownExport> {
    let mut later = Vec::new();
    let next = |wait| match inputs.recv_timeout(wait) {
        Ok(Input::Notice(notice)) => {
            if let Notice::ResumeState(state) = notice {
                known = Some(state.into());
            }
            later.extend(matches!(notice, Notice::NextKey(_)).then(|| notice.clone()));
            Ok(Some(notice))
        }
        Ok(Input::Signal(_)) => Err(interrupted()),
        Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::new(Code::Other, "the session's thread died"))
        }
    };
    wait_connected(args.timeout(), next, check, |notice| args.ended(notice))?;
    later.into_iter().for_each(|notice| drop(sender.send(Input::Notice(notice))));
    Ok(known.expect("it is known before the session is live"))
}
