//! `--retry`: a daemon that keeps trying to connect.
//!
//! At boot a machine may be up before its target, its network or the export. Its supervisor could
//! restart the daemon again and again; but units that wait for the disk would be told of the first
//! failure, and give up. So the daemon retries by itself, and its supervisor sees one long start,
//! with the reason as its status.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sd_notify::NotifyState;
use signal_hook::low_level::pipe;

use super::predecessor::Predecessor;
use super::{ConnectArgs, daemon, signals};
use crate::shared::error::{Code, Context, Error, Result};

/// Shortest wait for a signal: enough to notice one that is pending already.
const GLANCE: Duration = Duration::from_millis(1);

/// Runs the session as soon as it can be connected, until it ends or a signal ends the wait.
pub(super) fn run(args: &ConnectArgs, pause: Duration) -> Result<()> {
    let mut stop = Stop::new().context(Code::Other, "listen to signals")?;
    let mut last = None;
    loop {
        let Err(error) = daemon::run(args, args.daemon) else { return Ok(()) };
        let passes = passes(&error);
        if passes {
            Predecessor::keep_attempt(args, &error.message);
            let pause = pause.as_secs_f64();
            // It may go on for days.
            match last.replace(error.message.clone()) {
                Some(last) if last == error.message => tracing::debug!("{error}; trying again"),
                _ => tracing::warn!("{error}; trying again every {pause} s"),
            }
            // Fails only if the supervisor that asked for it is gone.
            let _ = sd_notify::notify(false, &[NotifyState::Status(&error.message)]);
        }
        if stop.was_asked_for(if passes { pause } else { GLANCE })? {
            return Ok(());
        }
        if !passes {
            return Err(error);
        }
    }
}

/// Whether the error may pass with time, without any action on this machine.
fn passes(error: &Error) -> bool {
    !matches!(error.code, Code::Usage | Code::Permission | Code::Config | Code::Exists)
}

/// The stop signals. The handler writes them to a socket, so none is missed however short the pause
/// between two attempts is; other listeners see them as well.
struct Stop {
    signals: UnixStream,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        let (signals, handler) = UnixStream::pair()?;
        for signal in signals::SIGNALS {
            pipe::register(signal, handler.try_clone()?)?;
        }
        Ok(Self { signals })
    }

    /// Waits for a signal, and returns whether one has come; at once if one is pending.
    fn was_asked_for(&mut self, wait: Duration) -> Result<bool> {
        self.signals.set_read_timeout(Some(wait.max(GLANCE)))?;
        match self.signals.read(&mut [0]) {
            Ok(_) => Ok(true),
            Err(error) if is_timeout(error.kind()) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// An interrupted wait counts as well: the signal was another one, SIGCHLD for instance.
fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_came_before_is_seen() {
        let mut stop = Stop::new().unwrap();
        assert!(!stop.was_asked_for(Duration::ZERO).unwrap());
        signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
        assert!(stop.was_asked_for(Duration::ZERO).unwrap());
    }
}
