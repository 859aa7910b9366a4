//! The exchange manager, one for all, behind a lock.

use std::sync::{Arc, Mutex, PoisonError};

use tyche_fcoe::fc::wire::Xid;

use super::packet::FcpPacket;

/// The number of exchanges, and the first XID after theirs.
const EXCHANGES: u16 = 0x1000;

/// The packet of an exchange, which both the manager and a thread at work with it hold.
pub(super) type SharedPacket = Arc<Mutex<FcpPacket>>;

struct Table {
    packets: Vec<Option<SharedPacket>>,
    /// The XID to try next: they are used in rotation.
    next: u16,
}

/// See the module.
pub(super) struct Exchanges(Mutex<Table>);

impl Exchanges {
    pub(super) fn new() -> Self {
        let packets = vec![None; EXCHANGES.into()];
        Self(Mutex::new(Table { packets, next: 0 }))
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an exchange; `None` if all are in use.
    pub(super) fn open(&self, packet: &SharedPacket) -> Option<Xid> {
        let mut table = self.table();
        for _ in 0..EXCHANGES {
            let xid = table.next;
            table.next = (xid + 1) % EXCHANGES;
            let place = &mut table.packets[usize::from(xid)];
            if place.is_none() {
                *place = Some(Arc::clone(packet));
                return Some(Xid(xid));
            }
        }
        None
    }

    /// The packet of an exchange.
    pub(super) fn find(&self, xid: Xid) -> Option<SharedPacket> {
        self.table().packets.get(usize::from(xid.0))?.clone()
    }

    /// Ends an exchange.
    pub(super) fn close(&self, xid: Xid) {
        self.table().packets[usize::from(xid.0)] = None;
    }
}
