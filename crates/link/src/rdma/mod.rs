//! The same frames written into the peer's memory by network cards that can do that (RDMA).
//!
//! Each end has a *window*, memory that its peer's card writes to: a ring of frames, and the peer's
//! report how far it has taken frames out of its own ring. Nobody reads the memory of others, and
//! nothing is sent to a buffer that the receiver chooses (docs/protocol-annexes.md, "Frames over
//! RDMA"; the design is that of Marazakis et al., *Efficient Remote Block-level I/O over an
//! RDMA-capable NIC*, ICS 2006).
//!
//! ```text
//!  send     batch --copy--> staging memory --one write--> ring in the peer's window
//!                                             `-- its immediate: how far the ring is filled
//!  receive  completion queue --how far--> ring in our window --copy--> batch
//! ```
//!
//! A batch of frames is one write, two where the ring ends, and more only if it is long: then its
//! parts are taken out while others are staged. A write carries an *immediate*, which tells the
//! receiver how far its ring is filled and, if that sleeps, wakes it. A record's head tells how far
//! the sender has taken frames out of its own ring, so that this takes a write of its own only if
//! frames go one way for long.
//!
//! Which writes have ended is looked at only when the table of writes is nearly full, and an
//! interrupt is asked for only before its receiver sleeps: it does, and looks once more.
//!
//! A frame is copied out of the window before anybody looks at it. The peer has the key to the
//! window, and can write there at any time.
//!
//! Data need not go through the ring. An end that has memory for them ([`Placement`]) tells its
//! peer in a *note*, a record among those of frames; from then on the peer writes data where they
//! belong, and then a record of the frame without them. Writes take effect in order, so the data
//! are there when the record is announced.
//!
//! [`Placement`]: crate::Placement

mod connection;
pub mod double;
mod exposures;
mod immediates;
mod pair;
pub mod placed;
mod region;
mod ring;
mod verbs;
pub mod window;

pub use connection::{RdmaConnection, RdmaCounts};
pub use exposures::{Exposures, REGIONS_MAX};
pub use pair::{QueuePair, Write};
pub use region::Region;
pub use ring::QueueKind;

use double::{DoubleClient, DoubleServer};
use verbs::Verbs;

use crate::connections::{Client, ConnectionOptions, Server};
use crate::ip::{End, Transport};

/// RDMA among the transports.
pub(crate) static TRANSPORT: Transport = Transport {
    name: "rdma",
    number: 3,
    is_routed: false,
    // By the cards (ICRC; CRC32C with iWARP).
    checks_data: true,
    has_threads: false,
    no_host: "there is no host",
    open: |_, addresses, end| {
        let options = RdmaOptions::default();
        match (end, double::enabled()) {
            (End::Host, None) => Ok(RdmaClient::connect(addresses, &options)?.into()),
            (End::Host, Some(double)) => Ok(DoubleClient::connect(addresses, double)?.into()),
            (_, None) => Ok(RdmaServer::listen(addresses, &options)?.into()),
            (_, Some(double)) => Ok(DoubleServer::listen(addresses, double)?.into()),
        }
    },
};

/// A link over many connections, for a target.
pub type RdmaServer = Server<Verbs>;
/// A link over one connection, for a host.
pub type RdmaClient = Client<Verbs>;

/// The longest frame: that of an Ethernet with jumbo frames, which carries two pages.
pub const FRAME_LEN_MAX: usize = 14 + 9000;

/// Frames of the longest length that are in flight each way, for the largest receive rings.
const FRAMES: u32 = 128;

/// Options of a link's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaOptions {
    /// Units of the ring in a window, [`window::UNIT`] bytes each. A connection takes this memory
    /// for good, and as much as its peer's window has.
    pub units: u32,
    /// How both ends tell each other how far rings are filled.
    pub kind: QueueKind,
    /// Whether the peer is told where to place data, instead of in frames.
    pub places: bool,
    /// The longest frame in bytes.
    pub frame_len_max: usize,
    /// The most connections of a server, 1 to 255.
    pub connections_max: usize,
}

impl Default for RdmaOptions {
    fn default() -> Self {
        let units = const { window::units_for(FRAMES, FRAME_LEN_MAX) };
        let kind = QueueKind::default();
        Self { units, kind, places: true, frame_len_max: FRAME_LEN_MAX, connections_max: 128 }
    }
}

impl ConnectionOptions for RdmaOptions {
    fn connections_max(&self) -> usize {
        self.connections_max
    }

    fn frame_len_max(&self) -> usize {
        self.frame_len_max
    }

    /// The capacity of the ring of a connection.
    fn capacity(&self, frame_len: usize) -> usize {
        window::capacity(self.units, frame_len)
    }
}
