//! A survey: the logical units that targets show us, without a session.
//!
//! The port logs in to each target, asks for the list of its LUNs, and for the properties of each
//! of them, as a session does before it has a disk, and logs out.

mod role;

use std::time::Duration;

use tyche_engine::{Clock, EventLoop, Ports, Protocol, Tenant};
use tyche_fc::port;
use tyche_fc::vn2vn::Functions;
use tyche_fc::wire::Wwn;
use tyche_numa::Home;
use tyche_scsi::Lun;
use tyche_scsi::initiator::Disk;
use tyche_time::Instant;
use tyche_wake::Spin;

use crate::initiator::Obstacle;
use crate::interface::Interface;
use crate::n_port::{NPort, NPortConfig, Notice};
use role::{SurveyConfig, SurveyRole};

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
    let fcoe = &interface.fcoe;
    // Half of them is left for frames other than data.
    let frames = fcoe.receive_capacity(fcoe.frame_len_max()) as u32 / 2;
    let role =
        SurveyRole::new(&SurveyConfig { targets, frames, end: Clock::Monotonic.now() + timeout });
    let functions = Functions { initiator: true, target: false };
    let port = NPort::new(NPortConfig::new((wwpn, wwnn), functions, E_D_TOV), role);
    let tenant = SurveyLoop { port, trouble: None, found: None };
    let ports = interface.into_ports(&Home::default());
    let tenant = EventLoop::new(tenant, ports, Spin::new(Duration::ZERO)).run();
    tenant.found.expect("the loop ends with it")
}

/// The tenant of the loop.
struct SurveyLoop {
    port: NPort<SurveyRole>,
    /// The fault of the interface.
    trouble: Option<String>,
    /// The result, at the end.
    found: Option<Vec<SurveyedTarget>>,
}

impl SurveyLoop {
    fn conclude(&self) -> Vec<SurveyedTarget> {
        let before_login = |target: Wwn| {
            let trouble = self.trouble.as_deref();
            Obstacle::before_login(&self.port, trouble, target)
        };
        self.port.role.found(before_login)
    }
}

impl Tenant for SurveyLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn obey(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.trouble = ports.iter().find_map(|(_, port)| port.trouble()).map(str::to_owned);
        self.port.attend(now, ports)
    }

    fn work(&mut self, now: Instant) -> bool {
        while let Some(notice) = self.port.poll_notice() {
            if let Notice::Login(port::Event::Failed(wwpn, code, failure)) = notice {
                self.port.role.note_refusal(wwpn, (code, failure));
            }
        }
        if !self.port.role.is_over(now) {
            return false;
        }
        self.found = Some(self.conclude());
        // What is sent for that leaves in this turn, the last one.
        self.port.log_out(now);
        true
    }

    fn is_over(&self) -> bool {
        self.found.is_some()
    }
}
