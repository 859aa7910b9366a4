//! A survey: the logical units that targets show us, without a session.
//!
//! The port logs in to each target, asks for the list of its LUNs, and for the properties of each
//! of them, as a session does before it has a disk, and logs out. In a fabric it finds the targets
//! itself, for the name server tells only those that are logged in.

mod role;

use std::time::Duration;

use tyche_engine::{EventLoop, Ports, Protocol, Service, now};
use tyche_fc::neighbour::{self, Neighbour};
use tyche_fc::network::Mode;
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
    /// The kind of its network.
    pub mode: Mode,
    /// Name of the port of this end.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// The targets to ask.
    pub targets: Targets,
    /// The time after which answers are not waited for any more.
    pub timeout: Duration,
}

/// The targets that a survey is about.
#[derive(Clone, Debug)]
pub enum Targets {
    /// The ports with these names.
    Named(Vec<Wwn>),
    /// The ports of a fabric that are found, up to 64.
    Fabric,
}

/// The result of a survey.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// The targets: those that were named, in that order, or those that were found.
    pub targets: Vec<SurveyedTarget>,
    /// The ports that are known, targets and others.
    pub neighbours: Vec<Neighbour>,
    /// The obstacle on the way to all of them, if there was one.
    pub obstacle: Option<Obstacle>,
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

/// Asks the targets. Runs in the calling thread, until all have answered or the time is over, or if
/// there is no fabric by half of it.
pub fn survey(options: SurveyOptions) -> Surveyed {
    let SurveyOptions { interface, mode, wwpn, wwnn, targets, timeout } = options;
    // Half of them is left for frames other than data.
    let role = SurveyRole::new(targets, receive_capacity(&*interface.fcoe) / 2);
    let options = PortOptions { mode, ..PortOptions::new(interface, (wwpn, wwnn), E_D_TOV) };
    let (port, ports) = options.open(INITIATOR, role);
    let mut events = EventLoop::new(SurveyLoop { port }, ports, Spin::new(Duration::ZERO));
    let start = now();
    events.run_until(start + timeout / 2, |service, _| service.is_over());
    let (SurveyLoop { port }, _) = events.parts();
    if port.address().is_some() || mode == Mode::Vn2vn {
        events.run_until(start + timeout, |service, _| service.is_over());
    }
    let (SurveyLoop { port }, ports) = events.parts();
    let trouble = ports.iter().find_map(|(_, port)| port.trouble());
    let obstacle = Obstacle::before_address(port, trouble);
    let targets = port.role.found(|target| Obstacle::before_login(port, trouble, target));
    let neighbours = port.neighbours().copied().collect();
    let now = now();
    port.log_out(now);
    events.turn(now);
    Surveyed { targets, neighbours, obstacle }
}

/// The service of the loop.
struct SurveyLoop {
    port: NPort<SurveyRole>,
}

impl Service for SurveyLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.port.attend(now, ports)
    }

    fn work(&mut self, _: Instant) -> bool {
        while let Some(notice) = self.port.poll_notice() {
            match notice {
                Notice::Login(port::Event::Failed(wwpn, code, failure)) => {
                    self.port.role.note_refusal(wwpn, (code, failure));
                }
                Notice::Neighbour(neighbour::Event::Appeared(it)) if it.functions.target => {
                    self.port.role.find_target(it.wwpn);
                }
                _ => {}
            }
        }
        false
    }

    fn is_over(&self) -> bool {
        self.port.network().is_settled() && self.port.role.is_done()
    }
}
