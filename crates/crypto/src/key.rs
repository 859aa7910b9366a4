//! Keys of hosts and targets, and their text.
//!
//! A key is an X25519 key. Its text is `tyche_` and 43 characters of base64 for the public part,
//! `tyche_secret_` and as many for the secret one, so that nobody takes one for the other.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::hkdf::{LEN, expand};

const PUBLIC: &str = "tyche_";
const SECRET: &str = "tyche_secret_";

/// The public part of a key: the identity of a host or a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; LEN]);

/// The secret part of a key. Its memory is overwritten when it is dropped, and its text is never
/// shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(Zeroizing<[u8; LEN]>);

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// It is not `tyche_` and 43 characters of base64.
    Form,
    /// No secret key belongs to it.
    Weak,
    /// It is a secret key, where a public one is wanted.
    Secret,
    /// It is a public key, where a secret one is wanted.
    Public,
}

impl SecretKey {
    /// The key of 32 random bytes.
    pub fn from_random(bytes: [u8; LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A new key, of the system's random numbers.
    ///
    /// # Panics
    /// If the system has none.
    pub fn generate() -> Self {
        let mut bytes = Zeroizing::new([0; LEN]);
        rand::fill(&mut *bytes).expect("the system has random numbers");
        Self(bytes)
    }

    /// Its public part.
    pub fn public(&self) -> PublicKey {
        let private =
            PrivateKey::from_private_key(&X25519, &*self.0).expect("any 32 bytes are one");
        let public = private.compute_public_key().expect("each has a public part");
        PublicKey(public.as_ref().try_into().expect("of 32 bytes"))
    }

    /// Its text, for a file that only its owner reads.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{SECRET}{}", URL_SAFE_NO_PAD.encode(*self.0)))
    }

    /// A secret for one purpose, which says nothing of the key itself.
    pub fn derive(&self, purpose: &[u8], out: &mut [u8]) {
        expand(&self.0, purpose, out);
    }

    pub(crate) fn bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

impl PublicKey {
    /// The key of these bytes.
    ///
    /// # Errors
    /// `Weak` for the few points of small order, with which everybody would agree on one secret.
    pub fn from_bytes(bytes: [u8; LEN]) -> Result<Self, BadKey> {
        let any = PrivateKey::from_private_key(&X25519, &[1; LEN]).expect("any 32 bytes are one");
        let peer = UnparsedPublicKey::new(&X25519, &bytes);
        agree(&any, peer, BadKey::Weak, |_| Ok(Self(bytes)))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }

    /// A short text to compare by eye or by phone: `SHA256:` and the digest in base64, as ssh has
    /// it.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(digest(&[&self.0])))
    }
}

/// SHA-256 of all parts, one after the other. The caller sees to it that no two lists of parts that
/// differ are the same when joined.
pub fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("of 32 bytes")
}

fn decode(text: &str) -> Result<[u8; LEN], BadKey> {
    let mut bytes = [0; LEN + 1];
    match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
        Ok(LEN) => Ok(*bytes.first_chunk().expect("longer than a key")),
        _ => Err(BadKey::Form),
    }
}

impl FromStr for SecretKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        match text.strip_prefix(SECRET) {
            Some(text) => decode(text).map(Self::from_random),
            None => Err(text.parse::<PublicKey>().map_or(BadKey::Form, |_| BadKey::Public)),
        }
    }
}

impl FromStr for PublicKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        if text.starts_with(SECRET) {
            return Err(BadKey::Secret);
        }
        Self::from_bytes(decode(text.strip_prefix(PUBLIC).ok_or(BadKey::Form)?)?)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "mistyped, or not a key: that is tyche_ and 43 letters, digits, - and _",
            Self::Weak => "that key belongs to nobody",
            Self::Secret => "that is a secret key; give the public one (tyche key show)",
            Self::Public => "that is a public key; give the file of the secret one",
        })
    }
}

impl std::error::Error for BadKey {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let secret = SecretKey::from_random([7; LEN]);
        assert_eq!(secret.to_text().parse(), Ok(secret.clone()));
        let public = secret.public();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert_eq!(public.to_string().len(), 49);
        assert_eq!(public.fingerprint().len(), "SHA256:".len() + 43);
    }

    #[test]
    fn one_part_is_not_taken_for_the_other() {
        let secret = SecretKey::from_random([7; LEN]);
        assert_eq!(secret.to_text().parse::<PublicKey>(), Err(BadKey::Secret));
        assert_eq!(secret.public().to_string().parse::<SecretKey>(), Err(BadKey::Public));
        for text in ["", "tyche_", "tyche_short", "key", &secret.public().to_string()[..48]] {
            assert_eq!(text.parse::<PublicKey>(), Err(BadKey::Form), "{text}");
            assert_eq!(text.parse::<SecretKey>(), Err(BadKey::Form), "{text}");
        }
        assert_eq!(format!("{secret:?}"), "SecretKey(..)");
        let zero = format!("{PUBLIC}{}", "A".repeat(43));
        assert_eq!(zero.parse::<PublicKey>(), Err(BadKey::Weak));
    }
}
