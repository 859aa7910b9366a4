//! Numbers for the exchanges of link services.

use tyche_fc_wire::Xid;

use crate::exchange::Xids;

/// A range of exchange IDs for link services, used in rotation: an XID is used again only after all
/// others have been.
pub(crate) struct Numbers {
    xids: Xids,
    /// The index of the next.
    next: u16,
}

impl Numbers {
    /// Rotates through all of `xids`. `first`, modulo their number, is the index of the first one.
    pub(crate) fn new(xids: Xids, first: u64) -> Self {
        Self { xids, next: (first % u64::from(xids.count())) as u16 }
    }

    /// Whether `xid` is one of the range.
    pub(crate) fn has(&self, xid: Xid) -> bool {
        self.xids.find(xid).is_some()
    }

    pub(crate) fn take(&mut self) -> Xid {
        let index = self.next;
        self.next = (index + 1) % self.xids.count();
        self.xids.at(index)
    }
}
