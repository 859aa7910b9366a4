//! The error when a disk can't be used in time.

use std::fmt;
use std::time::Duration;

use thiserror::Error;
use tyche_fcoe::Obstacle;
use tyche_fcoe::fc::port::Failure;

use super::disk::parse_disk;

/// A disk that can't be used in time.
#[derive(Debug, Error)]
pub struct Unreached {
    /// `WWPN[:LUN]`.
    pub disk: String,
    /// The interface.
    pub link: String,
    /// How long it was tried.
    pub within: Duration,
    /// The obstacle on the way to it.
    pub obstacle: Obstacle,
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (disk, seconds) = (&self.disk, self.within.as_secs_f64());
        write!(f, "cannot connect `{disk}` within {seconds} s: {}", self.why())
    }
}

impl Unreached {
    /// The obstacle in words, with its remedy.
    fn why(&self) -> String {
        let Self { disk, link, .. } = self;
        let port = parse_disk(disk).map_or_else(|_| disk.clone(), |(wwpn, _)| wwpn.to_string());
        explain(&self.obstacle, &port, link)
    }
}

/// The obstacle on the way to a disk of a target's port on a link, in words, with its remedy.
pub fn explain(obstacle: &Obstacle, port: &str, link: &str) -> String {
    match obstacle {
        Obstacle::Interface(fault) => fault.clone(),
        Obstacle::NoAddress => {
            format!("no N_Port_ID is free on {link}, or others claim it again and again")
        }
        Obstacle::NoForwarder => format!(
            "no forwarder (FCF) of a fabric answers on {link}: check cables and VLAN, or leave out \
             --fcoe-mode fabric if there is no fabric"
        ),
        Obstacle::NoFabricLogin => format!(
            "the forwarder (FCF) on {link} does not let this machine log in: check its access \
             list, and the MTU on the way, which long frames must get through"
        ),
        Obstacle::NotHeard => format!(
            "port {port} is not heard on {link}; `tyche discover --fcoe --link {link}` lists \
             those that are: check the WWPN, cables, VLAN, zones and --fcoe-mode, and that the \
             target runs"
        ),
        Obstacle::NoTarget => format!(
            "port {port} serves no disks; `tyche discover --fcoe --link {link}` shows which do"
        ),
        Obstacle::NoLogin(None | Some((_, Failure::Silence))) => format!(
            "port {port} is heard on {link}, but does not answer logins: long frames may not \
             get through; check the MTU at both ends and on switches between them"
        ),
        Obstacle::NoLogin(Some((request, failure))) => format!(
            "port {port} refuses {request:?} ({failure:?}): check its access list, and that \
             its name is not used twice"
        ),
        Obstacle::NoLun(luns) if luns.is_empty() => {
            "it has no LUN for this host: check its access list".to_owned()
        }
        Obstacle::NoLun(luns) => {
            let luns: Vec<_> = luns.iter().map(ToString::to_string).collect();
            format!("it has no such LUN; there are: {}", luns.join(", "))
        }
        Obstacle::Unusable(error) => error.to_string(),
        Obstacle::Asking => "the target does not answer commands in time".to_owned(),
    }
}
