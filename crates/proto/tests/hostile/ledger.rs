//! What the good host has asked for, and what came of it: what must hold for as long as the
//! adversary has not spoken on a channel of the good host with its cookie and address.

use std::collections::{BTreeMap, HashSet};

use tyche_proto::Operation;
use tyche_proto::wire::{Command, Opcode, Status};

use super::content::{self, PLOT};

/// The test's record of what the good host has submitted and what the disk has executed. It checks
/// both against each other until the adversary has spoken in the name of the good host or its
/// target.
pub(crate) struct Ledger {
    /// By the plot of the disk that each has for itself.
    operations: Vec<Operation>,
    /// Requests that modify, by their place on the disk: their length, and how they ended.
    executed: BTreeMap<u64, (u32, Option<Status>)>,
    /// Attempts to connect of the good host.
    pub(crate) attempts: HashSet<u64>,
    /// The adversary has not spoken in the name of the good host, or of its target.
    pub(crate) is_clean: bool,
    /// The good host was told of a lost cache: it does again what it holds for lost.
    pub(crate) may_redo: bool,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            operations: Vec::new(),
            executed: BTreeMap::new(),
            attempts: HashSet::new(),
            is_clean: true,
            may_redo: false,
        }
    }

    /// Where the next operation has its plot.
    pub(crate) fn plot(&self) -> u64 {
        self.operations.len() as u64 * PLOT
    }

    pub(crate) fn submits(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    pub(crate) fn modifications(&self) -> usize {
        self.executed.len()
    }

    /// The disk gets a request of a channel of the good host, with the data of a write.
    pub(crate) fn executes(&mut self, command: &Command, data: &[u8]) {
        let Command { opcode, flags, offset, len, .. } = *command;
        if !self.is_clean || opcode == Opcode::Flush {
            return;
        }
        let operation = self.operations.get((offset / PLOT) as usize);
        let operation = operation.expect("nobody has asked for that");
        assert_eq!((opcode, flags), (operation.opcode, operation.flags), "not what was asked for");
        let end = operation.offset + u64::from(operation.len);
        assert!((operation.offset..end).contains(&offset) && offset + u64::from(len) <= end);
        if opcode == Opcode::Write {
            assert_eq!(data.len(), len as usize);
            assert!(content::is_written(offset, data), "a write of bytes that are not its own");
        }
        if opcode.modifies() {
            let before = self.executed.insert(offset, (len, None));
            assert!(before.is_none() || self.may_redo, "{command:?} is executed twice");
        }
    }

    /// The disk has executed it.
    pub(crate) fn executed(&mut self, command: &Command, status: Status) {
        let modified = self.executed.get_mut(&command.offset);
        if let Some((_, ended)) = modified.filter(|_| command.opcode.modifies()) {
            *ended = Some(status);
        }
    }

    /// The good host is told that an operation has ended; `data`: what a read has brought.
    pub(crate) fn completes(&self, operation: &Operation, status: Status, data: &[u8]) {
        if !self.is_clean || status != Status::Success {
            return;
        }
        if operation.opcode.returns_data() {
            assert!(content::is_read(operation.offset, data), "other data than the disk has");
        }
        if operation.opcode.modifies() {
            let end = operation.offset + u64::from(operation.len);
            let pieces = self.executed.range(operation.offset..end);
            let done = pieces.filter(|(_, (_, ended))| *ended == Some(Status::Success));
            let done: u64 = done.map(|(_, (len, _))| u64::from(*len)).sum();
            assert_eq!(done, u64::from(operation.len), "{operation:?} was not executed");
        }
    }
}
