//! The disks of the targets that were found.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::{
    FoundNeighbour, Interface, Obstacle, SurveyOptions, Surveyed, SurveyedTarget, SurveyedUnit,
    Targets, survey,
};
use tyche_session::fcoe::{Numbers, PortName, explain};

use super::super::DiscoverArgs;
use crate::output::{Table, bytes};
use crate::shared::error::{CodedResult, Result};
use crate::shared::report::{DiscoveredLun, DiscoveredPort, LunProperties};

/// Time limit for all answers of the targets on a link.
const LIMIT: Duration = Duration::from_secs(5);

/// The ports with the disks of those that are targets, which are asked on all links at once.
pub(super) fn find(args: &DiscoverArgs, found: &[FoundNeighbour]) -> Vec<DiscoveredPort> {
    let mut targets = BTreeMap::<&str, Vec<Wwn>>::new();
    for FoundNeighbour { link, neighbour } in found.iter().filter(|it| is_target(it)) {
        targets.entry(link).or_default().push(neighbour.wwpn);
    }
    let prepared = targets.into_iter().map(|(link, targets)| {
        let interface = args.link.open_fcoe_on(link);
        let named = Targets::Named(targets);
        let prepared = interface.and_then(|interface| prepare(args, interface, named, LIMIT));
        (link.to_owned(), prepared)
    });
    let answers = survey_all(prepared.collect());
    let with_disks = |found| described(found, answers.get(&found.link));
    found.iter().map(with_disks).collect()
}

/// A survey that can begin, with the name of its port; or the error.
pub(super) type Prepared = Result<(SurveyOptions, PortName)>;

/// Asks on all links at once; returns the answers or the error of each, by its name.
pub(super) fn survey_all(
    prepared: Vec<(String, Prepared)>,
) -> BTreeMap<String, Result<Surveyed, String>> {
    std::thread::scope(|scope| {
        let asking = prepared.into_iter().map(|(link, prepared)| {
            let asking = prepared.map(|(options, name)| {
                scope.spawn(move || {
                    let _name = name;
                    survey(options)
                })
            });
            (link, asking)
        });
        // All of them begin before one is waited for.
        let asking: Vec<_> = asking.collect();
        let answers = asking.into_iter().map(|(link, asking)| {
            let answers = asking.map(|it| it.join().expect("a survey does not panic"));
            (link, answers.map_err(|error| error.to_string()))
        });
        answers.collect()
    })
}

fn is_target(found: &FoundNeighbour) -> bool {
    found.neighbour.functions.target
}

/// Prepares questions to targets. They are asked under the name that a session would have, because
/// they may show other disks to others.
pub(super) fn prepare(
    args: &DiscoverArgs,
    interface: Interface,
    targets: Targets,
    timeout: Duration,
) -> Prepared {
    let name = PortName::take(interface.mac(), Numbers::Session).coded()?.or(args.wwpn);
    let (mode, wwpn, wwnn) = (args.fcoe_mode, name.wwpn, name.wwnn);
    Ok((SurveyOptions { interface, mode, wwpn, wwnn, targets, timeout }, name))
}

/// The obstacle in the way of all targets, in words.
pub(super) fn in_our_way(obstacle: &Obstacle, link: &str) -> String {
    explain(obstacle, "", link)
}

/// A port with its disks, by the answers on its link.
pub(super) fn described(
    found: &FoundNeighbour,
    answers: Option<&Result<Surveyed, String>>,
) -> DiscoveredPort {
    let port = DiscoveredPort::from(found);
    match answers.filter(|_| is_target(found)) {
        None => port,
        Some(Err(error)) => DiscoveredPort { problem: Some(error.clone()), ..port },
        Some(Ok(Surveyed { targets, .. })) => {
            match targets.iter().find(|it| it.wwpn == found.neighbour.wwpn) {
                Some(target) => with_disks(port, target),
                None => port,
            }
        }
    }
}

fn with_disks(port: DiscoveredPort, target: &SurveyedTarget) -> DiscoveredPort {
    let words = |obstacle: &Obstacle| explain(obstacle, &port.wwpn, &port.interface);
    let luns = target.units.iter().map(|SurveyedUnit { lun, disk }| DiscoveredLun {
        disk: format!("{}:{lun}", port.wwpn),
        properties: disk.as_ref().ok().map(LunProperties::from),
        problem: disk.as_ref().err().map(words),
    });
    let luns: Vec<_> = luns.collect();
    let problem = match &target.obstacle {
        Some(obstacle) => Some(words(obstacle)),
        None if luns.is_empty() => Some(words(&Obstacle::NoLun(Vec::new()))),
        None if target.left_out > 0 => Some(format!("{} more LUNs are not shown", target.left_out)),
        None => None,
    };
    DiscoveredPort { luns, problem, ..port }
}

