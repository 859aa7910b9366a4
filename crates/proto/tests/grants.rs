//! What a session makes of a target that grants more than it was asked for.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod pair;

use std::time::Duration;

use pair::{FRAME_LEN, Pair, TARGET, random, seal, session};
use tyche_proto::wire::{Accept, Control, Reject, Uuid};
use tyche_proto::{PortConfig, Session};

/// Connects a session to a target whose accept is changed, and says whether it is live then.
fn is_live_after(change: impl Fn(&mut Accept)) -> bool {
    let mut pair = Pair::connected(session());
    let config = tyche_proto::SessionConfig { session: Uuid::from_u128(7), ..session() };
    let port =
        PortConfig { frame_len_max: FRAME_LEN, rings: [64; 2], target: Some(TARGET), node: None };
    pair.session.disconnect(pair.now);
    while let Some(frame) = pair.host_sends() {
        pair.target_takes(&frame);
    }
    pair.session = Session::new(
        tyche_proto::SessionConfig { device: config.session, ..config },
        &[port],
        random(9),
        pair.now,
    );
    for _ in 0..100 {
        pair.session.handle_timeout(pair.now);
        while let Some(frame) = pair.host_sends() {
            pair.target_takes(&frame);
        }
        pair.serve();
        while pair.listener.poll_transmit(pair.now, &mut pair.out) {
            if let Some(Control::Accept(accept)) = &mut pair.out.control {
                change(accept);
                let frame = seal(&pair.out, TARGET);
                pair.host_takes(&frame);
                let refused = pair.session.rejects().of(Reject::Unexpected) > 0;
                assert_ne!(refused, pair.session.is_live());
                return !refused;
            }
            let frame = seal(&pair.out, TARGET);
            pair.host_takes(&frame);
        }
        pair.now = pair.now + Duration::from_millis(10);
    }
    panic!("the target does not answer");
}

#[test]
fn a_host_takes_no_more_than_it_asked_for() {
    assert!(is_live_after(|_| ()));
    assert!(!is_live_after(|accept| accept.queue_size += 1));
    // Its own note of them would take 9 MiB for each channel.
    assert!(!is_live_after(|accept| accept.damq_pages = 1 << 20));
    assert!(is_live_after(|accept| accept.damq_pages = 256), "the least that a target grants");
}
