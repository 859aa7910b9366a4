//! An initiator of FCP without threads: its lane, the memory of its commands, and an agent that
//! submits those of orders and reports their ends. It has few OX_IDs, so that they come again soon.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tyche_conformance::Result;
use tyche_fc::Outgoing;
use tyche_fc::exchange::Xids;
use tyche_fc::initiator::{Command, Data, Event, Lane, LaneConfig, Taken, Unit};
use tyche_fc::neighbour::Functions;
use tyche_fc::port::Login;
use tyche_fc::wire::{Frame, Wwn};
use tyche_time::Instant;

use super::{Kept, LUN, Machine, PLAYED, TESTED, mac};

const SECTOR: u64 = 512;
/// The first and last OX_ID.
const XIDS: (u16, u16) = (0x20, 0x3f);

/// The initiator as a [`Machine`].
pub(super) struct Initiator {
    lane: Lane<Kept>,
    unit: Unit,
    /// Name, data, and whether it is a read, by the number of the command.
    commands: BTreeMap<u16, (String, Vec<u8>, bool)>,
    said: VecDeque<String>,
    outgoing: Outgoing,
}

impl Initiator {
    pub(super) fn new(rules: Kept) -> Self {
        let config = LaneConfig {
            xids: Xids::new(XIDS, 0, 0),
            seed: 0,
            depth: 4,
            targets: 1,
            units: 1,
            read_frames: 1000,
            write_frames: 1000,
            command_timeout: Duration::from_secs(30),
        };
        let mut lane = Lane::with_rules(config, rules);
        let login = Login {
            wwpn: Wwn(0x2000_0000_0000_0a01),
            id: PLAYED,
            mac: mac(PLAYED),
            functions: Functions { initiator: false, target: true },
            payload_max: 2112,
            retries: false,
            confirms: true,
            e_d_tov: Duration::from_secs(2),
            r_a_tov: Duration::from_secs(10),
        };
        let nexus = lane.logged_in(Instant(1_000_000), (TESTED, mac(TESTED)), &login).unwrap();
        let unit = lane.unit(nexus, LUN).unwrap();
        // The target is one of ours.
        lane.number_commands(unit, true);
        let (commands, said, outgoing) = (BTreeMap::new(), VecDeque::new(), Outgoing::new());
        Self { lane, unit, commands, said, outgoing }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.lane.poll_event() {
            match event {
                Event::Completed(completion) => {
                    let (name, data, is_read) = self.commands.remove(&completion.exchange).unwrap();
                    self.said.push_back(match completion.end {
                        Ok(answer) if answer.status == 0 && is_read => {
                            format!("{name} ok {}", runs(&data))
                        }
                        Ok(answer) if answer.status == 0 => format!("{name} ok"),
                        _ => format!("{name} error"),
                    });
                }
                Event::Restart(_) => self.said.push_back("restart ok".to_owned()),
            }
        }
    }
}

/// Bytes in hexadecimal, `aa*512` for 512 in a row.
fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{:02x}*{}", run[0], run.len())).collect::<Vec<_>>().join(" ")
}

impl Machine for Initiator {
    fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) {
        if let Taken::Place(placement) = self.lane.handle_frame(now, frame) {
            let (_, memory, _) = self.commands.get_mut(&placement.exchange).unwrap();
            let offset = placement.offset as usize;
            memory[offset..offset + frame.payload.len()].copy_from_slice(frame.payload);
        }
        self.take_events();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
        self.take_events();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lane.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        if !self.lane.poll_transmit(now, &mut self.outgoing) {
            return None;
        }
        let data = self.outgoing.part().map(|part| {
            &self.commands[&part.exchange].1[part.offset as usize..][..part.len as usize]
        });
        Some(self.outgoing.to_bytes(data.unwrap_or_default()))
    }

    fn order(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let mut cdb = [0; 16];
        let (code, data) = match words[1] {
            "read" => (0x88, Data::In(number(3) as u32)),
            "write" => (0x8a, Data::Out(number(3) as u32)),
            _ => (0x91, Data::None),
        };
        cdb[0] = code;
        if data != Data::None {
            cdb[2..10].copy_from_slice(&(number(2) / SECTOR).to_be_bytes());
            cdb[10..14].copy_from_slice(&((number(3) / SECTOR) as u32).to_be_bytes());
        }
        let (modifies, hears_attentions) = (code == 0x8a, true);
        let command = Command { unit: self.unit, cdb, data, modifies, hears_attentions };
        let name = self.lane.submit(&command).map_err(|error| format!("{error:?}"))?;
        let fill = words.get(4).map_or(0xee, |fill| u8::from_str_radix(fill, 16).unwrap());
        let len = if data == Data::None { 0 } else { number(3) as usize };
        self.commands.insert(name, (words[0].to_owned(), vec![fill; len], code == 0x88));
        self.take_events();
        Ok(())
    }

    fn said(&mut self) -> Option<String> {
        self.said.pop_front()
    }
}
