//! Arbitrary guests of a control port: the fuzzer `control`, and the test that replays its corpus.
//! The guest's side is written here once more, from the document.
//!
//! ```text
//! first byte   then
//!     0        the bytes of a hello
//!     1        the message of a hello, with the right proof before it
//!     2        changes of an admin's hello, which has the right proof again: place, bits
//!     3        steps after the handshake, see `Step`
//! ```

use std::io::{self, ErrorKind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tyche_control::{Attending, End, Identity, Owner, Records, Verdict, Wire, attend, greet};
use tyche_crypto::{Initiator, PSK_LEN, PublicKey, SecretKey, Secrets, digest};

const HELLO_LEN: usize = 112;
const PROOF_LEN: usize = 16;
const RANDOM: [u8; 16] = [5; 16];
const LIMIT: Duration = Duration::from_secs(3600);
/// The longest buffer that a guest makes a target take: a record.
const BUFFER_MAX: usize = (64 << 10) + 16;

/// Bytes after which a guest stops.
const SENT_MAX: usize = 1 << 17;

/// The state that an input has reached.
#[allow(dead_code, reason = "the fuzzer does not look at it")]
#[derive(Debug, Default)]
pub(crate) struct Reached {
    /// The end of the connection.
    pub(crate) end: Option<End>,
    /// The requests that were answered.
    pub(crate) requests: usize,
}

/// All that a guest has sent, and then its end.
struct Sent<'a> {
    rest: &'a [u8],
    answer: Vec<u8>,
}

impl Wire for Sent<'_> {
    fn read(&mut self, buffer: &mut [u8], _until: Instant) -> io::Result<()> {
        assert!(buffer.len() <= BUFFER_MAX, "{} bytes for a guest", buffer.len());
        let split = self.rest.split_at_checked(buffer.len());
        let (front, rest) = split.ok_or(io::Error::from(ErrorKind::UnexpectedEof))?;
        buffer.copy_from_slice(front);
        self.rest = rest;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], _until: Instant) -> io::Result<()> {
        self.answer.extend_from_slice(bytes);
        Ok(())
    }
}

/// The target, and the hello of an admin to it.
struct Ends {
    owner: Owner,
    target: PublicKey,
    admin: PublicKey,
    hello: Vec<u8>,
}

fn ends() -> &'static Ends {
    static ENDS: OnceLock<Ends> = OnceLock::new();
    ENDS.get_or_init(|| {
        let [target, admin] = [2, 1].map(|number| SecretKey::from_random([number; 32]));
        let public = target.public();
        let prologue = [&b"tyche control 1tychecp1"[..], &RANDOM].concat();
        let (_, message) =
            Initiator::new((&admin, &public), &[0; PSK_LEN], &prologue, [3; 32], &[]);
        let identity = Identity { uuid: [7; 16], name: "store1".into() };
        let hello = [&proof(&public, &message)[..], &message].concat();
        let owner = Owner::new(vec![target], identity);
        Ends { owner, target: public, admin: admin.public(), hello }
    })
}

fn proof(target: &PublicKey, message: &[u8]) -> [u8; PROOF_LEN] {
    let parts = [&b"tyche control hello"[..], target.as_bytes(), b"tychecp1", &RANDOM, message];
    *digest(&parts).first_chunk().unwrap()
}

/// Runs a guest with that input; what must never happen panics.
pub(crate) fn check(input: &[u8]) -> Reached {
    let Some((kind, rest)) = input.split_first() else { return Reached::default() };
    let Ends { target, hello, .. } = ends();
    match kind {
        0 => shake_hands(rest),
        1 => {
            let message = rest.get(..HELLO_LEN - PROOF_LEN).unwrap_or(rest);
            shake_hands(&[&proof(target, message), message].concat())
        }
        2 => {
            let mut hello = hello.clone();
            for change in rest.chunks_exact(2) {
                let at = PROOF_LEN + usize::from(change[0]) % (HELLO_LEN - PROOF_LEN);
                hello[at] ^= change[1];
            }
            let proof = proof(target, &hello[PROOF_LEN..]);
            hello[..PROOF_LEN].copy_from_slice(&proof);
            shake_hands(&hello)
        }
        _ => ask(rest),
    }
}

