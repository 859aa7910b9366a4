use super::*;
use crate::channel::tests::config;
use crate::rules::AllRules;

/// Over UDP and Ethernet, with keys and without.
#[test]
fn an_answer_waits_for_no_more_than_a_frame_of_a_large_read() {
    for frame_len in [1452, 1472, 1498, 1514, 8972, 9014] {
        let now = Instant(0);
        let config = ChannelConfig { frame_len, ..config() };
        let mut target = TargetChannel::<AllRules>::new(config, (8, 64), true, now);
        let mut out = Outgoing::new();
        let read = &mut target.slots[0];
        (read.state, read.held) = (State::Sending, 64 << 10);
        target.sending.push(0, 64 << 10);
        for _ in 0..2 {
            assert!(target.poll_transmit(now, &mut out), "the window has room for two");
        }
        target.slots[1].state = State::Answering;
        let tag = Tag { slot: 1, generation: target.slots[1].generation };
        target.completions.push_back((tag, Status::Success));
        assert!(target.poll_transmit(now, &mut out), "and for another");
        let is_answer = |entry: &Entry| matches!(entry, Entry::Completion(_));
        assert!(out.content.entries().iter().any(is_answer), "not in frames of {frame_len} bytes");
    }
}
