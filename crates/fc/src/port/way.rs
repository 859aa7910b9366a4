//! How link services are carried.

use tyche_fc_wire::Mac;
use tyche_fc_wire::fip::Service;

/// The encapsulation of a link service: FIP or FCoE. A request and its answer have the same one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// By FIP, to the node with that address: services that make or end a virtual link.
    Fip(Mac, Service),
    /// From port to port: all others.
    Port,
}
