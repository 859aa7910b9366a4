use super::*;
use crate::channel::tests::config;
use crate::rules::AllRules;

fn piece(op: u32, opcode: Opcode, len: u32) -> Piece {
    Piece { op, base: 0, opcode, flags: CommandFlags::NONE, offset: 0, len }
}

/// Over UDP and Ethernet, with keys and without.
#[test]
fn a_command_waits_for_no_more_than_a_frame_of_a_large_write() {
    for frame_len in [1452, 1472, 1498, 1514, 8972, 9014] {
        let now = Instant(0);
        let config = ChannelConfig { frame_len, ..config() };
        let mut initiator = Initiator::<AllRules>::new(config, 8, 64, now);
        let mut out = Outgoing::new();
        assert!(initiator.submit(now, piece(0, Opcode::Write, 64 << 10)));
        assert!(initiator.poll_transmit(now, &mut out), "the write begins");
        assert!(initiator.submit(now, piece(1, Opcode::Flush, 0)));
        assert!(initiator.poll_transmit(now, &mut out), "the window has room for another");
        let is_flush =
            |entry: &Entry| matches!(entry, Entry::Command(Command { opcode: Opcode::Flush, .. }));
        assert!(out.content.entries().iter().any(is_flush), "not in frames of {frame_len} bytes");
    }
}
