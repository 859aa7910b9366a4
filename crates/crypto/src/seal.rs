//! The sealing of frames, in one direction of one channel.
//!
//! A frame is known by its packet number, which is never used twice with a key. The key changes
//! with each *epoch* of 2²² packets, far below the limits of the ciphers (RFC 9001, section 6.6),
//! by a one-way function, so that whoever learns one key does not know the former ones:
//!
//! ```text
//! secret 0 ──► secret 1 ──► secret 2 ..      HKDF-Expand(secret, "tyche secret")
//!    │            │
//!    └► key, iv   └► key, iv                 HKDF-Expand(secret, "tyche key"), (.., "tyche iv")
//! ```
//!
//! The nonce is the iv, exclusive-or the packet number in its last 8 bytes, big-endian, as in
//! RFC 9001, section 5.3. Since the number says the epoch, nothing needs to be agreed on.

use std::sync::Arc;

use aws_lc_rs::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use zeroize::Zeroizing;

use crate::hkdf::{LEN, expand};

/// Bytes that sealing adds.
pub const TAG_LEN: usize = 16;
/// An epoch has 2 to the power of it packet numbers.
pub const EPOCH_BITS: u32 = 22;
const IV_LEN: usize = 12;

/// The error for bytes that were not sealed with the expected key, or were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

impl std::fmt::Display for Forged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not sealed with the expected key")
    }
}

impl std::error::Error for Forged {}

/// The cipher of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// AES-128-GCM, where the processor has instructions for it.
    Aes128Gcm,
    /// ChaCha20-Poly1305 (RFC 8439), faster where it has not.
    ChaCha20Poly1305,
}

impl Suite {
    /// The faster one on this machine.
    pub fn native() -> Self {
        #[cfg(target_arch = "x86_64")]
        let has_aes = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let has_aes = std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes = false;
        if has_aes { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// The secret of an epoch.
struct Ratchet(Zeroizing<[u8; LEN]>);

impl Ratchet {
    fn turn(&mut self) {
        let mut next = Zeroizing::new([0; LEN]);
        expand(&self.0, b"tyche secret", &mut *next);
        self.0 = next;
    }

    fn key(&self, suite: Suite) -> FrameKey {
        let algorithm = suite.algorithm();
        let (mut key, mut iv) = (Zeroizing::new([0; LEN]), [0; IV_LEN]);
        let key = &mut key[..algorithm.key_len()];
        expand(&self.0, b"tyche key", key);
        expand(&self.0, b"tyche iv", &mut iv);
        let key = UnboundKey::new(algorithm, key).expect("of the right length");
        FrameKey { key: LessSafeKey::new(key), iv }
    }
}

impl std::fmt::Debug for Ratchet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ratchet(..)")
    }
}

fn epoch(packet: u64) -> u64 {
    packet >> EPOCH_BITS
}

/// The key of an epoch.
#[derive(Debug)]
pub struct FrameKey {
    key: LessSafeKey,
    iv: [u8; IV_LEN],
}

impl FrameKey {
    fn nonce(&self, packet: u64) -> Nonce {
        let mut nonce = self.iv;
        nonce[IV_LEN - 8..].iter_mut().zip(packet.to_be_bytes()).for_each(|(byte, it)| *byte ^= it);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals `pieces` and `tail`, one after the other, into `out`, which is longer by [`TAG_LEN`].
    /// `aad` is bound, not hidden. The caller has not used the packet number before.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn seal(&self, packet: u64, aad: &[u8], pieces: &[&[u8]], tail: &[u8], out: &mut [u8]) {
        let (nonce, aad) = (self.nonce(packet), Aad::from(aad));
        let len = pieces.iter().map(|it| it.len()).sum();
        let (text, rest) = out.split_at_mut(len);
        let sealed = if let [piece] = pieces {
            self.key.seal_out_of_place_scatter(nonce, aad, piece, text, tail, rest)
        } else {
            let mut room = &mut *text;
            for piece in pieces {
                let (place, behind) = room.split_at_mut(piece.len());
                place.copy_from_slice(piece);
                room = behind;
            }
            self.key.seal_in_place_scatter(nonce, aad, text, tail, rest)
        };
        sealed.expect("the room is as long as the parts and the tag");
    }

