//! Connect and its answer between a host and a target with keys: encrypted, but for what a target
//! must know before it decrypts anything. PROTOCOL.md, "Keys".
//!
//! ```text
//! SealedConnect                          SealedAnswer
//! off len field                          off len field
//!   0   8 attempt                          0   8 attempt
//!   8  24 ticket                           8  16 target
//!  32  16 target                          24 216 message of a verdict
//!  48 440 message of an introduction
//! 488  16 proof
//! ```
//!
//! A message is one of Noise: the keys that it needs, then its payload and tags. The payloads:
//!
//! ```text
//! introduction                           verdict
//! off len field                          off len field
//!   0   1 suite                            0   1 kind       of the body
//!   1   7 0                                1   1 suite      of the channel; 0 with a reject
//!   8  64 target_name                      2   6 token      of resets; 0 with a reject
//!  72  64 export_name                      8 104 body       of an accept
//! 136 208 connect                        112  32 next_key   of the target, or 0
//!                                        144  24 0
//!
//!                                          8 160 body       of a reject
//! ```

use core::fmt;

use uuid::Uuid;

use crate::body::{Reader, Writer};
use crate::codes::codes;
use crate::{Accept, Connect, Kind, Name, Reject, Rejection, ResetToken, Ticket};

codes! {
    /// The cipher of a channel's frames.
    CipherSuite(u8) {
        /// AES-128-GCM.
        Aes128Gcm = 1,
        /// ChaCha20-Poly1305.
        ChaCha20Poly1305 = 2,
    }
}

impl CipherSuite {
    fn parse(code: u8) -> Result<Self, Reject> {
        Self::ALL.iter().copied().find(|&suite| suite as u8 == code).ok_or(Reject::Code)
    }
}

/// A [`Connect`] that only its target can read. The header of its frame has the first four bytes of
/// the host's cookie in its own, so that links which sort frames by these see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedConnect {
    /// As [`Connect::attempt`].
    pub attempt: u64,
    /// As [`Connect::ticket`].
    pub ticket: Ticket,
    /// The target addressed.
    pub target: Uuid,
    /// The first message of the handshake, with an [`Introduction`].
    pub message: [u8; Self::MESSAGE_LEN],
    /// Shows, at little cost for the target, that the sender knows its public key.
    pub proof: [u8; Self::PROOF_LEN],
}

/// The contents of a [`SealedConnect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The suite that is fast at the host.
    pub suite: CipherSuite,
    /// The name by which the user has named the target; empty if by its UUID, or not at all.
    pub target_name: Name,
    /// The name by which the user has named the export; empty if by its UUID.
    pub export_name: Name,
    /// The connect.
    pub connect: Connect,
}

/// The answer to a [`SealedConnect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedAnswer {
    /// The attempt of the connect.
    pub attempt: u64,
    /// The target that answers.
    pub target: Uuid,
    /// The second message of the handshake, with a [`Verdict`].
    pub message: [u8; Self::MESSAGE_LEN],
}

/// The contents of a [`SealedAnswer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The channel is open.
    Accepted {
        /// The cipher of its frames.
        suite: CipherSuite,
        /// Proves that a [`Reset`](crate::Reset) of the channel is the target's.
        token: ResetToken,
        /// The channel.
        accept: Accept,
        /// The public key that the target will have: the host has to know it by this one from
        /// now on. `None`: it keeps the key that it has proved.
        next_key: Option<[u8; Self::KEY_LEN]>,
    },
    /// The channel is refused.
    Rejected(Rejection),
}

/// Bytes that the two messages have beside their payloads: the ephemeral key and the tag; and in
/// the first, the host's key with its tag.
const OVERHEAD: [usize; 2] = [32 + (32 + 16) + 16, 32 + 16];

impl SealedConnect {
    /// Bytes of the message.
    pub const MESSAGE_LEN: usize = OVERHEAD[0] + Introduction::LEN;
    /// Bytes of the proof.
    pub const PROOF_LEN: usize = 16;
    /// Bytes before the message.
    const CLEAR_LEN: usize = 48;

