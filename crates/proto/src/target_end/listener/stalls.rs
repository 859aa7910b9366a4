//! Failure detector of a target: gives up a channel whose frames the host does not acknowledge any
//! more, if another channel of the session lives. The host cannot notice: it may hear the target,
//! and waits for answers. docs/protocol-annexes.md, "Channels that are given up early".

use std::time::Duration;

use super::Listener;
use super::open::Open;
use crate::rules::Rules;
use crate::target_end::export::ChannelRef;
use crate::target_end::registry::Registry;
use crate::time::Instant;

/// How long a frame to the host may stay without an ack if the session has another channel that
/// lives; the same as for a frame to the target. Lower: a burst of losses costs a channel. Higher:
/// requests whose answers are lost wait longer.
const STALL_AMONG_OTHERS: Duration = Duration::from_millis(600);
/// Time between two questions for a sign of life to the other channels.
const STALL_INTERVAL: Duration = Duration::from_millis(50);

impl<R: Rules> Open<R> {
    /// When the channel counts as stalled, if its oldest frame stays without an ack.
    pub(super) fn stalls_at(&self) -> Option<Instant> {
        let channel = &self.target.as_ref().filter(|_| !self.closing)?.channel;
        let at = channel.stuck_since()? + STALL_AMONG_OTHERS.max(channel.rtt() * 4);
        Some(at.max(self.doubted_at + STALL_INTERVAL))
    }

    /// Notes whether the channel is stalled, for
    /// [`give_up_stalled`](Listener::give_up_stalled).
    pub(super) fn doubt_stalled(&mut self, now: Instant) {
        if self.stalls_at().is_some_and(|at| at <= now) {
            (self.doubted_at, self.is_doubted) = (now, true);
        }
    }
}

impl<R: Rules> Listener<R> {
    /// Gives up stalled channels whose sessions have another channel that lives. The others are
    /// asked for a sign of life; if they are all silent, giving up one would not help.
    pub(super) fn give_up_stalled(&mut self, now: Instant, registry: &mut Registry) {
        let link = self.config.link;
        for open in self.channels.needing_mut().filter(|open| open.is_doubted) {
            open.is_doubted = false;
            let channel = ChannelRef { link, channel: open.id() };
            open.closing |= registry.report_stall(now, channel);
        }
    }
}
