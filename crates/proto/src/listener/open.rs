//! A channel that was accepted, as its link knows it.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use tyche_wire::{Accept, Body, Event, Fenced, Header, Reject};

use super::{FENCES_MAX, ListenerEvent};
use crate::admission::Grant;
use crate::channel::ChannelConfig;
use crate::rules::Rules;
use crate::target::TargetChannel;
use crate::time::Instant;

/// See the module.
pub(super) struct Open<R> {
    pub(super) config: ChannelConfig,
    pub(super) grant: Grant,
    pub(super) accept: Accept,
    pub(super) accepted_at: Instant,
    /// What drives it, from its first frame on: nothing is taken for a host that only asks.
    pub(super) target: Option<TargetChannel<R>>,
    /// What happened to the export before its first frame.
    pub(super) missed: Option<Event>,
    /// Frames are dropped; the channel goes when its last request is back from the disk.
    pub(super) closing: bool,
    /// Its host has said farewell, and so knows what became of its requests.
    pub(super) is_done: bool,
    /// When it was asked for a sign of life, for the registry.
    pub(super) asked_at: Option<Instant>,
    /// Its frames do not get through to the host, says its link: the registry is to be asked.
    pub(super) is_doubted: bool,
    /// When that was last so.
    pub(super) doubted_at: Instant,
    /// Fences that it has asked for, to be answered.
    pub(super) fenced: ArrayVec<Fenced, FENCES_MAX>,
}

impl<R: Rules> Open<R> {
    /// Takes a frame that is the channel's own, whole or not at all: memory is taken with the first
    /// that has nothing wrong.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(super) fn handle_frame(
        &mut self,
        now: Instant,
        header: &Header,
        body: &Body<'_>,
        events: &mut VecDeque<ListenerEvent>,
    ) -> Result<&mut TargetChannel<R>, Reject> {
        let (channel, before) = (header.channel, events.len());
        let is_first = self.target.is_none();
        if is_first {
            let Grant { export, queue_size, damq_pages, .. } = self.grant;
            let stages = self.config.stages;
            let boot = self.accept.boot;
            events.push_back(ListenerEvent::Opened {
                channel,
                export,
                boot,
                damq_pages,
                queue_size,
                stages,
            });
        }
        let Grant { writer, queue_size, damq_pages, .. } = self.grant;
        let target = self.target.get_or_insert_with(|| {
            TargetChannel::new(self.config, (queue_size, damq_pages), writer, now)
        });
        let taken = target.handle_frame(now, header, body, |action| {
            events.push_back(ListenerEvent::Action { channel, action });
        });
        if is_first && taken.is_err() {
            events.truncate(before);
            self.target = None;
        }
        taken?;
        let target = self.target.as_mut().expect("it has taken a frame");
        if let Some(event) = self.missed.take() {
            target.notify(event);
        }
        Ok(target)
    }

    /// Closed, and nothing of it is with the disk or to be sent any more.
    pub(super) fn is_over(&self) -> bool {
        let rests =
            |target: &TargetChannel<R>| target.executing() == 0 && target.farewell.is_none();
        self.closing && self.target.as_ref().is_none_or(rests)
    }

    /// The registry is to be told of it, or asked.
    pub(super) fn needs_registry(&self) -> bool {
        self.is_over() || self.shows_life() || self.is_doubted
    }

    /// No frame has come for it.
    pub(super) fn is_half_open(&self) -> bool {
        !self.closing && self.target.is_none()
    }

    /// It was asked for a sign of life, and was heard since.
    pub(super) fn shows_life(&self) -> bool {
        let heard_at = || self.heard_at();
        self.asked_at.is_some_and(|asked_at| heard_at().is_some_and(|heard_at| heard_at > asked_at))
    }

    /// When a valid frame of it came last.
    pub(super) fn heard_at(&self) -> Option<Instant> {
        self.target.as_ref().map(|target| target.channel.heard_at())
    }
}
