//! The messages until both ends know who the other is. All have a fixed length.
//!
//! ```text
//! challenge   8 "tychecp1", 16 random
//! hello      16 proof, 96 the first message of Noise IKpsk2, without a payload
//! verdict   129 the second message: its payload has 81 bytes
//!               1 kind, 16 UUID of the target, 1 length of its name, 63 its name and zeroes
//! ```
//!
//! The proof is the beginning of a SHA-256 over the target's public key, the challenge and the
//! message. It shows that the guest knows that key and answers this challenge, so the target
//! computes nothing on the curve for who does not, or for a hello that was recorded.

use tyche_crypto::{
    Initiator, PSK_LEN, PublicKey, Responder, SecretKey, Secrets, digest, message_len,
};

/// The first bytes of a challenge: the protocol and its version.
const MAGIC: &[u8; 8] = b"tychecp1";
/// Bytes of a challenge.
pub(crate) const CHALLENGE_LEN: usize = 24;
/// Random bytes in a challenge.
pub(crate) const RANDOM_LEN: usize = 16;
const PROOF_LEN: usize = 16;
/// Bytes of a hello.
pub(crate) const HELLO_LEN: usize = PROOF_LEN + message_len(0)[0];
/// Bytes of the longest name of a target.
pub const NAME_MAX: usize = 63;
const PAYLOAD_LEN: usize = 1 + 16 + 1 + NAME_MAX;
/// Bytes of a sealed verdict.
pub(crate) const VERDICT_LEN: usize = message_len(PAYLOAD_LEN)[1];
/// Begins the prologue: no handshake of a host is one of an admin.
const PROLOGUE: &[u8] = b"tyche control 1";
const PSK: [u8; PSK_LEN] = [0; PSK_LEN];

/// UUID and name of a target, by which admins tell apart targets with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its name, up to [`NAME_MAX`] bytes.
    pub name: String,
}

/// The target's decision about a guest that has proved its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No admin has this key.
    Unknown,
    /// An admin who may ask what is.
    Reads,
    /// An admin who may also change what is.
    Changes,
    /// There are too many admins at the moment.
    Busy,
}

impl Verdict {
    const ALL: [Self; 4] = [Self::Unknown, Self::Reads, Self::Changes, Self::Busy];

    /// True if requests may follow.
    pub fn is_admitted(self) -> bool {
        matches!(self, Self::Reads | Self::Changes)
    }
}

pub(crate) type Challenge = [u8; CHALLENGE_LEN];
pub(crate) type Hello = [u8; HELLO_LEN];

pub(crate) fn challenge(random: [u8; RANDOM_LEN]) -> Challenge {
    let mut bytes = [0; CHALLENGE_LEN];
    let (magic, rest) = bytes.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    rest.copy_from_slice(&random);
    bytes
}

/// True if these bytes are a challenge of this version.
pub(crate) fn is_challenge(bytes: &Challenge) -> bool {
    bytes.starts_with(MAGIC)
}

fn prologue(challenge: &Challenge) -> Vec<u8> {
    [PROLOGUE, challenge].concat()
}

fn proof(target: &PublicKey, challenge: &Challenge, message: &[u8]) -> [u8; PROOF_LEN] {
    let digest = digest(&[b"tyche control hello", target.as_bytes(), challenge, message]);
    *digest.first_chunk().expect("longer than a proof")
}

/// Answers a challenge: the admin's end, and the hello.
pub(crate) fn hello(
    (secret, target): (&SecretKey, &PublicKey),
    challenge: &Challenge,
    ephemeral: [u8; 32],
) -> (Initiator, Hello) {
    let (initiator, message) =
        Initiator::new((secret, target), &PSK, &prologue(challenge), ephemeral, &[]);
    let mut hello = [0; HELLO_LEN];
    let (front, back) = hello.split_at_mut(PROOF_LEN);
    front.copy_from_slice(&proof(target, challenge, &message));
    back.copy_from_slice(&message);
    (initiator, hello)
}

/// Checks that the sender of the hello knows the target's key and the challenge, without an
/// operation on the curve.
pub(crate) fn has_proof(target: &PublicKey, challenge: &Challenge, hello: &Hello) -> bool {
    let (front, message) = hello.split_at(PROOF_LEN);
    front == proof(target, challenge, message)
}

/// Opens a hello: the target's end, and the key of the guest, its owner. `None` if it is forged.
pub(crate) fn open(
    secret: &SecretKey,
    challenge: &Challenge,
    ephemeral: [u8; 32],
    hello: &Hello,
) -> Option<(Responder, PublicKey)> {
    let message = &hello[PROOF_LEN..];
    let opened = Responder::new(secret, &PSK, &prologue(challenge), ephemeral, message);
    let (responder, guest, _) = opened.ok()?;
    Some((responder, guest))
}

/// Ends the handshake at the target: the message with the verdict, and the secrets.
pub(crate) fn decide(
    responder: Responder,
    identity: &Identity,
    verdict: Verdict,
) -> (Vec<u8>, Secrets) {
    let mut payload = [0; PAYLOAD_LEN];
    payload[0] = verdict as u8;
    payload[1..17].copy_from_slice(&identity.uuid);
    let name = identity.name.as_bytes();
    let len = name.len().min(NAME_MAX);
    payload[17] = len as u8;
    payload[18..18 + len].copy_from_slice(&name[..len]);
    responder.finish(&payload)
}

