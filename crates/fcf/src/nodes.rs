//! The ports that are logged in, and what they have registered.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_fc_wire::els::FabricLogin;
use tyche_fc_wire::fip::VnPort;
use tyche_fc_wire::{FcMap, Mac, PortId, Wwn};
use tyche_time::Instant;

/// A port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The address of its interface.
    pub(crate) enode: Mac,
    pub(crate) id: PortId,
    pub(crate) wwpn: Wwn,
    pub(crate) heard: Instant,
    /// Whether it is logged in with the name server.
    pub(crate) is_named: bool,
    /// Whether it has registered FCP, and its functions there.
    pub(crate) has_fcp: bool,
    pub(crate) functions: u8,
    /// Whether it is to be told of changes.
    pub(crate) is_subscribed: bool,
}

impl Node {
    /// Its Ethernet address.
    pub(crate) fn mac(&self) -> Mac {
        Mac::fpma(FcMap::FABRIC, self.id)
    }

    pub(crate) fn vn_port(&self) -> VnPort {
        VnPort { mac: self.mac(), id: self.id, name: self.wwpn }
    }
}

/// The table of ports that are logged in, and the N_Port_IDs of all that ever were. It grows with
/// each new name: nobody is kept out.
pub(crate) struct Nodes {
    domain: u8,
    all: Vec<Node>,
    /// The N_Port_IDs of all ports that have ever logged in.
    ids: BTreeMap<Wwn, PortId>,
}

impl Nodes {
    pub(crate) fn new(domain: u8) -> Self {
        Self { domain, all: Vec::new(), ids: BTreeMap::new() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.all.iter()
    }

    pub(crate) fn find(&self, id: PortId) -> Option<&Node> {
        self.all.iter().find(|it| it.id == id)
    }

    pub(crate) fn find_mut(&mut self, id: PortId) -> Option<&mut Node> {
        self.all.iter_mut().find(|it| it.id == id)
    }

    /// Adds a port that logs in from an interface.
    pub(crate) fn add(&mut self, now: Instant, enode: Mac, login: &FabricLogin) -> Node {
        let number = (u32::from(self.domain) << 16) + self.ids.len() as u32 + 1;
        let id = *self.ids.entry(login.wwpn).or_insert(PortId::new(number));
        let node = Node {
            enode,
            id,
            wwpn: login.wwpn,
            heard: now,
            is_named: false,
            has_fcp: false,
            functions: 0,
            is_subscribed: false,
        };
        self.all.push(node);
        node
    }

    /// Removes all.
    pub(crate) fn take(&mut self) -> Vec<Node> {
        std::mem::take(&mut self.all)
    }

    pub(crate) fn remove(&mut self, id: PortId) {
        self.all.retain(|it| it.id != id);
    }

    /// Notes that ports are still there; false if there is none like that.
    pub(crate) fn hear(&mut self, now: Instant, which: impl Fn(&Node) -> bool) -> bool {
        let mut is_known = false;
        for node in self.all.iter_mut().filter(|it| which(it)) {
            (node.heard, is_known) = (now, true);
        }
        is_known
    }

    /// A port that has been silent for that long.
    pub(crate) fn silent(&self, now: Instant, time: Duration) -> Option<Node> {
        self.all.iter().find(|it| it.heard + time <= now).copied()
    }
}
