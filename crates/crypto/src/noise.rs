//! The handshake: Noise IKpsk2 with X25519, ChaCha20-Poly1305 and SHA-256 (Noise, revision 34,
//! sections 7.5 and 9).
//!
//! ```text
//! initiator                              responder
//!     e, es, s, ss, payload    ──────►       knows who asks, and that it may
//!     knows that it is answered  ◄──────     e, ee, se, psk, payload
//! ```
//!
//! The initiator knows the responder's public key beforehand. Both messages are encrypted, the
//! initiator's identity with them. The prologue is what was sent in the clear: it is bound, not
//! hidden.

use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::hkdf::LEN;
use crate::key::{PublicKey, SecretKey};
use crate::primitives::Resolver;
use crate::seal::{Forged, TAG_LEN};

const PROTOCOL: &str = "Noise_IKpsk2_25519_ChaChaPoly_SHA256";
/// Bytes of a pre-shared key.
pub const PSK_LEN: usize = 32;
/// The second is the one with the pre-shared key.
const PSK_AT: u8 = 2;

/// Bytes of the two messages with such a payload.
pub const fn message_len(payload: usize) -> [usize; 2] {
    [LEN + (LEN + TAG_LEN) + payload + TAG_LEN, LEN + payload + TAG_LEN]
}

/// The secrets of a finished handshake, one for each direction.
pub struct Secrets {
    /// Of what the initiator sends.
    pub initiator: Zeroizing<[u8; LEN]>,
    /// Of what the responder sends.
    pub responder: Zeroizing<[u8; LEN]>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

fn secrets(state: &mut HandshakeState) -> Secrets {
    let (initiator, responder) = state.dangerously_get_raw_split();
    Secrets { initiator: Zeroizing::new(initiator), responder: Zeroizing::new(responder) }
}

fn builder<'a>(
    secret: &'a SecretKey,
    psk: &'a [u8; PSK_LEN],
    prologue: &'a [u8],
    random: [u8; LEN],
) -> Builder<'a> {
    let params = PROTOCOL.parse().expect("a name that snow knows");
    let builder = Builder::with_resolver(params, Box::new(Resolver(random)));
    let builder = builder.local_private_key(secret.bytes()).and_then(|it| it.prologue(prologue));
    builder.and_then(|it| it.psk(PSK_AT, psk)).expect("each is set once")
}

/// The end that asks.
pub struct Initiator {
    state: Box<HandshakeState>,
}

impl Initiator {
    /// `peer`: the responder's key. `random`: 32 bytes of a cryptographic source, never used again.
    /// Returns it with the first message.
    ///
    /// # Panics
    /// If the payload is longer than a message can be.
    pub fn new(
        (secret, peer): (&SecretKey, &PublicKey),
        psk: &[u8; PSK_LEN],
        prologue: &[u8],
        random: [u8; LEN],
        payload: &[u8],
    ) -> (Self, Vec<u8>) {
        let random = Zeroizing::new(random);
        let builder = builder(secret, psk, prologue, *random);
        let builder = builder.remote_public_key(peer.as_bytes()).expect("it is set once");
        let mut state = Box::new(builder.build_initiator().expect("all is there"));
        let mut message = vec![0; message_len(payload.len())[0]];
        let len = state.write_message(payload, &mut message).expect("no public key is weak");
        debug_assert_eq!(len, message.len());
        (Self { state }, message)
    }

    /// Takes the answer; returns its payload and the secrets. After an error, another answer may
    /// still be the right one.
    ///
    /// # Errors
    /// `Forged` if it is not the responder's to the first message.
    pub fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, Secrets), Forged> {
        let mut payload = vec![0; message.len()];
        let len = self.state.read_message(message, &mut payload).map_err(|_| Forged)?;
        payload.truncate(len);
        Ok((payload, secrets(&mut self.state)))
    }
}

/// The end that answers.
pub struct Responder {
    state: Box<HandshakeState>,
}

impl Responder {
    /// Takes the first message; returns the initiator's key and the payload.
    ///
    /// # Errors
    /// `Forged` unless the message was made by the owner of that key, for this responder, with this
    /// prologue.
    pub fn new(
        secret: &SecretKey,
        psk: &[u8; PSK_LEN],
        prologue: &[u8],
        random: [u8; LEN],
        message: &[u8],
    ) -> Result<(Self, PublicKey, Vec<u8>), Forged> {
        let random = Zeroizing::new(random);
        let builder = builder(secret, psk, prologue, *random);
        let mut state = Box::new(builder.build_responder().expect("all is there"));
        let mut payload = vec![0; message.len()];
        let len = state.read_message(message, &mut payload).map_err(|_| Forged)?;
        payload.truncate(len);
        let peer = state.get_remote_static().and_then(|it| it.try_into().ok()).ok_or(Forged)?;
        let peer = PublicKey::from_bytes(peer).map_err(|_| Forged)?;
        Ok((Self { state }, peer, payload))
    }

    /// Answers; returns the second message and the secrets.
    ///
    /// # Panics
    /// If the payload is longer than a message can be.
    pub fn finish(mut self, payload: &[u8]) -> (Vec<u8>, Secrets) {
        let mut message = vec![0; message_len(payload.len())[1]];
        let len = self.state.write_message(payload, &mut message).expect("a short payload");
        debug_assert_eq!(len, message.len());
        (message, secrets(&mut self.state))
    }
}

impl std::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Initiator(..)")
    }
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Responder(..)")
    }
}