/// A handshake with this hello. Only the unchanged hello of the admin gets anywhere.
fn shake_hands(sent: &[u8]) -> Reached {
    let Ends { owner, admin, hello, .. } = ends();
    let mut wire = Sent { rest: sent, answer: Vec::new() };
    let mut seen = None;
    let until = Instant::now() + LIMIT;
    let greeted = greet(&mut wire, owner, (RANDOM, [4; 32]), until, |key| {
        seen = Some(*key);
        if key == admin { Verdict::Changes } else { Verdict::Unknown }
    });
    let is_admin = sent.get(..HELLO_LEN) == Some(&hello[..]);
    assert_eq!(greeted.is_ok(), is_admin, "{greeted:?}");
    assert_eq!(seen == Some(*admin), is_admin);
    Reached { end: greeted.err(), requests: 0 }
}

/// A step of a guest after the handshake, by its first byte.
enum Step<'a> {
    /// 0: a request of these bytes. The next byte is their number.
    Request(&'a [u8]),
    /// 1: these bytes, which nobody has sealed. The next byte is their number.
    Bytes(&'a [u8]),
    /// 2: the next request, of one byte, with a byte of it changed: place, bits.
    Changed(u8, u8),
    /// 3: the last record again.
    Again,
    /// 4: a long request, of that many KiB.
    Long(u8),
    /// 5: a request that is left out.
    LeftOut,
}

fn take<'a>(script: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (front, rest) = script.split_at_checked(len)?;
    *script = rest;
    Some(front)
}

fn step<'a>(script: &mut &'a [u8]) -> Option<Step<'a>> {
    let kind = take(script, 1)?[0] % 6;
    Some(match kind {
        0 | 1 => {
            let len = usize::from(take(script, 1)?[0]);
            let bytes = take(script, len.min(script.len()))?;
            if kind == 0 { Step::Request(bytes) } else { Step::Bytes(bytes) }
        }
        2 => {
            let change = take(script, 2)?;
            Step::Changed(change[0], change[1])
        }
        3 => Step::Again,
        4 => Step::Long(take(script, 1)?[0]),
        _ => Step::LeftOut,
    })
}

/// Follows the steps. The requests that are answered are those that were sent before the first
/// thing that is no request.
fn ask(mut script: &[u8]) -> Reached {
    let secrets = || Secrets { initiator: [1; 32].into(), responder: [2; 32].into() };
    let mut guest = Records::of_admin(&secrets());
    let (mut sent, mut good, mut last) = (Vec::new(), Vec::<Vec<u8>>::new(), Vec::new());
    let mut is_broken = false;
    while let Some(step) = step(&mut script).filter(|_| sent.len() < SENT_MAX) {
        match step {
            Step::Request(bytes) => {
                last = guest.seal(bytes);
                sent.extend_from_slice(&last);
                if !is_broken {
                    good.push(bytes.to_vec());
                }
            }
            Step::Long(kib) => {
                let request = vec![kib; usize::from(kib) << 10];
                last = guest.seal(&request);
                sent.extend_from_slice(&last);
                // Its first record is full, and says that more comes.
                is_broken |= kib > 64;
                if !is_broken {
                    good.push(request);
                }
            }
            Step::Bytes(bytes) => {
                sent.extend_from_slice(bytes);
                is_broken |= !bytes.is_empty();
            }
            Step::Changed(place, bits) => {
                let mut record = guest.seal(b"!");
                let at = usize::from(place) % record.len();
                record[at] ^= bits;
                sent.extend_from_slice(&record);
                if bits == 0 && !is_broken {
                    good.push(b"!".to_vec());
                }
                is_broken |= bits != 0;
                last = record;
            }
            Step::Again => {
                sent.extend_from_slice(&last);
                is_broken |= !last.is_empty();
            }
            Step::LeftOut => {
                guest.seal(b"unsent");
                is_broken = true;
            }
        }
    }
    let mut wire = Sent { rest: &sent, answer: Vec::new() };
    let mut target = Records::of_target(&secrets());
    let limits = Attending { request: LIMIT, idle: LIMIT, answer: LIMIT };
    let mut answered = Vec::new();
    let end = attend(&mut wire, &mut target, limits, |request| {
        answered.push(request.to_vec());
        Some(request.iter().rev().copied().collect())
    });
    assert_eq!(answered, good);
    if !is_broken {
        assert_eq!(end, End::Closed);
    }
    let answers: usize = good.iter().map(|it| it.len() + 4 + 16).sum();
    assert_eq!(wire.answer.len(), answers, "an answer for each request, and nothing else");
    Reached { end: Some(end), requests: answered.len() }
}
