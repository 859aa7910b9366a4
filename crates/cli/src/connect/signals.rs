//! Signals that end a session, and what they mean to one that is not made yet.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tyche_engine::HostControl;

use super::daemon::Input;
use crate::error::{Code, Error, Result};

/// How long making a device may still take once a signal has come.
const MAKING: Duration = Duration::from_secs(1);

/// Signals that end the session.
pub(super) const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A thread that makes signals inputs, until this is dropped.
pub(super) struct SignalHandler {
    handle: signal_hook::iterator::Handle,
    stage: Arc<(Mutex<Stage>, Condvar)>,
}

/// How far a session has come, as signals see it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Until the device is made, of which nobody has been told: if a signal comes and it is not
    /// made soon, all requests are ended, for the kernel may wait for one.
    Making,
    /// A signal has ended them.
    Ended,
    /// It may be in use: only people end requests, who press Ctrl-C twice.
    Made,
}

impl SignalHandler {
    pub(super) fn start(
        mut signals: Signals,
        sender: Sender<Input>,
        control: HostControl,
        stage: Stage,
    ) -> Result<Self> {
        let handle = signals.handle();
        let stage = Arc::new((Mutex::new(stage), Condvar::new()));
        let common = Arc::clone(&stage);
        let forward = move || {
            let mut interrupted = false;
            for signal in signals.forever() {
                if sender.send(Input::Signal(signal)).is_err() {
                    return;
                }
                // What the first Ctrl-C has begun may wait for a target that is lost.
                let insists = signal == SIGINT && std::mem::replace(&mut interrupted, true);
                let (stage, made) = &*common;
                let stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
                let is_making = |stage: &mut Stage| *stage == Stage::Making;
                let waited = made.wait_timeout_while(stage, MAKING, is_making);
                let (mut stage, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if *stage == Stage::Making {
                    *stage = Stage::Ended;
                }
                if insists || *stage == Stage::Ended {
                    control.abort();
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(forward)?;
        Ok(Self { handle, stage })
    }

    /// The device is made.
    ///
    /// # Errors
    /// If a signal has ended all requests.
    pub(super) fn made(&self) -> Result<()> {
        let (stage, made) = &*self.stage;
        let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Ended {
            return Err(interrupted());
        }
        *stage = Stage::Made;
        made.notify_all();
        Ok(())
    }
}

impl Drop for SignalHandler {
    fn drop(&mut self) {
        self.handle.close();
    }
}

pub(super) fn interrupted() -> Error {
    Error::new(Code::Other, "interrupted")
}
