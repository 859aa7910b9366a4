//! The handshake against the published test vectors of Noise (cacophony, for
//! Noise_IKpsk2_25519_ChaChaPoly_SHA256), whose third and fourth message show the secrets.

#![allow(clippy::unwrap_used)]

use tyche_crypto::{Forged, Initiator, PublicKey, Responder, SecretKey, message_len};

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn array(hex: &str) -> [u8; 32] {
    bytes(hex).try_into().unwrap()
}

const PROLOGUE: &[u8] = b"John Galt";
const PSK: &[u8; 32] = b"This is my Austrian perspective!";
const HOST: &str = "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1";
const HOST_EPHEMERAL: &str = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
const TARGET: &str = "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893";
const TARGET_PUBLIC: &str = "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62";
const TARGET_EPHEMERAL: &str = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";
const FIRST: &str = "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79442ec9b09893d0\
                     f510791784c10cbc959f25b1766e0def6e301d14fbca1c7790ac829b8b3674f5f649a5f0e98479\
                     662cbfbf2b2c47cd4b09fcd266cd29d7cb675f1808849707847840f6d178ec4d3733aa";
const SECOND: &str = "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088439a1b3cebf680\
                      b2c74217fcb5eba4ff58a9468cd90c4aca6194f57479b379a7";
const THIRD: &str = "a8fde7a0accec190cd306c5950d4fd8e04a205ec288aa747d8b347";
const FOURTH: &str = "59caddd9984a3bbe24c4fb31a2bd455b7eba3fa0980674b1a3a5f9";

fn host() -> (Initiator, Vec<u8>) {
    let (secret, peer) =
        (SecretKey::from_random(array(HOST)), PublicKey::from_bytes(array(TARGET_PUBLIC)).unwrap());
    let payload = b"Ludwig von Mises";
    Initiator::new((&secret, &peer), PSK, PROLOGUE, array(HOST_EPHEMERAL), payload)
}

fn target(prologue: &[u8], message: &[u8]) -> Result<(Responder, PublicKey, Vec<u8>), Forged> {
    let secret = SecretKey::from_random(array(TARGET));
    Responder::new(&secret, PSK, prologue, array(TARGET_EPHEMERAL), message)
}

#[test]
fn the_handshake_is_that_of_the_test_vectors() {
    let (mut initiator, first) = host();
    assert_eq!(first, bytes(FIRST));
    assert_eq!(first.len(), message_len(16)[0]);
    let (responder, peer, payload) = target(PROLOGUE, &first).unwrap();
    assert_eq!(peer, SecretKey::from_random(array(HOST)).public());
    assert_eq!(payload, b"Ludwig von Mises");
    let (second, theirs) = responder.finish(b"Murray Rothbard");
    assert_eq!(second, bytes(SECOND));
    assert_eq!(second.len(), message_len(15)[1]);
    let (payload, ours) = initiator.finish(&second).unwrap();
    assert_eq!(payload, b"Murray Rothbard");
    assert_eq!((&ours.initiator, &ours.responder), (&theirs.initiator, &theirs.responder));
    for (secret, text, sealed) in
        [(ours.initiator, "F. A. Hayek", THIRD), (ours.responder, "Carl Menger", FOURTH)]
    {
        use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
        let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &*secret).unwrap());
        let mut out = text.as_bytes().to_vec();
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut out).unwrap();
        assert_eq!(out, bytes(sealed), "{text}");
    }
}

#[test]
fn a_message_that_is_changed_or_for_another_is_forged() {
    let (mut initiator, first) = host();
    assert_eq!(target(b"another", &first).err(), Some(Forged), "another prologue");
    for byte in 0..first.len() {
        let mut forged = first.clone();
        forged[byte] ^= 1;
        assert_eq!(target(PROLOGUE, &forged).err(), Some(Forged), "byte {byte}");
    }
    let other = SecretKey::from_random([7; 32]);
    let to_other = Responder::new(&other, PSK, PROLOGUE, [1; 32], &first);
    assert_eq!(to_other.err(), Some(Forged), "for another target");
    for len in 0..first.len() {
        assert_eq!(target(PROLOGUE, &first[..len]).err(), Some(Forged), "{len} bytes");
    }
    let (responder, ..) = target(PROLOGUE, &first).unwrap();
    let (second, _) = responder.finish(b"Murray Rothbard");
    for byte in 0..second.len() {
        let mut forged = second.clone();
        forged[byte] ^= 1;
        assert_eq!(initiator.finish(&forged).err(), Some(Forged), "byte {byte}");
    }
    assert!(initiator.finish(&second).is_ok(), "forged answers have no effect");
}