    /// Opens what [`seal`](Self::seal) has made. `out` is shorter by [`TAG_LEN`]; its content has
    /// no meaning after an error.
    ///
    /// # Errors
    /// `Forged` unless it was sealed with this key, number and `aad`.
    ///
    /// # Panics
    /// If `out` has another length.
    fn open(&self, packet: u64, aad: &[u8], sealed: &[u8], out: &mut [u8]) -> Result<(), Forged> {
        let (text, tag) = sealed.split_at(sealed.len().checked_sub(TAG_LEN).ok_or(Forged)?);
        assert_eq!(text.len(), out.len(), "room for what is opened");
        let (nonce, aad) = (self.nonce(packet), Aad::from(aad));
        self.key.open_separate_gather(nonce, aad, text, tag, out).map_err(|_| Forged)
    }
}

/// Keys for the frames to send.
#[derive(Debug)]
pub struct Sealer {
    suite: Suite,
    ratchet: Ratchet,
    epoch: u64,
    key: Arc<FrameKey>,
}

impl Sealer {
    /// With the secret of the direction.
    pub fn new(suite: Suite, secret: &[u8; LEN]) -> Self {
        let ratchet = Ratchet(Zeroizing::new(*secret));
        Self { suite, epoch: 0, key: Arc::new(ratchet.key(suite)), ratchet }
    }

    /// The key for the frame with that number.
    ///
    /// # Panics
    /// If a frame of a later epoch was sealed before.
    pub fn key(&mut self, packet: u64) -> &Arc<FrameKey> {
        if epoch(packet) != self.epoch {
            self.advance(packet);
        }
        &self.key
    }

    #[cold]
    fn advance(&mut self, packet: u64) {
        assert!(epoch(packet) > self.epoch, "packet numbers grow");
        while self.epoch < epoch(packet) {
            self.ratchet.turn();
            self.epoch += 1;
        }
        self.key = Arc::new(self.ratchet.key(self.suite));
    }
}

/// Keys for the frames that come: those of the newest epoch, and of the one before and behind it.
#[derive(Debug)]
pub struct Opener {
    suite: Suite,
    /// Of the next epoch.
    ratchet: Ratchet,
    /// The newest of which a frame has come.
    epoch: u64,
    before: Option<FrameKey>,
    current: FrameKey,
    /// Made when it is first needed.
    next: Option<FrameKey>,
}

impl Opener {
    /// With the secret of the direction.
    pub fn new(suite: Suite, secret: &[u8; LEN]) -> Self {
        let mut ratchet = Ratchet(Zeroizing::new(*secret));
        let current = ratchet.key(suite);
        ratchet.turn();
        Self { suite, ratchet, epoch: 0, before: None, current, next: None }
    }

