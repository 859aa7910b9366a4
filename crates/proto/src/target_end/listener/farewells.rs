//! Answered farewells: if the answer is lost, the host repeats its farewell when the channel is
//! gone already.

use std::collections::VecDeque;

use tyche_wire::{ChannelId, Cookie, Flags, Header, Kind, Mac, PacketNumber};

use crate::channel::ChannelConfig;

/// Answers that are kept. A host repeats its farewell for a fraction of a second.
const KEPT_MAX: usize = 64;

struct Farewell {
    own: (ChannelId, Cookie),
    peer: Mac,
    answer: Header,
}

/// The last answers to farewells, a bounded number: the oldest one gives way to a new one.
#[derive(Default)]
pub(super) struct Farewells(VecDeque<Farewell>);

impl Farewells {
    /// Keeps the answer to a farewell on a channel.
    pub(super) fn note(&mut self, config: &ChannelConfig, answer: Header) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Farewell { own: config.own, peer: config.peer_mac, answer });
    }

    /// The answer to a repeated farewell from `src`; `None` for any other frame.
    pub(super) fn repeated(&mut self, src: Mac, header: &Header) -> Option<Header> {
        if header.kind != Kind::Disconnect || header.flags.contains(Flags::REPLY) {
            return None;
        }
        let same = |known: &&mut Farewell| {
            (known.own, known.peer) == ((header.channel, header.cookie), src)
        };
        let known = self.0.iter_mut().find(same)?;
        known.answer.packet = PacketNumber(known.answer.packet.0 + 1);
        Some(known.answer)
    }
}
