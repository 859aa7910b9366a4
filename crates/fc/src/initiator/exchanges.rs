//! The open exchanges of a lane: what commands need is apart from the table of XIDs, which is
//! larger, and whose slots are used in turn. So the memory that commands touch is that of few.

use tyche_fc_wire::Xid;
use tyche_time::Instant;

use super::task::{Service, Task};
use crate::exchange::{Found, Table, Xids};

/// An open exchange.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exchange {
    /// A command, by its index.
    Command(u16),
    Service(Service),
}

/// The exchanges of one lane: the table of XIDs, and the commands in slots of their own. The slot
/// that was used last is the next to be used, so that it is in the cache.
pub(super) struct Exchanges {
    table: Table<Exchange>,
    /// By index of an XID: the target of the last command with it whose RX_ID was known, and that.
    former: Box<[(u16, Xid)]>,
    tasks: Box<[Option<Task>]>,
    /// Indices without a task, the last used at the end.
    free: Vec<u16>,
}

impl Exchanges {
    /// With room for so many commands. `seed` sets the first XID.
    pub(super) fn new(xids: Xids, commands: u16, seed: u64) -> Self {
        let table = Table::beginning_with(xids, seed);
        Self {
            former: vec![(0, Xid::NONE); table.capacity()].into(),
            table,
            tasks: (0..commands).map(|_| None).collect(),
            free: (0..commands).rev().collect(),
        }
    }

    /// The number of XIDs.
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// The number of free XIDs.
    pub(super) fn free(&self) -> usize {
        self.table.free()
    }

    /// Whether there is a number for one more command: none if too many that have been completed
    /// are still to be aborted.
    pub(super) fn has_number(&self) -> bool {
        !self.free.is_empty()
    }

    /// The exchange of a frame; `None` if its XID is none of the lane's.
    pub(super) fn find(&mut self, xid: Xid) -> Option<Found<Exchange>> {
        self.table.index(xid)?;
        Some(match self.table.find(xid) {
            Found::Open(exchange) => Found::Open(*exchange),
            Found::Quarantined => Found::Quarantined,
            Found::Nothing => Found::Nothing,
        })
    }

    /// Opens the exchange of a command; `None` if there is no room.
    pub(super) fn open(&mut self, task: Task) -> Option<Xid> {
        let index = *self.free.last()?;
        let xid = self.table.open(Exchange::Command(index))?;
        self.free.pop();
        self.tasks[usize::from(index)] = Some(task);
        Some(xid)
    }

    /// Opens the exchange of a link service; `None` if there is no XID.
    pub(super) fn open_service(&mut self, service: Service) -> Option<Xid> {
        self.table.open(Exchange::Service(service))
    }

    /// The index of an XID.
    pub(super) fn index(&self, xid: Xid) -> u16 {
        self.table.index(xid).expect("an XID of the lane")
    }

    /// The number of a command, by which the user knows it.
    pub(super) fn name(&self, xid: Xid) -> Option<u16> {
        match self.table.get(xid) {
            Some(Exchange::Command(index)) => Some(*index),
            _ => None,
        }
    }

    /// The command with a number that an [open exchange](Exchange::Command) has.
    pub(super) fn at(&self, name: u16) -> &Task {
        self.tasks[usize::from(name)].as_ref().expect("the command of an open exchange")
    }

    /// The same, to be changed.
    pub(super) fn at_mut(&mut self, name: u16) -> &mut Task {
        self.tasks[usize::from(name)].as_mut().expect("the command of an open exchange")
    }

    /// The command of an exchange, if it is open and one of a command.
    pub(super) fn task(&self, xid: Xid) -> Option<&Task> {
        Some(self.at(self.name(xid)?))
    }

    /// The same, to be changed.
    pub(super) fn task_mut(&mut self, xid: Xid) -> Option<&mut Task> {
        Some(self.at_mut(self.name(xid)?))
    }

    /// The link service of an exchange, if it is open and one of a link service.
    pub(super) fn service(&self, xid: Xid) -> Option<Service> {
        match self.table.get(xid) {
            Some(Exchange::Service(service)) => Some(*service),
            _ => None,
        }
    }

    /// The target of an exchange, if it is open.
    pub(super) fn nexus(&self, xid: Xid) -> Option<u16> {
        match self.table.get(xid)? {
            Exchange::Command(name) => Some(self.at(*name).nexus),
            Exchange::Service(service) => Some(service.nexus),
        }
    }

    /// All XIDs.
    pub(super) fn xids(&self) -> impl Iterator<Item = Xid> + use<> {
        self.table.xids()
    }

    /// Ends an open exchange as both ends have expected it.
    pub(super) fn close(&mut self, xid: Xid) {
        let exchange = self.table.close(xid);
        self.drop_task(xid, exchange);
    }

    /// Ends an open exchange whose frames may still be on the way until then.
    pub(super) fn quarantine(&mut self, xid: Xid, until: Instant) {
        let exchange = self.table.quarantine(xid, until);
        self.drop_task(xid, exchange);
    }

    fn drop_task(&mut self, xid: Xid, exchange: Exchange) {
        let Exchange::Command(name) = exchange else { return };
        let task = self.tasks[usize::from(name)].take().expect("the command of an open exchange");
        self.free.push(name);
        if task.rx_id != Xid::NONE {
            let index = usize::from(self.index(xid));
            self.former[index] = (task.nexus, task.rx_id);
        }
    }

    /// The RX_ID of the last exchange of this XID with a target, if it is known.
    pub(super) fn former_rx_id(&self, nexus: u16, xid: Xid) -> Option<Xid> {
        let (target, rx_id) = self.former[usize::from(self.index(xid))];
        (target == nexus && rx_id != Xid::NONE).then_some(rx_id)
    }

    /// Forgets the RX_IDs that a target has given: it may begin anew.
    pub(super) fn forget_rx_ids(&mut self, nexus: u16) {
        for former in self.former.iter_mut().filter(|it| it.0 == nexus) {
            former.1 = Xid::NONE;
        }
    }

    /// Sets the timer of an open exchange, or stops it.
    pub(super) fn set_timer(&mut self, xid: Xid, at: Option<Instant>) {
        self.table.set_timer(xid, at);
    }

    /// An open exchange whose timer has expired.
    pub(super) fn poll_expired(&mut self, now: Instant) -> Option<Xid> {
        self.table.poll_expired(now)
    }

    /// No timer expires before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.table.poll_timeout()
    }
}
