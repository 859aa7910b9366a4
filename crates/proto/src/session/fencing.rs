//! Lost channels that the target may still have open: what they had in flight may still take
//! effect, and must not be sent again before the target has confirmed that they are closed
//! (*fence before reissue*). PROTOCOL.md, "Sessions, takeover and reconnect".

use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{ChannelId, Cookie, Fence, Fenced, Uuid};

use crate::initiator::Piece;
use crate::time::Instant;

/// Time until the target is asked again whether a lost channel is closed: it answers once the
/// channel's last request is back from the disk.
const INTERVAL: Duration = Duration::from_millis(20);
const INTERVAL_MAX: Duration = Duration::from_millis(640);

#[derive(Debug)]
struct Lost {
    cookie: Cookie,
    channel: ChannelId,
    /// What waits for the confirmation.
    pieces: Vec<Piece>,
    /// When to ask (again).
    next: Instant,
    /// How long to wait after that; doubles each time.
    pause: Duration,
    /// The port that was asked through last.
    asked: Option<usize>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fences(Vec<Lost>);

impl Fences {
    /// A channel is lost, with `pieces` in flight.
    pub(super) fn add(
        &mut self,
        now: Instant,
        (cookie, channel): (Cookie, ChannelId),
        pieces: Vec<Piece>,
    ) {
        self.0.push(Lost { cookie, channel, pieces, next: now, pause: INTERVAL, asked: None });
    }

    /// What waited for that confirmation; `None` if nothing did.
    pub(super) fn confirmed(&mut self, fenced: &Fenced) -> Option<Vec<Piece>> {
        let named = |lost: &Lost| (fenced.cookie, fenced.channel) == (lost.cookie, lost.channel);
        let index = self.0.iter().position(named)?;
        Some(self.0.remove(index).pieces)
    }

    /// The question that is due, if it may go through `port`: they take turns unless this is the
    /// `only` one, for one of them may be as dead as the channel.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        session: Uuid,
        port: usize,
        only: bool,
    ) -> Option<Fence> {
        let due = |lost: &&mut Lost| lost.next <= now && (only || lost.asked != Some(port));
        let lost = self.0.iter_mut().find(due)?;
        (lost.asked, lost.next) = (Some(port), now + lost.pause);
        lost.pause = (lost.pause * 2).min(INTERVAL_MAX);
        let Lost { cookie, channel, .. } = *lost;
        Some(Fence { session, cookie, channel, tags: ArrayVec::new() })
    }

    /// When the next question is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().map(|lost| lost.next).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
