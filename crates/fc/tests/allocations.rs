//! Nothing is allocated for a command.

#![allow(missing_docs, dead_code, clippy::unwrap_used)]

#[path = "initiator/script.rs"]
mod script;

use script::{FRAME, LUN, OURS, THEIRS, config, header, login, mac};
use tyche_fc::Outgoing;
use tyche_fc::initiator::{Command, Data, Event, Lane, Taken};
use tyche_fc::wire::fcp::{Response, TransferReady};
use tyche_fc::wire::{Ethernet, Frame, Header, Kind};
use tyche_testkit::allocations::{Counting, during};
use tyche_time::Instant;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds of all commands. Other threads, those of the tests' runner, allocate in a few of them.
const ROUNDS: u64 = 1000;

/// Has a lane execute a command; returns the number of frames that it has sent.
fn execute(lane: &mut Lane, now: Instant, command: &Command, outgoing: &mut Outgoing) -> u32 {
    let len = command.data.len();
    let ethernet = Ethernet { destination: mac(OURS), source: mac(THEIRS) };
    lane.submit(command).unwrap();
    assert!(lane.poll_transmit(now, outgoing));
    let ox_id = outgoing.write(&[], |frame, _, _| u16::from_be_bytes([frame[44], frame[45]]));
    let payload = [7; FRAME as usize];
    let mut sent = 1;
    let receive = |lane: &mut Lane, kind, offset, payload: &[u8]| {
        let header = Header { parameter: offset, ..header(kind, ox_id) };
        lane.handle_frame(now, &Frame { ethernet, header, payload })
    };
    match command.data {
        Data::In(_) => {
            for offset in (0..len).step_by(FRAME as usize) {
                let data = &payload[..(len - offset).min(FRAME) as usize];
                let taken = receive(lane, Kind::FcpData, offset, data);
                assert!(matches!(taken, Taken::Place(_)));
            }
        }
        Data::Out(len) => {
            let ready = TransferReady { offset: 0, len }.to_bytes();
            assert_eq!(receive(lane, Kind::FcpXferRdy, 0, &ready), Taken::Done);
            while lane.poll_transmit(now, outgoing) {
                sent += 1;
            }
        }
        Data::None => {}
    }
    let mut response = [0; 24];
    Response::GOOD.emit(&mut response);
    assert_eq!(receive(lane, Kind::FcpRsp, 0, &response), Taken::Done);
    let Some(Event::Completed(completion)) = lane.poll_event() else { panic!("no end") };
    assert!(completion.end.is_ok() && lane.poll_event().is_none());
    assert!(!lane.poll_transmit(now, outgoing));
    sent
}

#[test]
fn nothing_is_allocated_for_a_command() {
    let mut now = Instant(1);
    let mut lane = Lane::new(config());
    let nexus = lane.logged_in(now, (OURS, mac(OURS)), &login()).unwrap();
    let unit = lane.unit(nexus, LUN).unwrap();
    let mut outgoing = Outgoing::new();
    let mut fewest = usize::MAX;
    for _ in 0..ROUNDS {
        let (_, allocated) = during(|| {
            for (data, frames) in [(Data::None, 1), (Data::In(4096), 1), (Data::Out(65536), 34)] {
                let cdb = [0; 16];
                let command = Command { unit, cdb, data, modifies: true, hears_attentions: true };
                assert_eq!(execute(&mut lane, now, &command, &mut outgoing), frames);
                now = now.plus_ns(1_000_000);
                lane.handle_timeout(now);
            }
        });
        fewest = fewest.min(allocated);
    }
    assert_eq!(fewest, 0);
}
