//! The initiators that a target knows, and what each has not been told of.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::attention::{Attentions, Pending};
use crate::lun::{LunSet, UNITS_MAX};
use crate::vpd::TargetPort;

/// An initiator that is logged in at a port, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NexusId(u16);

/// All places for initiators are taken by those that are logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// An initiator.
#[derive(Clone, Debug)]
pub(super) struct Nexus {
    /// Its name, a WWPN.
    initiator: u64,
    /// The number of its logout; `None` while it is logged in.
    left: Option<u64>,
    /// The logical units that it may know of.
    pub(super) visible: LunSet,
    /// The port that it is logged in with.
    pub(super) port: TargetPort,
    /// Whether it confirms that it was told of an attention.
    pub(super) confirms: bool,
    pub(super) attentions: Box<[Attentions; UNITS_MAX]>,
}

impl Nexus {
    fn new(initiator: u64, visible: LunSet, port: TargetPort) -> Self {
        let mut nexus = Self {
            initiator,
            left: None,
            visible,
            port,
            confirms: false,
            attentions: Box::new([Attentions::default(); UNITS_MAX]),
        };
        nexus.tell_all(Pending::PowerOn);
        nexus
    }

    fn tell_all(&mut self, attention: Pending) {
        self.attentions.iter_mut().for_each(|attentions| attentions.add(attention));
    }
}

/// The initiators, in a table of fixed size. Those that have logged out are remembered until their
/// place is needed: one that comes back has lost its nexus, but has seen no power on.
#[derive(Debug)]
pub(super) struct Nexuses {
    table: Vec<Nexus>,
    max: u16,
    logouts: u64,
}

impl Nexuses {
    pub(super) fn new(max: u16) -> Self {
        Self { table: Vec::with_capacity(max.into()), max, logouts: 0 }
    }

    pub(super) fn login(
        &mut self,
        (initiator, port): (u64, TargetPort),
        visible: LunSet,
    ) -> Result<NexusId, NoRoom> {
        let is_it = |nexus: &Nexus| nexus.initiator == initiator && nexus.port.name == port.name;
        let known = self.table.iter().position(is_it);
        if let Some(known) = known {
            let nexus = &mut self.table[known];
            (nexus.left, nexus.visible, nexus.confirms) = (None, visible, false);
            nexus.port = port;
            nexus.tell_all(Pending::NexusLoss);
            return Ok(NexusId(known as u16));
        }
        if self.table.len() < usize::from(self.max) {
            self.table.push(Nexus::new(initiator, visible, port));
            return Ok(NexusId(self.table.len() as u16 - 1));
        }
        let left = self.table.iter().enumerate().filter_map(|(at, it)| Some((it.left?, at)));
        let (_, oldest) = left.min().ok_or(NoRoom)?;
        self.table[oldest] = Nexus::new(initiator, visible, port);
        Ok(NexusId(oldest as u16))
    }

    /// Changes which logical units are visible to each initiator, by its name.
    pub(super) fn show(&mut self, visible: impl Fn(u64) -> LunSet) {
        self.table.iter_mut().for_each(|nexus| nexus.visible = visible(nexus.initiator));
    }

    /// Whether a logical unit is visible to any.
    pub(super) fn see(&self, number: u8) -> bool {
        self.table.iter().any(|nexus| nexus.visible.has(number))
    }

    pub(super) fn logout(&mut self, id: NexusId) {
        if let Some(nexus) = self.table.get_mut(usize::from(id.0)).filter(|it| it.left.is_none()) {
            nexus.left = Some(self.logouts);
            self.logouts += 1;
        }
    }

    /// The initiator, if it is logged in.
    pub(super) fn get(&self, id: NexusId) -> Option<&Nexus> {
        self.table.get(usize::from(id.0)).filter(|nexus| nexus.left.is_none())
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, id: NexusId) -> Option<&mut Nexus> {
        self.table.get_mut(usize::from(id.0)).filter(|nexus| nexus.left.is_none())
    }

    /// Tells all initiators but one what has happened to a logical unit, also those that are away.
    pub(super) fn tell(&mut self, unit: u8, attention: Pending, except: Option<NexusId>) {
        for (at, nexus) in self.table.iter_mut().enumerate() {
            if except != Some(NexusId(at as u16)) {
                nexus.attentions[usize::from(unit)].add(attention);
            }
        }
    }

    /// Tells all initiators that there are other logical units.
    pub(super) fn tell_luns_changed(&mut self) {
        self.table.iter_mut().for_each(|nexus| nexus.tell_all(Pending::LunsChanged));
    }
}
