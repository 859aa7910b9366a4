//! Signals that end a session, and their effect while its device is still being made.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tyche_remote::Control;

use crate::shared::error::{Code, Error, Result};

/// Time limit for making a device once a signal has come.
const MAKING: Duration = Duration::from_secs(1);

/// Signals that end the session.
pub(super) const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A thread that passes signals on, until this is dropped.
pub(super) struct SignalHandler {
    handle: signal_hook::iterator::Handle,
    stage: Arc<(Mutex<Stage>, Condvar)>,
}

/// The progress of a session, as far as signals are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The device is being made, and nobody was told of it yet. If a signal comes and it is not
    /// made in time, all requests are ended: the kernel may wait for one.
    Making,
    /// A signal has ended all requests.
    Ended,
    /// The device may be in use: only a second Ctrl-C ends requests.
    Made,
}

impl SignalHandler {
    /// Passes signals on to `hand_over`, which returns false if nobody listens any more.
    pub(super) fn start(
        mut signals: Signals,
        control: Arc<dyn Control>,
        stage: Stage,
        hand_over: impl Fn(i32) -> bool + Send + 'static,
    ) -> Result<Self> {
        let handle = signals.handle();
        let stage = Arc::new((Mutex::new(stage), Condvar::new()));
        let common = Arc::clone(&stage);
        let forward = move || {
            let mut interrupted = false;
            for signal in signals.forever() {
                if !hand_over(signal) {
                    return;
                }
                // The stop that the first Ctrl-C began may wait for a lost target.
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

    /// Notes that the device is made.
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
