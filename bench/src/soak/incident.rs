//! Random incidents of links and target, one after the other, each with frame loss meanwhile.

use std::fmt;
use std::time::Duration;

use super::random::Random;
use crate::network::{Network, SIDES, Side};
use crate::process::{Result, Stop};

/// Cables between host and target.
pub(super) const CABLES: u16 = 3;
/// Maximum loss of a cable: frames of 10,000, each way.
const LOSS_MAX: u64 = 200;
/// Maximum number of flaps of an interface, and the time that it stays down or up.
const FLAPS_MAX: u64 = 10;
const FLAP: Duration = Duration::from_millis(150);
/// The names of the nft tables that drop frames.
const CUT: &str = "cut";
const LOSS: &str = "loss";

/// The ends of links that an incident affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Host,
    Target,
    Both,
}

impl Ends {
    fn sides(self) -> &'static [Side] {
        match self {
            Self::Host => &[Side::Host],
            Self::Target => &[Side::Target],
            Self::Both => &SIDES,
        }
    }
}

/// The kind of an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Only frame loss.
    Loss,
    /// Cables lose all frames that arrive at an end; neither side is notified.
    Cut { cables: Vec<u16>, at: Ends },
    /// Interfaces are set down.
    Down { cables: Vec<u16>, at: Ends },
    /// An interface of the host is set down and up several times.
    Flap { cable: u16, times: u64 },
    /// The target is killed, and started again later.
    Kill,
}

/// An event that lasts for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incident {
    pub(super) what: What,
    pub(super) lasts: Duration,
    /// Pause until the next incident.
    pub(super) quiet: Duration,
    /// Frames lost of 10,000, each way, by cable, also in the pause after it.
    loss: [u64; CABLES as usize],
}

impl Incident {
    pub(super) fn draw(random: &mut Random) -> Self {
        let at = random.pick(&[Ends::Host, Ends::Target, Ends::Both]);
        // More often than not, at least one cable stays intact.
        let count = random.pick(&[1, 1, 2, 2, 2, 3]);
        let first = random.within(0..=u64::from(CABLES) - 1) as u16;
        let cables: Vec<_> = (first..first + count).map(|it| it % CABLES).collect();
        let what = match random.within(0..=8) {
            0 => What::Loss,
            1..=3 => What::Cut { cables, at },
            4 | 5 => What::Down { cables, at },
            6 => What::Flap { cable: first, times: random.within(2..=FLAPS_MAX) },
            _ => What::Kill,
        };
        let is_lossy = random.within(0..=1) == 1;
        Self {
            what,
            lasts: random.millis(50..=4000),
            quiet: random.millis(200..=3000),
            loss: [(); CABLES as usize]
                .map(|()| random.within(0..=LOSS_MAX))
                .map(|loss| if is_lossy { loss } else { 0 }),
        }
    }

    /// The name of this kind of incident.
    pub(super) fn kind(&self) -> &'static str {
        match &self.what {
            What::Loss => "loss alone",
            What::Cut { at: Ends::Both, .. } => "cut both ways",
            What::Cut { .. } => "cut one way",
            What::Down { .. } => "interfaces down",
            What::Flap { .. } => "interface flaps",
            What::Kill => "target killed",
        }
    }

    /// Applies the incident's frame loss, in place of that of the incident before.
    pub(super) fn lose(&self, network: &Network, stop: &Stop) -> Result<()> {
        for (cable, loss) in (0..).zip(self.loss) {
            let table = format!("{LOSS}{cable}");
            network.unfilter(&table, &SIDES, stop)?;
            if loss > 0 {
                let rule = format!("numgen random mod 10000 < {loss} drop");
                network.filter(&table, &SIDES, &[cable], &rule, stop)?;
            }
        }
        Ok(())
    }

    /// Begins the incident on the links; the owner of the target kills it.
    pub(super) fn begin(&self, network: &Network, stop: &Stop) -> Result<()> {
        match &self.what {
            What::Cut { cables, at } => network.filter(CUT, at.sides(), cables, "drop", stop),
            What::Down { cables, at } => set(network, *at, cables, "down", stop),
            What::Flap { cable, times } => {
                for _ in 0..*times {
                    set(network, Ends::Host, &[*cable], "down", stop)?;
                    stop.pause(FLAP)?;
                    set(network, Ends::Host, &[*cable], "up", stop)?;
                    stop.pause(FLAP)?;
                }
                Ok(())
            }
            What::Loss | What::Kill => Ok(()),
        }
    }

    /// Undoes what [`begin`](Self::begin) did.
    pub(super) fn end(&self, network: &Network, stop: &Stop) -> Result<()> {
        match &self.what {
            What::Cut { at, .. } => network.unfilter(CUT, at.sides(), stop),
            What::Down { cables, at } => set(network, *at, cables, "up", stop),
            What::Flap { .. } | What::Loss | What::Kill => Ok(()),
        }
    }
}

fn set(network: &Network, at: Ends, cables: &[u16], state: &str, stop: &Stop) -> Result<()> {
    at.sides().iter().try_for_each(|side| network.set_links(*side, cables, state, stop))
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = |at: &Ends| match at {
            Ends::Host => "at the host",
            Ends::Target => "at the target",
            Ends::Both => "at both ends",
        };
        match &self.what {
            What::Loss => f.write_str("no more than loss")?,
            What::Cut { cables, at } => write!(f, "cables {cables:?} cut {}", ends(at))?,
            What::Down { cables, at } => write!(f, "interfaces {cables:?} down {}", ends(at))?,
            What::Flap { cable, times } => write!(f, "interface {cable} flaps {times} times")?,
            What::Kill => f.write_str("target killed")?,
        }
        write!(f, " for {} ms; lost of 10,000: {:?}", self.lasts.as_millis(), self.loss)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_happens_and_all_follows_from_the_start() {
        let draw = || {
            let mut random = Random::new(7);
            (0..200).map(|_| Incident::draw(&mut random)).collect::<Vec<_>>()
        };
        let incidents = draw();
        assert_eq!(incidents, draw());
        let kinds: BTreeSet<_> = incidents.iter().map(Incident::kind).collect();
        assert_eq!(kinds.len(), 6, "{kinds:?}");
        for incident in incidents {
            let (What::Cut { cables, .. } | What::Down { cables, .. }) = incident.what else {
                continue;
            };
            let distinct: BTreeSet<_> = cables.iter().filter(|it| **it < CABLES).collect();
            assert_eq!(distinct.len(), cables.len(), "{cables:?}");
        }
    }
}