    /// The bytes before the message: they are bound to it.
    pub fn clear(&self) -> [u8; Self::CLEAR_LEN] {
        let mut bytes = [0; Self::CLEAR_LEN];
        self.emit_clear(&mut Writer::new(&mut bytes));
        bytes
    }

    fn emit_clear(&self, fields: &mut Writer<'_>) {
        fields.u64(self.attempt).bytes(&self.ticket.0).uuid(&self.target);
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (attempt, ticket, target) = (fields.u64()?, Ticket(fields.bytes()?), fields.uuid()?);
        let (message, proof) = (fields.bytes()?, fields.bytes()?);
        fields.end()?;
        Ok(Self { attempt, ticket, target, message, proof })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        self.emit_clear(fields);
        fields.bytes(&self.message).bytes(&self.proof);
    }
}

impl Introduction {
    /// Bytes.
    pub const LEN: usize = 136 + Connect::LEN;

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut fields = Writer::new(&mut bytes);
        fields.bytes(&[self.suite as u8]).zeroes::<7>();
        fields.text(&self.target_name).text(&self.export_name);
        self.connect.emit(&mut fields);
        bytes
    }

    /// Reads it, and checks each of its fields.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(bytes: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(bytes);
        let [code] = fields.bytes()?;
        fields.zeroes::<7>()?;
        let suite = CipherSuite::parse(code)?;
        let (target_name, export_name) = (fields.text()?, fields.text()?);
        Ok(Self { suite, target_name, export_name, connect: Connect::parse(fields.rest())? })
    }
}

impl SealedAnswer {
    /// Bytes of the message.
    pub const MESSAGE_LEN: usize = OVERHEAD[1] + Verdict::LEN;

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (attempt, target, message) = (fields.u64()?, fields.uuid()?, fields.bytes()?);
        fields.end()?;
        Ok(Self { attempt, target, message })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.attempt).uuid(&self.target).bytes(&self.message);
    }
}

impl Verdict {
    /// Bytes.
    pub const LEN: usize = 8 + Self::BODY_LEN;
    /// Bytes of the longer body.
    const BODY_LEN: usize = Rejection::LEN;
    /// Bytes of a public key.
    const KEY_LEN: usize = 32;

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut fields = Writer::new(&mut bytes);
        match self {
            Self::Accepted { suite, token, accept, next_key } => {
                fields.bytes(&[Kind::Accept as u8, *suite as u8]).bytes(&token.0);
                accept.emit(&mut fields);
                fields.bytes(&next_key.unwrap_or_default());
            }
            Self::Rejected(rejection) => {
                fields.bytes(&[Kind::Reject as u8]).zeroes::<7>();
                rejection.emit(&mut fields);
            }
        }
        bytes
    }

    /// Reads it, and checks each of its fields.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(bytes: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(bytes);
        let [kind, code] = fields.bytes()?;
        if kind == Kind::Reject as u8 {
            if code != 0 {
                return Err(Reject::Reserved);
            }
            fields.zeroes::<6>()?;
            return Rejection::parse(fields.rest()).map(Self::Rejected);
        }
        if kind != Kind::Accept as u8 {
            return Err(Reject::Code);
        }
        let (suite, token) = (CipherSuite::parse(code)?, ResetToken(fields.bytes()?));
        let (accept, rest) = fields.rest().split_at_checked(Accept::LEN).ok_or(Reject::Length)?;
        let mut fields = Reader::new(rest);
        let next_key: [u8; Self::KEY_LEN] = fields.bytes()?;
        fields.zeroes::<{ Self::BODY_LEN - Accept::LEN - Self::KEY_LEN }>()?;
        fields.end()?;
        let next_key = (next_key != [0; Self::KEY_LEN]).then_some(next_key);
        Ok(Self::Accepted { suite, token, accept: Accept::parse(accept)?, next_key })
    }
}

impl fmt::Display for SealedConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedConnect to {}", self.target)
    }
}

impl fmt::Display for SealedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedAnswer of {}", self.target)
    }
}

impl fmt::Display for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        })
    }
}
