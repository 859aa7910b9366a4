//! Answers that a target sends outside of channels, or on channels that are gone. It keeps no state
//! for who gets them. They are bounded in number, and those to invalid frames in rate.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_crypto::{SecretKey, digest};
use tyche_wire::{
    ChannelId, Content, Control, Cookie, Flags, Greeting, Header, Kind, Mac, Reset, ResetToken,
    Uuid,
};

use super::farewells::Farewells;
use crate::channel::ChannelConfig;
use crate::channel::outgoing::Outgoing;
use crate::time::Instant;

/// Frames that wait to be sent outside of channels, or on channels that are gone.
const OUTBOX_MAX: usize = 256;
/// The least time between two Resets or refusals of another version, so that invalid frames do not
/// cause a flood of answers.
const RESET_INTERVAL: Duration = Duration::from_millis(5);

/// The outbox of a listener for control frames outside of channels: bounded in length, and a frame
/// that finds no room is dropped. It limits the rate of Resets, and repeats answers to farewells.
pub(super) struct Answers {
    /// UUID of the target.
    target: Uuid,
    outbox: VecDeque<(Mac, Header, Option<Control>)>,
    farewells: Farewells,
    reset_after: Instant,
    /// The secret that tokens of resets are made of, at a target with a key.
    reset_secret: Option<[u8; 32]>,
}

impl Answers {
    pub(super) fn new(target: Uuid) -> Self {
        let (outbox, farewells) = (VecDeque::new(), Farewells::default());
        Self { target, outbox, farewells, reset_after: Instant(0), reset_secret: None }
    }

    /// Takes the target's key, which is the same in its next run, and the index of the link. Links
    /// have different tokens: a channel that one of them has is unknown to the others, which say so
    /// to anybody.
    pub(super) fn set_key(&mut self, key: &SecretKey, link: usize) {
        let mut secret = [0; 32];
        key.derive(b"tyche resets", &mut secret);
        self.reset_secret = Some(digest(&[&secret, &(link as u64).to_le_bytes()]));
    }

    /// The token of a channel, by its identity in frames to the target.
    pub(super) fn reset_token(&self, channel: ChannelId, cookie: Cookie) -> ResetToken {
        let token = |secret: &[u8; 32]| {
            let digest = digest(&[secret, &cookie.0.to_le_bytes(), &channel.0.to_le_bytes()]);
            ResetToken(*digest.first_chunk().expect("longer than a token"))
        };
        self.reset_secret.as_ref().map(token).unwrap_or_default()
    }

    /// Queues a control frame: see [`send`](Self::send).
    pub(super) fn post(&mut self, to: Mac, flags: Flags, control: Control) {
        self.send(to, Header { flags, ..Header::new(control.kind()) }, Some(control));
    }

    /// Queues a frame; drops it if too many wait.
    pub(super) fn send(&mut self, to: Mac, header: Header, control: Option<Control>) {
        if self.outbox.len() < OUTBOX_MAX {
            self.outbox.push_back((to, header, control));
        }
    }

    /// Whether an invalid frame may be answered now; if so, the next one may be only later.
    fn may_reset(&mut self, now: Instant) -> bool {
        let may = now >= self.reset_after;
        if may {
            self.reset_after = now + RESET_INTERVAL;
        }
        may
    }

    /// Answers the Discover of a host that speaks another version.
    pub(super) fn refuse_version(&mut self, now: Instant, to: Mac, greeting: &Greeting) {
        if greeting.kind == Kind::Discover && self.may_reset(now) {
            self.post(to, Flags::NONE, Control::Reject(greeting.refusal(self.target)));
        }
    }

    /// Answers a frame for an unknown channel with a Reset.
    pub(super) fn reset(&mut self, now: Instant, to: Mac, header: &Header) {
        if self.may_reset(now) {
            let (cookie, channel, target) = (header.cookie, header.channel, self.target);
            let token = self.reset_token(channel, cookie);
            self.post(to, Flags::NONE, Control::Reset(Reset { cookie, channel, token, target }));
        }
    }

    /// Keeps the answer to a farewell on a channel: the host may repeat the farewell.
    pub(super) fn note_farewell(&mut self, config: &ChannelConfig, answer: Header) {
        self.farewells.note(config, answer);
    }

    /// The answer to a repeated farewell, to be [sent](Self::send) if its payload is well; `None`
    /// for any other frame.
    pub(super) fn repeated_farewell(&mut self, src: Mac, farewell: &Header) -> Option<Header> {
        self.farewells.repeated(src, farewell)
    }

    /// Composes the next frame; false if there is none.
    pub(super) fn poll_transmit(&mut self, out: &mut Outgoing) -> bool {
        let Some((to, header, control)) = self.outbox.pop_front() else { return false };
        out.set(to, header, control.map_or(Content::Empty, Content::Control));
        true
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::{ChannelId, Cookie, Versions};

    use super::*;

    const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const NOW: Instant = Instant(1_000_000_000);

    fn sent(answers: &mut Answers) -> Vec<Kind> {
        let mut out = Outgoing::new();
        std::iter::from_fn(|| answers.poll_transmit(&mut out).then_some(out.header.kind)).collect()
    }

    fn answers() -> Answers {
        Answers::new(Uuid::from_u128(3))
    }

    #[test]
    fn resets_and_refusals_have_one_rate() {
        let mut answers = answers();
        let channel = Header { channel: ChannelId(5), ..Header::new(Kind::Data) };
        let header = Header { cookie: Cookie(7), ..channel };
        let discover = Greeting { kind: Kind::Discover, nonce: 9, versions: Versions::OURS };
        answers.reset(NOW, HOST, &header);
        answers.reset(NOW, HOST, &header);
        answers.refuse_version(NOW, HOST, &discover);
        assert_eq!(sent(&mut answers), [Kind::Reset]);
        let later = NOW + RESET_INTERVAL;
        let offer = Greeting { kind: Kind::Offer, ..discover };
        answers.refuse_version(later, HOST, &offer);
        assert_eq!(sent(&mut answers), [], "only questions are answered");
        answers.refuse_version(later, HOST, &discover);
        answers.reset(later, HOST, &header);
        assert_eq!(sent(&mut answers), [Kind::Reject]);
    }

    #[test]
    fn a_reset_names_channel_and_target() {
        let mut answers = answers();
        let channel = Header { channel: ChannelId(5), ..Header::new(Kind::Data) };
        answers.reset(NOW, HOST, &Header { cookie: Cookie(7), ..channel });
        let mut out = Outgoing::new();
        assert!(answers.poll_transmit(&mut out));
        let (cookie, channel, target) = (Cookie(7), ChannelId(5), Uuid::from_u128(3));
        let reset = Reset { cookie, channel, token: ResetToken::default(), target };
        assert_eq!(out.destination, HOST);
        assert_eq!(out.content, Content::Control(Control::Reset(reset)));
    }

    #[test]
    fn answers_that_wait_are_bounded() {
        let mut answers = answers();
        for _ in 0..2 * OUTBOX_MAX {
            answers.send(HOST, Header::new(Kind::Disconnect), None);
        }
        assert_eq!(sent(&mut answers).len(), OUTBOX_MAX);
    }
}
