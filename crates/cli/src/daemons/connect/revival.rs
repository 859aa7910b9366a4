//! The revival of a session that has failed because its target was away for too long.
//!
//! The device stays, and fails all requests. From time to time the daemon connects another session,
//! the *trial*, to the same export in the name of the device. Once that is admitted, the target has
//! closed the channels of the failed session: no request that was failed is executed any more. The
//! daemon then begins anew as after `tyche reload`, and serves its device again.
//!
//! A trial takes nothing from another host: it is refused while one writes, and for good if one has
//! written since.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tyche_proto::Failure;
use tyche_proto::wire::Reason;
use tyche_remote::{Notice, Remote};
use tyche_session::{keep_next_key, wait_connected};
use uuid::Uuid;

use super::signals::interrupted;
use super::start::{Started, start};
use super::{ConnectArgs, SessionIdentity};
use crate::shared::error::{Code, Error, Result};
use crate::shared::state::State;

/// Pause before the first trial; it doubles up to the maximum. Lower: the target is back in use
/// sooner. Higher: fewer broadcasts for a target that is gone for days.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Whether the daemon tries to revive its session, for reports.
#[derive(Clone, Default)]
pub(super) struct Trying(Arc<AtomicBool>);

impl Trying {
    /// Whether it does.
    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, is_on: bool) {
        self.0.store(is_on, Ordering::Relaxed);
    }

    /// It does not any more.
    pub(super) fn end(&self) {
        self.set(false);
    }
}

/// The thread that tries. Dropping it ends the trials.
pub(super) struct Revival {
    /// Its other end notices when this is dropped.
    _stop: Sender<()>,
}

/// Whether a session that has failed may be revived: its target may come back, and its device
/// outlives the daemon. Over FCoE, the port of the failed session is in the way.
pub(super) fn is_possible(failure: Failure, state: &State, given: &ConnectArgs) -> bool {
    let is_away = matches!(failure, Failure::TargetLost | Failure::NoProgress);
    is_away && state.lasting.is_some() && !given.fcoe.is_wanted()
}

impl Revival {
    /// Begins to try. `revived` gets the trial that was admitted.
    ///
    /// # Errors
    /// The system's error when a thread cannot be created.
    pub(super) fn begin(
        state: &State,
        given: &ConnectArgs,
        trying: &Trying,
        revived: impl FnOnce(Remote) + Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = channel();
        let (state, given, trying) = (state.clone(), given.clone(), trying.clone());
        trying.set(true);
        let run = move || {
            let trial = try_again(&state, &given, &stopped);
            trying.end();
            if let Some(trial) = trial {
                revived(trial);
            }
        };
        std::thread::Builder::new().name("revival".into()).spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

/// Tries until the target is back; `None` if that is of no use, or was stopped.
fn try_again(state: &State, given: &ConnectArgs, stopped: &Receiver<()>) -> Option<Remote> {
    let mut pause = PAUSE;
    loop {
        match stopped.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
        }
        match connect(state, given, stopped) {
            Ok(trial) => return Some(trial),
            Err((error, true)) => {
                tracing::error!("the session is not tried again: {error}");
                return None;
            }
            Err((error, false)) => tracing::info!("tried again: {error}"),
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Connects a trial.
///
/// # Errors
/// The reason, and whether it lasts.
fn connect(
    state: &State,
    given: &ConnectArgs,
    stopped: &Receiver<()>,
) -> std::result::Result<Remote, (Error, bool)> {
    let passes = |error| (error, false);
    let (Some(lasting), Some(known)) = (&state.lasting, &state.known) else {
        return Err((Error::new(Code::Device, "its device ends with its daemon"), true));
    };
    let args = given.resolved();
    let args = args.and_then(|it| it.settled(Some(known.0.target), &state.changed));
    let args = args.map_err(passes)?;
    let identity = SessionIdentity {
        session: Uuid::new_v4(),
        device: lasting.identity,
        resumes: Some(known.0),
    };
    let (sender, notices) = channel();
    // A trial that was given up has no listener.
    let notify = move |notice| drop(sender.send(notice));
    let Started { remote, mut check, .. } = start(&args, &identity, notify).map_err(passes)?;
    let mut lasts = false;
    let next = |wait| {
        if matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)) {
            return Err(interrupted());
        }
        let notice = notices.recv_timeout(wait).ok();
        lasts |= notice.as_ref().is_some_and(is_final);
        if let Some(Notice::NextKey(said)) = &notice {
            keep_next_key(said);
        }
        Ok(notice)
    };
    let ended = |notice| args.session.ended(notice);
    let connected = wait_connected(args.timeout(), next, &mut *check, ended);
    drop(check);
    connected.map(|()| remote).map_err(|error| (error, lasts))
}

/// Whether a trial says that no other can succeed: the disk has been written by another host, or is
/// another.
fn is_final(notice: &Notice) -> bool {
    match notice {
        Notice::Rejected(rejection) => rejection.reason == Reason::SessionLost,
        Notice::Failed(failure) => {
            matches!(failure, Failure::ExportChanged | Failure::WritesLost)
        }
        _ => false,
    }
}
