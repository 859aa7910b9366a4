//! Questions with a proof that their sender knows the target's public key. A silent target answers
//! these only. docs/protocol-annexes.md, "Silent targets".
//!
//! The proof is in the nonce of a Discover or Hello, which is random otherwise, so that targets
//! that are not silent need not know of it.
//!
//! A sealed Connect has such a proof of its own, over all of its bytes: a target computes nothing
//! on the curve for a frame that was made up by somebody who does not know its key.

use tyche_crypto::{PublicKey, digest};
use tyche_wire::{Cookie, Kind, SealedConnect};

/// The number of random bytes in a nonce; the other bytes are the proof. With fewer random bytes, a
/// late answer is more often taken for the answer to a newer question. With more, the proof is
/// shorter and guessed sooner: at 20,000 guesses a second, one of 6 bytes in 400 years.
const SALT_LEN: usize = 2;

/// Returns the nonce for a Discover or Hello (`kind`). If `target` is given, the nonce has a proof
/// that the sender knows this key; otherwise it is `random`.
pub fn nonce(target: Option<&PublicKey>, kind: Kind, random: u64) -> u64 {
    let Some(target) = target else { return random };
    let mut nonce = random.to_le_bytes();
    let (salt, proof) = nonce.split_at_mut(SALT_LEN);
    let digest = digest(&[b"tyche question", target.as_bytes(), &[kind as u8], salt]);
    proof.copy_from_slice(&digest[..proof.len()]);
    u64::from_le_bytes(nonce)
}

/// Whether the nonce `asked` has a valid proof for the key of `target`. The sender of the question
/// knows this key, or repeats a nonce that it has overheard.
pub(crate) fn is_proof(target: &PublicKey, kind: Kind, asked: u64) -> bool {
    nonce(Some(target), kind, asked) == asked
}

/// Returns the proof for a sealed Connect in a frame with this cookie.
pub fn connect_proof(
    target: &PublicKey,
    cookie: Cookie,
    connect: &SealedConnect,
) -> [u8; SealedConnect::PROOF_LEN] {
    let (cookie, clear) = (cookie.0.to_le_bytes(), connect.clear());
    let parts = [b"tyche connect", &target.as_bytes()[..], &cookie, &clear, &connect.message];
    *digest(&parts).first_chunk().expect("longer than a proof")
}

#[cfg(test)]
mod tests {
    use tyche_crypto::SecretKey;

    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/protocol-annexes.md");

    #[test]
    fn a_proof_is_the_documented_one() {
        let key = PublicKey::from_bytes([9; 32]).expect("a key");
        let asked = nonce(Some(&key), Kind::Discover, 0x0201).to_le_bytes();
        assert_eq!(asked[..SALT_LEN], [1, 2]);
        let proof: String = asked[SALT_LEN..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(DOCUMENT.contains(&format!("the proof is `{proof}`")), "{proof}");
    }

    #[test]
    fn a_proof_is_of_one_key_and_one_kind() {
        let [ours, other] = [1, 2].map(|number| SecretKey::from_random([number; 32]).public());
        for random in [0, 7, u64::MAX] {
            let asked = nonce(Some(&ours), Kind::Discover, random);
            assert_eq!(asked as u16, random as u16);
            assert!(is_proof(&ours, Kind::Discover, asked));
            assert!(!is_proof(&ours, Kind::Hello, asked));
            assert!(!is_proof(&other, Kind::Discover, asked));
            for bit in 0..64 {
                assert!(!is_proof(&ours, Kind::Discover, asked ^ 1 << bit), "bit {bit}");
            }
            assert_eq!(nonce(None, Kind::Discover, random), random);
        }
    }
}
