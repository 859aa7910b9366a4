//! Keys by which a host and a target prove who they are, and encryption that keeps others from
//! reading and forging their frames. It knows no frame: bytes in, bytes out.
//!
//! ```text
//! SecretKey, PublicKey          identities: X25519 keys, as text and in files          key
//!     Initiator, Responder      Noise IKpsk2: two messages, then a pair of secrets     noise
//!         Sealer, Opener        one direction of one channel: keys by epoch            seal
//!             FrameKey          one frame: AES-128-GCM or ChaCha20-Poly1305            seal
//! ```
//!
//! The primitives are those of aws-lc-rs, the order of the handshake is snow's. PROTOCOL.md,
//! "Keys".

#![forbid(unsafe_code)]

mod hkdf;
mod key;
mod noise;
mod primitives;
mod seal;

pub use key::{BadKey, PublicKey, SecretKey, digest};
pub use noise::{Initiator, PSK_LEN, Responder, Secrets, message_len};
pub use seal::{EPOCH_BITS, Forged, FrameKey, Opener, Sealer, Suite, TAG_LEN};