    /// Opens a frame's payload: as [`FrameKey::seal`] has made it.
    ///
    /// # Errors
    /// `Forged` unless it was sealed for that number and `aad`, in an epoch next to the newest.
    ///
    /// # Panics
    /// If `out` is not shorter by [`TAG_LEN`].
    pub fn open(
        &mut self,
        packet: u64,
        aad: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<(), Forged> {
        if epoch(packet) == self.epoch {
            return self.current.open(packet, aad, sealed, out);
        }
        self.open_aside(packet, aad, sealed, out)
    }

    /// The same, for another epoch than the newest.
    #[cold]
    fn open_aside(
        &mut self,
        packet: u64,
        aad: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<(), Forged> {
        if epoch(packet) + 1 == self.epoch {
            return self.before.as_ref().ok_or(Forged)?.open(packet, aad, sealed, out);
        }
        if epoch(packet) != self.epoch + 1 {
            return Err(Forged);
        }
        let next = self.next.get_or_insert_with(|| self.ratchet.key(self.suite));
        next.open(packet, aad, sealed, out)?;
        self.ratchet.turn();
        let next = self.next.take().expect("it was used");
        self.before = Some(std::mem::replace(&mut self.current, next));
        self.epoch += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; LEN] = [9; LEN];
    const EPOCH: u64 = 1 << EPOCH_BITS;
    const AAD: &[u8] = b"a header";

    struct Pair(Sealer, Opener);

    impl Pair {
        fn new(suite: Suite) -> Self {
            Self(Sealer::new(suite, &SECRET), Opener::new(suite, &SECRET))
        }

        fn seal(&mut self, packet: u64, pieces: &[&[u8]], tail: &[u8]) -> Vec<u8> {
            let mut out = vec![0; pieces.concat().len() + tail.len() + TAG_LEN];
            self.0.key(packet).seal(packet, AAD, pieces, tail, &mut out);
            out
        }

        fn open(&mut self, packet: u64, aad: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Forged> {
            let mut out = vec![0; sealed.len().saturating_sub(TAG_LEN)];
            self.1.open(packet, aad, sealed, &mut out)?;
            Ok(out)
        }
    }

    #[test]
    fn parts_are_sealed_as_one_text() {
        for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
            let mut pair = Pair::new(suite);
            let data: Vec<_> = (0..9000).map(|it| it as u8).collect();
            let whole = pair.seal(7, &[&data], &[]);
            let (front, back) = data.split_at(4096);
            assert_eq!(pair.seal(7, &[front], back), whole);
            assert_eq!(pair.seal(7, &[], &data), whole);
            assert_eq!(pair.seal(7, &[&front[..1], &front[1..], &back[..5]], &back[5..]), whole);
            assert_eq!(pair.open(7, AAD, &whole), Ok(data));
            let nothing = pair.seal(8, &[], &[]);
            assert_eq!((nothing.len(), pair.open(8, AAD, &nothing)), (TAG_LEN, Ok(Vec::new())));
        }
    }

    #[test]
    fn whatever_is_changed_is_found() {
        let mut pair = Pair::new(Suite::native());
        let sealed = pair.seal(7, &[b"data"], b"entries");
        assert_eq!(pair.open(8, AAD, &sealed), Err(Forged), "of another frame");
        assert_eq!(pair.open(7, b"another header", &sealed), Err(Forged));
        assert_eq!(pair.open(7, AAD, &sealed[..TAG_LEN - 1]), Err(Forged));
        for byte in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[byte] ^= 1;
            assert_eq!(pair.open(7, AAD, &forged), Err(Forged), "byte {byte}");
        }
        let other = Sealer::new(Suite::native(), &[8; LEN]).key(7).clone();
        let mut out = vec![0; 4 + TAG_LEN];
        other.seal(7, AAD, &[b"data"], &[], &mut out);
        assert_eq!(pair.open(7, AAD, &out), Err(Forged), "with another secret");
        assert!(pair.open(7, AAD, &sealed).is_ok());
    }

    #[test]
    fn the_key_changes_with_the_epoch() {
        let mut pair = Pair::new(Suite::native());
        let last = pair.seal(EPOCH - 1, &[b"last"], &[]);
        let late = pair.seal(EPOCH - 2, &[b"late"], &[]);
        let first = pair.seal(EPOCH, &[b"first"], &[]);
        assert_eq!(pair.open(EPOCH, AAD, &last), Err(Forged), "a forged one of the next epoch");
        assert_eq!(pair.open(EPOCH - 1, AAD, &last).as_deref(), Ok(&b"last"[..]));
        assert_eq!(pair.open(EPOCH, AAD, &first).as_deref(), Ok(&b"first"[..]));
        assert_eq!(pair.open(EPOCH - 2, AAD, &late).as_deref(), Ok(&b"late"[..]), "still known");
        let second = pair.seal(2 * EPOCH, &[b"second"], &[]);
        let far = pair.seal(3 * EPOCH, &[b"far"], &[]);
        assert_eq!(pair.open(3 * EPOCH, AAD, &far), Err(Forged), "nobody is so far ahead");
        assert_eq!(pair.open(2 * EPOCH, AAD, &second).as_deref(), Ok(&b"second"[..]));
        assert_eq!(pair.open(EPOCH - 2, AAD, &late), Err(Forged), "two epochs ago");
        assert_eq!(pair.open(3 * EPOCH, AAD, &far).as_deref(), Ok(&b"far"[..]));
    }

    #[test]
    fn frames_are_those_of_the_document() {
        // docs/protocol-annexes.md, "Known answers"; computed by another implementation.
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (suite, packet, sealed) in [
            (Suite::Aes128Gcm, 7, "a1da1075e730f60b9c9f97dde1de249df6bd4e8cd0"),
            (Suite::Aes128Gcm, EPOCH + 5, "547d30aa7cab13459e86ffc3b4be155dbf762683f6"),
            (Suite::ChaCha20Poly1305, 7, "f55644caf936404132efaa254bd73dc310eead5b67"),
        ] {
            let mut out = [0; 5 + TAG_LEN];
            let mut sealer = Sealer::new(suite, &SECRET);
            sealer.key(packet).seal(packet, &[0; 42], &[b"ty"], b"che", &mut out);
            assert_eq!(hex(&out), sealed, "{suite:?}");
            let mut opened = [0; 5];
            let mut opener = Opener::new(suite, &SECRET);
            assert_eq!(opener.open(packet, &[0; 42], &out, &mut opened), Ok(()));
            assert_eq!(&opened, b"tyche");
        }
    }

    #[test]
    #[should_panic(expected = "packet numbers grow")]
    fn no_epoch_comes_again() {
        let mut sealer = Sealer::new(Suite::native(), &SECRET);
        sealer.key(EPOCH);
        sealer.key(EPOCH - 1);
    }
}
