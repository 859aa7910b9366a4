//! What a session makes of a target that grants more than it was asked for.

use std::time::Duration;

use crate::pair::{FRAME_LEN, Pair, TARGET, seal, session};
use tyche_proto::wire::{Accept, Content, Control, Reject, Uuid};
use tyche_proto::{PortConfig, Session, SessionConfig};
use tyche_testkit::random::Random;

/// Connects another session to a target whose accepts are changed, and returns the pair when the
/// target has answered as often as the session wants channels.
fn connect(channels: usize, mut change: impl FnMut(&mut Accept)) -> Pair {
    let mut pair = Pair::connected(session());
    pair.session.disconnect(pair.now);
    while let Some(frame) = pair.host_sends() {
        pair.target_takes(&frame);
    }
    let id = Uuid::from_u128(7);
    let config = SessionConfig { session: id, device: id, channels, ..session() };
    let port = PortConfig {
        frame_len_max: FRAME_LEN,
        rings: [64; 2],
        target: Some(TARGET),
        node: None,
        transport: 0,
        routed: false,
        checks_data: false,
    };
    pair.session = Session::new(config, &[port], Box::new(Random(9).numbers()), pair.now);
    let mut answers = 0;
    while answers < channels {
        pair.session.handle_timeout(pair.now);
        while let Some(frame) = pair.host_sends() {
            pair.target_takes(&frame);
        }
        pair.serve();
        while pair.listener.poll_transmit(pair.now, &mut pair.out) {
            if let Content::Control(Control::Accept(accept)) = &mut pair.out.content {
                change(accept);
                answers += 1;
            }
            let frame = seal(&pair.out, TARGET);
            pair.host_takes(&frame);
        }
        pair.now = pair.now + Duration::from_millis(10);
    }
    pair
}

/// Whether a session takes an accept that was changed like that.
fn is_live_after(change: impl FnMut(&mut Accept)) -> bool {
    let session = connect(1, change).session;
    assert_ne!(session.rejects().of(Reject::Unexpected) > 0, session.is_live());
    session.is_live()
}

#[test]
fn a_host_takes_no_more_than_it_asked_for() {
    assert!(is_live_after(|_| ()));
    assert!(!is_live_after(|accept| accept.queue_size += 1));
    // Its own note of them would take 9 MiB for each channel.
    assert!(!is_live_after(|accept| accept.damq_pages = 1 << 20));
    assert!(is_live_after(|accept| accept.damq_pages = 256), "the least that a target grants");
}

#[test]
fn two_channels_are_never_the_same_at_the_target() {
    let mut first = None;
    let pair = connect(2, |accept| {
        let (cookie, channel) = *first.get_or_insert((accept.cookie, accept.channel));
        (accept.cookie, accept.channel) = (cookie, channel);
    });
    assert_eq!(pair.session.rejects().of(Reject::Unexpected), 1);
    assert_eq!(pair.session.paths().filter(|path| path.live).count(), 1);
}
