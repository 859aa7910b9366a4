//! A sealed connect, and what its answer is opened with. PROTOCOL.md, "Keys".

use tyche_crypto::{Initiator, PublicKey, Sealer};
use tyche_wire::{
    Accept, Connect, Cookie, Introduction, Name, Reject, Rejection, ResetToken, SealedAnswer,
    SealedConnect, Verdict,
};

use super::config::SessionConfig;
use super::event::NextKey;
use super::target_search::{ExportId, TargetId};
use crate::channel::protection::{self, Guard};
use crate::question;

/// The host's handshake with keys for one attempt: the sealed Connect, which is repeated as it is,
/// and the state that opens its answer.
pub(super) struct SealedHandshake {
    cookie: Cookie,
    /// The key by which the target is known.
    known: PublicKey,
    frame: SealedConnect,
    handshake: Initiator,
}

/// The answer of a target.
pub(super) enum ConnectAnswer {
    /// The channel is open.
    Accepted(Accept, Box<Sealing>),
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
    /// The key that the target is to be known by from now on, if it says another one.
    pub(super) next_key: Option<NextKey>,
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
        Some(Box::new(Self { cookie, known: keys.target, frame, handshake }))
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
            Verdict::Accepted { suite, token, accept, next_key } => {
                let (sealer, guard) = protection::ends(suite, &secrets, true);
                let next = next_key.and_then(|bytes| PublicKey::from_bytes(bytes).ok());
                let (target, former) = (accept.target, self.known);
                let next_key = next.map(|next| NextKey { target, former, next });
                let sealing = Box::new(Sealing { sealer, guard, token, next_key });
                ((accept.attempt, accept.target), ConnectAnswer::Accepted(accept, sealing))
            }
        };
        let asked = (self.frame.attempt, self.frame.target);
        if answered == asked { Ok(answer) } else { Err(Reject::Mismatch) }
    }
}

#[cfg(test)]
mod tests {
    use tyche_crypto::{Responder, SecretKey};
    use tyche_testkit::golden::Golden;
    use tyche_wire::{CipherSuite, Control, Frame, HEAD_LEN};

    use super::*;

    const DOCUMENT: &str = include_str!("../../../../../docs/protocol-annexes.md");
    const GOLDEN: Golden = Golden { root: concat!(env!("CARGO_MANIFEST_DIR"), "/../wire") };

    /// A value of the first block of known answers: the rest of its line, and the lines below it
    /// that begin with a space.
    fn known(name: &str) -> String {
        let (_, section) = DOCUMENT.split_once("\n### Known answers\n").expect("the section");
        let (_, block) = section.split_once("```text\n").expect("a block");
        let mut lines = block.lines().skip_while(|line| line.split(' ').next() != Some(name));
        let first = lines.next().and_then(|line| line.strip_prefix(name)).expect(name);
        let rest = lines.take_while(|line| line.starts_with(' '));
        std::iter::once(first).chain(rest).map(str::trim).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The cookie and the body of a golden frame.
    fn golden(name: &str) -> (Cookie, Control) {
        let frame = GOLDEN.frame(name);
        let (head, payload) = frame.split_first_chunk::<HEAD_LEN>().expect("a whole frame");
        let Frame { header, body } = Frame::parse(head, payload).expect("a right frame");
        let tyche_wire::Body::Control(pdu) = body else { panic!("{name} has a body") };
        (header.cookie, pdu.decode())
    }

    #[test]
    fn a_handshake_is_the_documented_one() {
        let [host, target] = [1, 2].map(|byte| SecretKey::from_random([byte; 32]));
        let public = target.public();
        assert_eq!(
            [host.public(), public].map(|key| key.to_string()),
            [known("host"), known("target")]
        );
        let (cookie, Control::SealedConnect(mut frame)) = golden("sealed-connect") else {
            panic!("it is a sealed connect");
        };
        let (_, Control::Connect(connect)) = golden("connect") else { panic!("it is a connect") };
        let (_, Control::Accept(accept)) = golden("accept") else { panic!("it is an accept") };
        let introduction = Introduction {
            suite: CipherSuite::Aes128Gcm,
            target_name: Name::EMPTY,
            export_name: Name::new("scratch").expect("a name"),
            connect,
        };
        let (prologue, bytes) = (protection::prologue(cookie, &frame), introduction.to_bytes());
        let (mut initiator, message) =
            Initiator::new((&host, &public), &protection::PSK, &prologue, [3; 32], &bytes);
        assert_eq!(hex(&message), known("message"));
        frame.message.copy_from_slice(&message);
        assert_eq!(hex(&question::connect_proof(&public, cookie, &frame)), known("proof"));
        let opened = Responder::new(&target, &protection::PSK, &prologue, [4; 32], &message);
        let (responder, peer, payload) = opened.expect("it is for this target");
        assert_eq!((peer, payload), (host.public(), bytes.to_vec()));
        let (suite, token) = (CipherSuite::Aes128Gcm, ResetToken([5; 6]));
        let verdict = Verdict::Accepted { suite, token, accept, next_key: None };
        let (answer, _) = responder.finish(&verdict.to_bytes());
        assert_eq!(hex(&answer), known("answer"));
        let (payload, secrets) = initiator.finish(&answer).expect("it is the target's");
        assert_eq!(Verdict::parse(&payload), Ok(verdict));
        assert_eq!(hex(&*secrets.initiator), known("host_secret"));
        assert_eq!(hex(&*secrets.responder), known("target_secret"));
    }
}
