//! The way of a link service: its answer goes back by the same.

use tyche_fc_wire::Mac;
use tyche_fc_wire::fip::Service;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// By FIP, to the node with that address: services that make or end a virtual link.
    Fip(Mac, Service),
    /// From port to port: all others.
    Port,
}
