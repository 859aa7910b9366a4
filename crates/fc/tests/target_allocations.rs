//! Commands that a target executes allocate nothing.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests")]
#[path = "target/rig.rs"]
mod rig;

use tyche_fc::Outgoing;
use tyche_fc::target_end::{Action, Completion, Data, Ignored, Lane};
use tyche_fc::wire::fcp::COMMAND_LEN;
use tyche_fc::wire::{Ethernet, FCtl, Frame, Header, Kind, Xid};
use tyche_testkit::allocations::{Counting, during};
use tyche_time::Instant;

use rig::{HOST, OURS, command, config, login, mac};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Hands over a frame of the host's.
fn receive(lane: &mut Lane, header: Header, payload: &[u8]) {
    let ethernet = Ethernet { destination: mac(OURS), source: mac(HOST.id) };
    assert!(lane.handle_frame(Instant(1), &Frame { ethernet, header, payload }));
}

#[test]
fn commands_take_no_memory_but_that_of_the_start() {
    let mut lane = Lane::new(config(64));
    lane.logged_in((OURS, mac(OURS)), &login(HOST, 2112));
    let mut payload = [0; COMMAND_LEN];
    let mut out = Outgoing::new();
    let ((), allocated) = during(|| {
        for round in 0..10_000_u16 {
            let data = if round.is_multiple_of(2) { Data::Out(512) } else { Data::In(512) };
            command(data).emit(&mut payload);
            let header = Header::request(Kind::FcpCmnd, HOST.id, OURS, Xid(round));
            receive(&mut lane, header, &payload);
            while let Some(action) = lane.poll_action() {
                match action {
                    Action::Command(command) => lane.accept(Instant(1), command.exchange, data),
                    Action::Execute { exchange } => {
                        let len = if matches!(data, Data::In(_)) { 512 } else { 0 };
                        let completion = Completion { len, ..Completion::default() };
                        lane.complete(Instant(1), exchange, &completion);
                    }
                    _ => {}
                }
                while lane.poll_transmit(Instant(1), &mut out) {}
                if let (Action::Command(command), Data::Out(_)) = (action, data) {
                    let (f_ctl, rx_id) =
                        (FCtl::WRITE_DATA_END, lane.rx_id(command.exchange).unwrap());
                    let header = Header { kind: Kind::FcpData, f_ctl, rx_id, ..header };
                    receive(&mut lane, header, &[0; 512]);
                }
            }
        }
    });
    assert_eq!(allocated, 0);
    assert_eq!(lane.ignored(), Ignored::default());
}
