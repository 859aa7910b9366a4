//! A role without commands.

use std::collections::VecDeque;

use tyche_engine::{Composed, FrameSink, Frames};
use tyche_fcoe::Role;
use tyche_fcoe::fc::wire::{Frame, Mac, PortId, Wwn};
use tyche_fcoe::fc::{AllRules, port};
use tyche_link::Mac as LinkMac;
use tyche_time::Instant;

/// A [`Role`] that sends no commands and ignores those that come. It confirms at once that nothing
/// of an ended login is at work.
#[derive(Default)]
pub(crate) struct Nobody(VecDeque<Wwn>);

impl Role for Nobody {
    type Rules = AllRules;

    fn rules(&self) -> AllRules {
        AllRules
    }

    fn handle_address(&mut self, _: (PortId, Mac)) {}

    fn handle_login(&mut self, _: Instant, event: port::Event) {
        if let port::Event::LoggedOut(wwpn, _) = event {
            self.0.push_back(wwpn);
        }
    }

    fn handle_frame(&mut self, _: Instant, _: &Frame<'_>) {}

    fn poll_drained(&mut self) -> Option<Wwn> {
        self.0.pop_front()
    }

    fn frames(&mut self) -> impl Frames<'_> {
        Silent
    }
}

struct Silent;

impl<'d> Frames<'d> for Silent {
    fn compose(&mut self, _: Instant) -> Option<Composed> {
        None
    }

    fn write(&mut self, _: LinkMac, _: impl FrameSink<'d>) {}
}
