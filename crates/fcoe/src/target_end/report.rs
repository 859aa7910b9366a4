//! Reports on the interfaces of a target, for people.

use tyche_counters::{CounterGroup, Reading};
use tyche_engine::{PortStats, Ports};
use tyche_fc::target_end::Ignored;
use tyche_fc::wire::{PortId, Wwn};

use super::role::TargetRole;
use crate::n_port::Rejects;

/// The state of an interface.
#[derive(Clone, Debug)]
pub struct FcoeTargetReport {
    /// Its name.
    pub link: String,
    /// Name of its port.
    pub wwpn: Wwn,
    /// The N_Port_ID of the port, if it has one.
    pub id: Option<PortId>,
    /// Its fault, if any.
    pub problem: Option<String>,
    /// The initiators that are logged in.
    pub initiators: Vec<Wwn>,
    /// Commands executed.
    pub commands: u64,
    /// The same by thread.
    pub by_thread: Vec<u64>,
    /// Frames and bytes, of FIP and FCoE together.
    pub port: PortStats,
    /// Dropped frames by reason.
    pub rejects: Rejects,
    /// Frames without effect, and commands that failed on their way, by reason.
    pub ignored: Vec<Reading>,
}

/// The part of one thread.
pub(super) struct ThreadReport {
    pub(super) link: String,
    pub(super) problem: Option<String>,
    pub(super) commands: u64,
    pub(super) port: PortStats,
    pub(super) rejects: Rejects,
    pub(super) ignored: Ignored,
}

impl ThreadReport {
    /// The report of a thread with these ports of its loop.
    pub(super) fn new(ports: &mut Ports, role: &TargetRole, rejects: &Rejects) -> Self {
        let (mut link, mut problem, mut stats) = (String::new(), None, PortStats::default());
        for (_, port) in ports.iter_mut() {
            port.link().name().clone_into(&mut link);
            problem = problem.or_else(|| port.trouble().map(str::to_owned));
            stats += port.stats();
        }
        let (commands, ignored) = (role.commands(), role.ignored());
        Self { link, problem, commands, port: stats, rejects: *rejects, ignored }
    }
}

impl FcoeTargetReport {
    /// The state of an interface, of its first thread and further ones.
    pub(super) fn new(first: FirstReport, further: Vec<ThreadReport>) -> Self {
        let FirstReport { thread, wwpn, id, initiators } = first;
        let mut by_thread = vec![thread.commands];
        let ThreadReport { link, mut problem, mut port, mut rejects, mut ignored, .. } = thread;
        for other in further {
            by_thread.push(other.commands);
            problem = problem.or(other.problem);
            port += other.port;
            rejects += other.rejects;
            ignored += other.ignored;
        }
        let (commands, ignored) = (by_thread.iter().sum(), ignored.iter().collect());
        Self { link, wwpn, id, problem, initiators, commands, by_thread, port, rejects, ignored }
    }
}

/// The part of the first thread, which has the port.
pub(super) struct FirstReport {
    pub(super) thread: ThreadReport,
    pub(super) wwpn: Wwn,
    pub(super) id: Option<PortId>,
    pub(super) initiators: Vec<Wwn>,
}
