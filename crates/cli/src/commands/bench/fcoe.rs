//! `tyche bench --fcoe`: the same load on a logical unit of Fibre Channel over Ethernet.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use tyche_block::Disk;
use tyche_fcoe::{FcoeHost, FcoeHostOptions};
use tyche_remote::{Control, Notice};
use tyche_session::{log_warnings, wait_connected};
use tyche_wake::MakePoller;
use uuid::Uuid;

use super::disk::{self, DiskSession, Observe};
use super::load::lost;
use super::result::Measurement;
use super::{BenchArgs, check_geometry};
use crate::daemons::connect::{SessionIdentity, fcoe};
use crate::shared::error::{Code, Error, Result};

/// Connects a logical unit with `connect`, and measures it.
///
/// # Errors
/// The arguments do not fit the disk, it can't be used, or it is lost.
pub fn measure<S: DiskSession>(
    args: &BenchArgs,
    connect: impl FnOnce(&BenchArgs, FcoeHostOptions) -> Result<S>,
    observe: Observe,
) -> Result<Measurement> {
    args.check_consent()?;
    if args.jobs > 1 {
        return Err(Error::new(
            Code::Usage,
            "over FCoE there is one job: use --jobs 1, and --iodepth or --queues",
        ));
    }
    let identity =
        SessionIdentity { session: Uuid::new_v4(), device: Uuid::new_v4(), resumes: None };
    let (options, _name, warnings) = args.fcoe.options(&args.session(), &identity)?;
    log_warnings(&warnings);
    let pages = (args.bs as usize).div_ceil(tyche_block::PAGE) * usize::from(args.iodepth);
    let options = FcoeHostOptions { arena_size: pages.into(), ..options };
    let interface = options.port.interface.name().to_owned();
    let session = connect(args, options)?;
    check_geometry(args, session.disk().geometry())?;
    disk::measure(&session, args.shape(), args.period(), move || frames(&interface), observe)
}

/// Frames that an interface has received and sent; 0 if it is gone.
fn frames(interface: &str) -> u64 {
    // Of the namespace of this process; /sys is that of whoever has mounted it.
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    table.lines().find_map(|line| packets(line, interface)).unwrap_or(0)
}

/// The packets in a line of that table, if it is that of the interface: behind the name, the second
/// number is of those received, and the tenth of those sent.
fn packets(line: &str, interface: &str) -> Option<u64> {
    let (name, counters) = line.split_once(':')?;
    if name.trim() != interface {
        return None;
    }
    let counters: Vec<&str> = counters.split_whitespace().collect();
    let count = |at: usize| counters.get(at)?.parse::<u64>().ok();
    Some(count(1)? + count(9)?)
}

/// A session of `tyche`.
pub struct Session {
    host: FcoeHost,
    notices: Receiver<Notice>,
}

/// Connects a session of `tyche`.
///
/// # Errors
/// The disk can't be used.
pub fn connect(args: &BenchArgs, options: FcoeHostOptions) -> Result<Session> {
    let (sender, notices) = channel();
    let host = FcoeHost::start(options, move |notice| {
        // The session has ended.
        let _ = sender.send(notice);
    })?;
    let next = |wait| match notices.recv_timeout(wait) {
        Ok(notice) => Ok(Some(notice)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::new(Code::Other, "the session's thread has ended"))
        }
    };
    let (session, control) = (&args.session, host.control());
    let check = |is_last| control.check(is_last).map_err(|it| fcoe::unreached(session, it));
    wait_connected(session.timeout(), next, check, |notice| session.ended(notice))?;
    Ok(Session { host, notices })
}

impl DiskSession for Session {
    fn disk(&self) -> Arc<dyn Disk> {
        self.host.volume().clone()
    }

    fn adopt(&self, queue: usize, make: MakePoller) {
        self.host.control().adopt(queue, make);
    }

    fn failure(&self) -> Option<Error> {
        self.notices.try_iter().find_map(|it| lost(&it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_an_interface_are_those_of_both_directions() {
        let line =
            "  eth1: 1000    7    0    0    0     0          0         0  2000    5 0 0 0 0 0 0";
        assert_eq!(packets(line, "eth1"), Some(12));
        assert_eq!(packets(line, "eth"), None);
        assert_eq!(packets("  eth1: 1000 7", "eth1"), None);
    }
}