/// The disks as a table, with the reasons where there are none.
pub(super) fn in_words(ports: &[DiscoveredPort]) -> String {
    let mut table = Table::new(["DISK", "SIZE", "BLOCK", "NAME", "LINK", "STATE"]);
    for port in ports.iter().filter(|port| port.target) {
        for lun in &port.luns {
            table.row(row(&lun.disk, &port.interface, lun.properties.as_ref(), &lun.problem));
        }
        if port.problem.is_some() {
            table.row(row(&port.wwpn, &port.interface, None, &port.problem));
        }
    }
    table.to_string()
}

fn row(
    disk: &str,
    link: &str,
    properties: Option<&LunProperties>,
    problem: &Option<String>,
) -> [String; 6] {
    let known = |of: fn(&LunProperties) -> String| properties.map_or("-".to_owned(), of);
    [
        disk.to_owned(),
        known(|it| bytes(it.size)),
        known(|it| it.block_size.to_string()),
        known(name),
        link.to_owned(),
        problem.clone().unwrap_or_else(|| known(state)),
    ]
}

/// The UUID of an export of ours; the serial number of another disk, or what it is.
fn name(properties: &LunProperties) -> String {
    let LunProperties { uuid, serial, vendor, product, .. } = properties;
    match uuid {
        Some(uuid) => uuid.to_string(),
        None if serial.is_empty() => format!("{vendor} {product}"),
        None => serial.clone(),
    }
}

fn state(properties: &LunProperties) -> String {
    let mode = if properties.read_only { "read-only" } else { "read-write" };
    let cache = if properties.write_cache { ", write-back" } else { "" };
    format!("{mode}{cache}")
}

#[cfg(test)]
mod tests {
    use tyche_block::Geometry;
    use tyche_fcoe::fc::neighbour::{Functions, Neighbour};
    use tyche_fcoe::fc::wire::{Mac, PortId};
    use tyche_fcoe::scsi::Lun;
    use tyche_fcoe::scsi::initiator::{DiscoveryError, Disk};

    use super::*;

    const WWPN: Wwn = Wwn(0x2000_0200_5e10_0001);

    fn port(target: bool) -> FoundNeighbour {
        let neighbour = Neighbour {
            wwpn: WWPN,
            wwnn: Some(Wwn(0x1000_0200_5e10_0001)),
            id: PortId::new(1),
            enode: Mac::default(),
            functions: Functions { initiator: true, target },
            fcoe_len_max: 2158,
        };
        FoundNeighbour { link: "eth1".to_owned(), neighbour }
    }

    fn shown(units: Vec<SurveyedUnit>, obstacle: Option<Obstacle>) -> String {
        let targets = vec![SurveyedTarget { wwpn: WWPN, units, left_out: 0, obstacle }];
        let answers = Ok(Surveyed { targets, neighbours: Vec::new(), obstacle: None });
        in_words(&[described(&port(true), Some(&answers))])
    }

    #[test]
    fn each_target_is_shown_with_its_disks_or_the_reason_why_there_are_none() {
        let disk = Disk::new(Geometry { read_only: true, ..Geometry::new(1 << 30, 512) });
        let units = [Ok(disk), Err(Obstacle::Unusable(DiscoveryError::BlockLen(520)))];
        let units = (0..).map(Lun::peripheral).zip(units);
        let units = units.map(|(lun, disk)| SurveyedUnit { lun, disk });
        let text = shown(units.collect(), None);
        for part in ["00:01:0  1.0 GiB  512", "read-only", "00:01:1  -", "blocks of 520 bytes"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let silent = shown(Vec::new(), Some(Obstacle::NoLogin(None)));
        assert!(silent.contains("does not answer logins"), "{silent}");
        assert!(shown(Vec::new(), None).contains("check its access list"));
        let error = Err("eth1 is down".to_owned());
        let closed = described(&port(true), Some(&error));
        assert_eq!(closed.problem.as_deref(), Some("eth1 is down"));
        assert!(described(&port(false), Some(&error)).problem.is_none());
    }
}