/// Ends the handshake at the admin's. `None` if the verdict is forged, or of another version.
pub(crate) fn finish(
    initiator: &mut Initiator,
    message: &[u8; VERDICT_LEN],
) -> Option<(Verdict, Identity, Secrets)> {
    let (payload, secrets) = initiator.finish(message).ok()?;
    let verdict = *Verdict::ALL.get(usize::from(*payload.first()?))?;
    let uuid = payload.get(1..17)?.try_into().ok()?;
    let name = payload.get(18..)?.get(..usize::from(*payload.get(17)?))?;
    let name = String::from_utf8(name.to_vec()).ok()?;
    Some((verdict, Identity { uuid, name }, secrets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Records;

    fn keys() -> [(SecretKey, PublicKey); 2] {
        [1, 2].map(|number| {
            let secret = SecretKey::from_random([number; 32]);
            let public = secret.public();
            (secret, public)
        })
    }

    #[test]
    fn both_learn_who_the_other_is() {
        let [(admin, admin_public), (target, target_public)] = keys();
        let challenge = challenge([5; RANDOM_LEN]);
        let (mut initiator, hello) = hello((&admin, &target_public), &challenge, [3; 32]);
        assert!(is_challenge(&challenge) && has_proof(&target_public, &challenge, &hello));
        let (responder, guest) = open(&target, &challenge, [4; 32], &hello).unwrap();
        assert_eq!(guest, admin_public);
        let identity = Identity { uuid: [7; 16], name: "store1".into() };
        let (message, theirs) = decide(responder, &identity, Verdict::Reads);
        let message = message.as_slice().try_into().unwrap();
        let (verdict, said, ours) = finish(&mut initiator, message).unwrap();
        assert_eq!((verdict, said), (Verdict::Reads, identity));
        assert_eq!(ours.initiator, theirs.initiator);
        assert_eq!(ours.responder, theirs.responder);
    }

    #[test]
    fn a_hello_is_for_one_challenge_of_one_target_and_each_bit_counts() {
        let [(admin, admin_public), (target, target_public)] = keys();
        let [first, second] = [5, 6].map(|random| challenge([random; RANDOM_LEN]));
        let (_, hello) = hello((&admin, &target_public), &first, [3; 32]);
        assert!(!has_proof(&target_public, &second, &hello), "recorded, and sent again");
        assert!(!has_proof(&admin_public, &first, &hello), "for another target");
        assert!(open(&target, &second, [4; 32], &hello).is_none());
        for bit in 0..HELLO_LEN * 8 {
            let mut changed = hello;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!has_proof(&target_public, &first, &changed), "bit {bit}");
            if bit >= PROOF_LEN * 8 {
                // Somebody who knows the target's key makes a proof for it, too.
                let proof = proof(&target_public, &first, &changed[PROOF_LEN..]);
                changed[..PROOF_LEN].copy_from_slice(&proof);
                assert!(open(&target, &first, [4; 32], &changed).is_none(), "bit {bit}");
            }
        }
    }

    /// A host's handshake binds other bytes, so that its owner is not led to become an admin.
    #[test]
    fn a_handshake_with_another_prologue_is_none() {
        let [(admin, _), (target, target_public)] = keys();
        let challenge = challenge([5; RANDOM_LEN]);
        for prologue in [&b""[..], b"tyche control 2", &challenge] {
            let ends = (&admin, &target_public);
            let (_, message) = Initiator::new(ends, &PSK, prologue, [3; 32], &[]);
            let mut hello = [0; HELLO_LEN];
            hello[PROOF_LEN..].copy_from_slice(&message);
            assert!(open(&target, &challenge, [4; 32], &hello).is_none());
        }
    }

    const DOCUMENT: &str = include_str!("../../../docs/protocol-annexes.md");

    #[test]
    fn the_document_has_the_lengths() {
        let lengths = format!("a hello has {HELLO_LEN} bytes, a verdict {VERDICT_LEN}");
        assert!(DOCUMENT.contains(&lengths), "{lengths}");
    }

    /// The lines of the document: a name, and hexadecimal digits in lines of 48 bytes.
    fn lines(name: &str, bytes: &[u8]) -> String {
        let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let parts: Vec<_> = bytes.chunks(48).map(hex).collect();
        format!("{name:14}{}\n", parts.join(&format!("\n{:14}", "")))
    }

    #[test]
    fn the_document_has_an_example() {
        let [(admin, _), (target, target_public)] = keys();
        let challenge = challenge([5; RANDOM_LEN]);
        let (_, hello) = hello((&admin, &target_public), &challenge, [3; 32]);
        let (responder, _) = open(&target, &challenge, [4; 32], &hello).unwrap();
        let identity = Identity { uuid: [7; 16], name: "store1".into() };
        let (verdict, secrets) = decide(responder, &identity, Verdict::Changes);
        let request = Records::of_admin(&secrets).seal(br#"{"request":"report"}"#);
        let answer = Records::of_target(&secrets).seal(b"{}");
        let each: [(&str, &[u8]); 5] = [
            ("challenge", &challenge),
            ("hello", &hello),
            ("verdict", &verdict),
            ("request", &request),
            ("answer", &answer),
        ];
        let example: String = each.iter().map(|(name, bytes)| lines(name, bytes)).collect();
        println!("{example}");
        assert!(DOCUMENT.contains(&example), "{example}");
    }
}
