//! The primitives of the handshake, for snow: those of aws-lc-rs.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest::{Context, SHA256};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use zeroize::Zeroizing;

use crate::hkdf::LEN;
use crate::key::SecretKey;
use crate::seal::TAG_LEN;

/// Makes primitives. Holds the random bytes of the one ephemeral key that a handshake needs.
pub(crate) struct Resolver(pub(crate) [u8; LEN]);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Drawn(Some(Zeroizing::new(self.0)))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(Pair::default()) as _)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::new(Sha256(Context::new(&SHA256))) as _)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::ChaChaPoly).then(|| Box::new(ChaChaPoly(None)) as _)
    }
}

/// Random bytes that were drawn before.
struct Drawn(Option<Zeroizing<[u8; LEN]>>);

impl Random for Drawn {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let drawn = self.0.take().filter(|it| it.len() == dest.len()).ok_or(Error::Rng)?;
        dest.copy_from_slice(&*drawn);
        Ok(())
    }
}

/// An X25519 key.
#[derive(Default)]
struct Pair {
    secret: Zeroizing<[u8; LEN]>,
    public: [u8; LEN],
}

impl Dh for Pair {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        LEN
    }

    fn priv_len(&self) -> usize {
        LEN
    }

    fn set(&mut self, secret: &[u8]) {
        self.secret.copy_from_slice(secret);
        self.public = *SecretKey::from_random(*self.secret).public().as_bytes();
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut secret = Zeroizing::new([0; LEN]);
        rng.try_fill_bytes(&mut *secret)?;
        self.set(&*secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let secret = PrivateKey::from_private_key(&X25519, &*self.secret).map_err(|_| Error::Dh)?;
        let public = UnparsedPublicKey::new(&X25519, &public[..LEN]);
        // Fails for a key of small order: no honest peer has one.
        agree(&secret, public, Error::Dh, |shared| {
            out[..LEN].copy_from_slice(shared);
            Ok(())
        })
    }
}

struct Sha256(Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        SHA256.block_len()
    }

    fn hash_len(&self) -> usize {
        SHA256.output_len()
    }

    fn reset(&mut self) {
        self.0 = Context::new(&SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let context = std::mem::replace(&mut self.0, Context::new(&SHA256));
        out[..SHA256.output_len()].copy_from_slice(context.finish().as_ref());
    }
}

struct ChaChaPoly(Option<LessSafeKey>);

impl ChaChaPoly {
    fn key(&self) -> &LessSafeKey {
        self.0.as_ref().expect("snow sets a key first")
    }
}

/// Noise: 4 bytes of zero, then the number, little-endian.
fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; LEN]) {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("of the right length");
        self.0 = Some(LessSafeKey::new(key));
    }

    fn encrypt(&self, number: u64, aad: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let (text, tag) = out.split_at_mut(plain.len());
        text.copy_from_slice(plain);
        let sealed = self.key().seal_in_place_separate_tag(nonce(number), Aad::from(aad), text);
        tag[..TAG_LEN].copy_from_slice(sealed.expect("a message is short").as_ref());
        plain.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        number: u64,
        aad: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let len = sealed.len().checked_sub(TAG_LEN).ok_or(Error::Decrypt)?;
        let (text, tag) = sealed.split_at(len);
        let opened = self.key().open_separate_gather(
            nonce(number),
            Aad::from(aad),
            text,
            tag,
            &mut out[..len],
        );
        opened.map_err(|_| Error::Decrypt)?;
        Ok(len)
    }
}
