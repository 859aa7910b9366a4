//! Obstacles on the way to a disk, in words.

use tyche_fcoe::Obstacle;
use tyche_fcoe::fc::port::Failure;

use crate::error::Code;

/// The obstacle on the way to a disk of a target's port on a link, and what to do about it.
pub(crate) fn explain(obstacle: &Obstacle, port: &str, link: &str) -> (Code, String) {
    match obstacle {
        Obstacle::Interface(fault) => (Code::Link, fault.clone()),
        Obstacle::NoAddress => {
            let why = format!("no N_Port_ID is free on {link}, or others claim it again and again");
            (Code::Unreachable, why)
        }
        Obstacle::NotHeard => {
            let why = format!(
                "port {port} is not heard on {link}; `tyche discover --fcoe --link {link}` lists \
                 those that are: check the WWPN, cables and VLAN, and that the target runs"
            );
            (Code::Unreachable, why)
        }
        Obstacle::NoTarget => {
            let why = format!(
                "port {port} serves no disks; `tyche discover --fcoe --link {link}` shows which do"
            );
            (Code::NotFound, why)
        }
        Obstacle::NoLogin(None | Some((_, Failure::Silence))) => {
            let why = format!(
                "port {port} is heard on {link}, but does not answer logins: long frames may not \
                 get through; check the MTU at both ends and on switches between them"
            );
            (Code::Unreachable, why)
        }
        Obstacle::NoLogin(Some((request, failure))) => {
            let why = format!(
                "port {port} refuses {request:?} ({failure:?}): check its access list, and that \
                 its name is not used twice"
            );
            (Code::Refused, why)
        }
        Obstacle::NoLun(luns) if luns.is_empty() => {
            let why = "it has no LUN for this host: check its access list".to_owned();
            (Code::NotFound, why)
        }
        Obstacle::NoLun(luns) => {
            let luns: Vec<_> = luns.iter().map(ToString::to_string).collect();
            (Code::NotFound, format!("it has no such LUN; there are: {}", luns.join(", ")))
        }
        Obstacle::Unusable(error) => (Code::Device, error.to_string()),
        Obstacle::Asking => {
            (Code::Unreachable, "the target does not answer commands in time".to_owned())
        }
    }
}
