//! A sealed connect, and what its answer is opened with. PROTOCOL.md, "Keys".

use tyche_crypto::{Initiator, Sealer};
use tyche_wire::{
    Accept, Connect, Cookie, Introduction, Name, Reject, Rejection, ResetToken, SealedAnswer,
    SealedConnect, Verdict,
};

use super::config::SessionConfig;
use super::target_search::{ExportId, TargetId};
use crate::channel::protection::{self, Guard};
use crate::question;

/// The host's handshake with keys for one attempt: the sealed Connect, which is repeated as it is,
/// and the state that opens its answer.
pub(super) struct SealedHandshake {
    cookie: Cookie,
    frame: SealedConnect,
    handshake: Initiator,
}

/// The answer of a target.
pub(super) enum ConnectAnswer {
    /// The channel is open.
    Accepted(Accept, Sealing),
    /// It is refused.
    Rejected(Rejection),
}

/// The keys of a channel.
pub(super) struct Sealing {
    /// Seals ours.
    pub(super) sealer: Sealer,
    /// Opens the target's.
    pub(super) guard: Guard,
    /// Proves that a Reset is the target's.
    pub(super) token: ResetToken,
}

impl SealedHandshake {
    /// The handshake of a session, for a Connect; `None` if the session has no keys.
    pub(super) fn of(
        session: &SessionConfig,
        connect: &Connect,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Box<Self>> {
        let keys = session.keys.as_ref()?;
        let export_name = match session.export {
            ExportId::Name(name) => name,
            ExportId::Uuid(_) => Name::EMPTY,
        };
        let target_name = match session.target {
            TargetId::Name(name) => name,
            TargetId::Any | TargetId::Uuid(_) => Name::EMPTY,
        };
        let message = [0; SealedConnect::MESSAGE_LEN];
        let Connect { attempt, ticket, target, cookie, .. } = *connect;
        // Links sort frames by it.
        let cookie = Cookie(cookie.0 & u64::from(u32::MAX));
        let proof = [0; SealedConnect::PROOF_LEN];
        let mut frame = SealedConnect { attempt, ticket, target, message, proof };
        let suite = protection::native_suite();
        let connect = connect.clone();
        let introduction = Introduction { suite, target_name, export_name, connect };
        let (prologue, bytes) = (protection::prologue(cookie, &frame), introduction.to_bytes());
        let (ends, ephemeral) = ((&keys.secret, &keys.target), protection::draw(random));
        let (handshake, message) =
            Initiator::new(ends, &protection::PSK, &prologue, ephemeral, &bytes);
        frame.message.copy_from_slice(&message);
        frame.proof = question::connect_proof(&keys.target, cookie, &frame);
        Some(Box::new(Self { cookie, frame, handshake }))
    }

    /// The cookie in its header: the first half of the channel's.
    pub(super) fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// The frame to be sent.
    pub(super) fn frame(&self) -> SealedConnect {
        self.frame.clone()
    }

    /// Opens an answer. After an error, another may still be the right one.
    ///
    /// # Errors
    /// `Forged`; or what is wrong with the contents.
    pub(super) fn open(&mut self, answer: &SealedAnswer) -> Result<ConnectAnswer, Reject> {
        let finished = self.handshake.finish(&answer.message);
        let (verdict, secrets) = finished.map_err(|_| Reject::Forged)?;
        let (answered, answer) = match Verdict::parse(&verdict)? {
            Verdict::Rejected(it) => ((it.attempt, it.target), ConnectAnswer::Rejected(it)),
            Verdict::Accepted { suite, token, accept } => {
                let (sealer, guard) = protection::ends(suite, &secrets, true);
                let sealing = Sealing { sealer, guard, token };
                ((accept.attempt, accept.target), ConnectAnswer::Accepted(accept, sealing))
            }
        };
        let asked = (self.frame.attempt, self.frame.target);
        if answered == asked { Ok(answer) } else { Err(Reject::Mismatch) }
    }
}
