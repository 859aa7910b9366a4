//! A target of FCP without threads: its lane, and a disk in memory that executes each command at
//! once.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_fc::neighbour::Functions;
use tyche_fc::port::Login;
use tyche_fc::target_end::{Action, Completion, Data, Lane, LaneConfig};
use tyche_fc::wire::fcp::{CDB_LEN, ResponseCode};
use tyche_fc::wire::{Frame, Wwn};
use tyche_fc::{Outgoing, Part};
use tyche_time::Instant;

use super::{Kept, Machine, PLAYED, TESTED, mac};

const SIZE: usize = 1 << 20;
const SECTOR: usize = 512;

/// The target as a [`Machine`].
pub(super) struct Target {
    lane: Lane<Kept>,
    disk: Vec<u8>,
    /// The CDB and the memory of each exchange.
    commands: BTreeMap<u16, ([u8; CDB_LEN], Vec<u8>)>,
}

impl Target {
    pub(super) fn new(rules: Kept) -> Self {
        let config = LaneConfig { exchanges: 64, seed: 5, burst_len: 64 << 10, frames_max: 512 };
        let mut lane = Lane::with_rules(config, rules);
        let login = Login {
            wwpn: Wwn(0x2000_0000_0000_0a01),
            id: PLAYED,
            mac: mac(PLAYED),
            functions: Functions { initiator: true, target: false },
            payload_max: 2112,
            retries: false,
            confirms: false,
            e_d_tov: Duration::from_secs(2),
            r_a_tov: Duration::from_secs(10),
        };
        lane.logged_in((TESTED, mac(TESTED)), &login);
        Self { lane, disk: vec![0; SIZE], commands: BTreeMap::new() }
    }

    fn act(&mut self, now: Instant, payload: &[u8]) {
        while let Some(action) = self.lane.poll_action() {
            match action {
                Action::Command(command) => self.begin(now, command.exchange, command.cdb),
                Action::Place { exchange, offset, .. } => {
                    let (_, memory) = self.commands.get_mut(&exchange).unwrap();
                    memory[offset as usize..][..payload.len()].copy_from_slice(payload);
                }
                Action::Execute { exchange } => self.execute(now, exchange),
                Action::Release { exchange } => drop(self.commands.remove(&exchange)),
                Action::Manage { exchange, .. } => {
                    self.lane.managed(now, exchange, ResponseCode::Complete);
                }
                Action::Confirmed { .. } | Action::Unmanage { .. } | Action::Drained(_) => {}
            }
        }
    }

    fn begin(&mut self, now: Instant, exchange: u16, cdb: [u8; CDB_LEN]) {
        let len = u32::from(u16::from_be_bytes([cdb[7], cdb[8]])) * SECTOR as u32;
        let data = match cdb[0] {
            0x28 => Data::In(len),
            0x2a => Data::Out(len),
            _ => Data::None,
        };
        self.commands.insert(exchange, (cdb, vec![0; len as usize]));
        self.lane.accept(now, exchange, data);
    }

    fn execute(&mut self, now: Instant, exchange: u16) {
        let (cdb, memory) = self.commands.get_mut(&exchange).unwrap();
        let lba = u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]]) as usize;
        let place = &mut self.disk[lba * SECTOR..][..memory.len()];
        let mut len = 0;
        match cdb[0] {
            0x28 => {
                memory.copy_from_slice(place);
                len = memory.len() as u32;
            }
            0x2a => place.copy_from_slice(memory),
            _ => {}
        }
        self.lane.complete(now, exchange, &Completion { len, ..Completion::default() });
    }
}

impl Machine for Target {
    fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) {
        self.lane.handle_frame(now, frame);
        self.act(now, frame.payload);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
        self.act(now, &[]);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lane.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut out = Outgoing::new();
        if !self.lane.poll_transmit(now, &mut out) {
            return None;
        }
        let data = out.part().map(|Part { exchange, offset, len }| {
            &self.commands[&exchange].1[offset as usize..][..len as usize]
        });
        let bytes = out.to_bytes(data.unwrap_or_default());
        self.act(now, &[]);
        Some(bytes)
    }
}
