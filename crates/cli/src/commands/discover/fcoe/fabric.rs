//! The ports of a fabric, as its name server shows them to a port that is logged in.

use std::collections::BTreeSet;
use std::time::Duration;

use tyche_fcoe::{FoundNeighbour, Surveyed, Targets};

use super::super::DiscoverArgs;
use super::{luns, print};
use crate::output::Format;
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::DiscoveredPort;

/// Time limit for all answers on a link, without the time to listen: half of it is for the login
/// with the fabric.
const LIMIT: Duration = Duration::from_secs(10);

/// Lists the ports on all links, and the disks of the targets among them.
///
/// # Errors
/// `NotFound` if there are none.
pub(super) fn run(args: &DiscoverArgs) -> Result<()> {
    let interfaces = args.link.open_fcoe(&args.links)?;
    let timeout = LIMIT + Duration::from_secs_f64(2.0 * args.timeout);
    let prepared = interfaces.into_iter().map(|interface| {
        let (link, warning) = (interface.name().to_owned(), interface.warning());
        warning.iter().for_each(|warning| tracing::warn!("{warning}"));
        (link, luns::prepare(args, interface, Targets::Fabric, timeout))
    });
    let (mut ports, mut obstacles) = (Vec::new(), Vec::new());
    for (link, answers) in luns::survey_all(prepared.collect()) {
        match &answers {
            Ok(Surveyed { obstacle: Some(obstacle), .. }) => {
                obstacles.push(luns::in_our_way(obstacle, &link));
            }
            Ok(surveyed) => ports.extend(described(&link, surveyed, &answers)),
            Err(error) => obstacles.push(error.clone()),
        }
    }
    if ports.is_empty() && args.output == Format::Text {
        if obstacles.is_empty() {
            obstacles.push("the fabric shows no other port to this machine: check zones".into());
        }
        return Err(Error::new(Code::NotFound, obstacles.join("; ")));
    }
    obstacles.iter().for_each(|obstacle| tracing::warn!("{obstacle}"));
    print(args, &ports, &BTreeSet::new())
}

/// The ports of a link, in the order of their names.
fn described(
    link: &str,
    surveyed: &Surveyed,
    answers: &Result<Surveyed, String>,
) -> Vec<DiscoveredPort> {
    let mut neighbours = surveyed.neighbours.clone();
    neighbours.sort_by_key(|it| it.wwpn);
    let found = neighbours.into_iter().map(|neighbour| {
        luns::described(&FoundNeighbour { link: link.to_owned(), neighbour }, Some(answers))
    });
    found.collect()
}
