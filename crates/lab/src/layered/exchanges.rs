//! The exchange manager, one for all, behind a lock.

use std::sync::{Arc, Mutex, PoisonError};

use tyche_fcoe::fc::wire::Xid;

/// The number of exchanges, and the first XID after theirs.
const EXCHANGES: u16 = 0x1000;

struct Table<P> {
    /// The packet of each exchange, which a thread at work with it holds as well.
    packets: Vec<Option<Arc<P>>>,
    /// The XID to try next: they are used in rotation.
    next: u16,
}

/// The table of exchanges that all threads share, by XID. Each has its packet, of which a thread at
/// work with it holds a reference as well.
pub(super) struct Exchanges<P>(Mutex<Table<P>>);

impl<P> Exchanges<P> {
    pub(super) fn new() -> Self {
        let packets = (0..EXCHANGES).map(|_| None).collect();
        Self(Mutex::new(Table { packets, next: 0 }))
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an exchange; `None` if all are in use.
    pub(super) fn open(&self, packet: &Arc<P>) -> Option<Xid> {
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
    pub(super) fn find(&self, xid: Xid) -> Option<Arc<P>> {
        self.table().packets.get(usize::from(xid.0))?.clone()
    }

    /// Ends an exchange.
    pub(super) fn close(&self, xid: Xid) {
        self.table().packets[usize::from(xid.0)] = None;
    }
}
