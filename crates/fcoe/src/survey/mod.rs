//! A survey: the logical units that targets show us, without a session.
//!
//! The port logs in to each target, asks for the list of its LUNs, and for the properties of each
//! of them, as a session does before it has a disk, and logs out.

mod role;

use std::time::Duration;

use tyche_engine::{Clock, EventLoop, Ports, Protocol, Tenant};
use tyche_fc::port;
use tyche_fc::wire::Wwn;
use tyche_scsi::Lun;
use tyche_scsi::initiator::Disk;
use tyche_time::Instant;
use tyche_wake::Spin;

use crate::initiator::{INITIATOR, Obstacle};
use crate::interface::{Interface, receive_capacity};
use crate::n_port::{NPort, Notice};
use crate::options::PortOptions;
use role::SurveyRole;

/// E_D_TOV of our port: a lost frame is noticed soon, unless the target wants more time.
const E_D_TOV: Duration = Duration::from_millis(200);

/// Options of a survey.
pub struct SurveyOptions {
    /// The interface.
    pub interface: Interface,
    /// Name of the port of this end.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// Names of the targets' ports.
    pub targets: Vec<Wwn>,
    /// The time after which answers are not waited for any more.
    pub timeout: Duration,
}

/// The answers of a target.
#[derive(Clone, Debug)]
pub struct SurveyedTarget {
    /// Name of its port.
    pub wwpn: Wwn,
    /// The logical units, in its order.
    pub units: Vec<SurveyedUnit>,
    /// The number of logical units beside these.
    pub left_out: usize,
    /// The obstacle on the way to the list of them, if there was one.
    pub obstacle: Option<Obstacle>,
}

/// A logical unit.
#[derive(Clone, Debug)]
pub struct SurveyedUnit {
    /// Its number.
    pub lun: Lun,
    /// Its properties, or the obstacle on the way to them.
    pub disk: Result<Disk, Obstacle>,
}

/// Asks the targets, each of which is in the result, in the same order. Runs in the calling thread,
/// until all have answered or the time is over.
pub fn survey(options: SurveyOptions) -> Vec<SurveyedTarget> {
    let SurveyOptions { interface, wwpn, wwnn, targets, timeout } = options;
    // Half of them is left for frames other than data.
    let role = SurveyRole::new(targets, receive_capacity(&*interface.fcoe) / 2);
    let options = PortOptions::new(interface, (wwpn, wwnn), E_D_TOV);
    let (port, ports) = options.open(INITIATOR, role);
    let mut events = EventLoop::new(SurveyLoop { port }, ports, Spin::new(Duration::ZERO));
    let end = Clock::Monotonic.now() + timeout;
    events.run_until(end, |tenant, _| tenant.is_over());
    let (SurveyLoop { port }, ports) = events.parts();
    let trouble = ports.iter().find_map(|(_, port)| port.trouble());
    let found = port.role.found(|target| Obstacle::before_login(port, trouble, target));
    let now = Clock::Monotonic.now();
    port.log_out(now);
    events.turn(now);
    found
}

/// The tenant of the loop.
struct SurveyLoop {
    port: NPort<SurveyRole>,
}

impl Tenant for SurveyLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn obey(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.port.attend(now, ports)
    }

    fn work(&mut self, _: Instant) -> bool {
        while let Some(notice) = self.port.poll_notice() {
            if let Notice::Login(port::Event::Failed(wwpn, code, failure)) = notice {
                self.port.role.note_refusal(wwpn, (code, failure));
            }
        }
        false
    }

    fn is_over(&self) -> bool {
        self.port.role.is_done()
    }
}
