//! The target's side of one connection: the handshake, then requests.

use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tyche_crypto::{PublicKey, SecretKey};

use crate::handshake::{self, HELLO_LEN, Identity, RANDOM_LEN, Verdict};
use crate::record::{Broken, REQUEST_MAX, Records};
use crate::wire::Wire;

/// The target whose port it is.
#[derive(Debug)]
pub struct Owner {
    /// Guests may know it by any of these.
    keys: Mutex<Vec<(SecretKey, PublicKey)>>,
    identity: Identity,
    /// Held for what is computed on the curve: strangers who know the target's key take one
    /// processor at most, and no guest waits longer than all others together take.
    curve: Mutex<()>,
}

impl Owner {
    /// A target with these keys: one, or two while its key is being changed.
    pub fn new(keys: Vec<SecretKey>, identity: Identity) -> Self {
        let owner = Self { keys: Mutex::default(), identity, curve: Mutex::default() };
        owner.set_keys(keys);
        owner
    }

    /// Changes the keys, for guests that come from now on.
    pub fn set_keys(&self, keys: Vec<SecretKey>) {
        let keys = keys.into_iter().map(|secret| (secret.clone(), secret.public()));
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys.collect();
    }

    /// The key for which `is_known` is true of its public part.
    fn key(&self, is_known: impl Fn(&PublicKey) -> bool) -> Option<SecretKey> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().find(|(_, public)| is_known(public)).map(|(secret, _)| secret.clone())
    }
}

/// The reason why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The guest has closed it, or it has failed.
    Closed,
    /// The guest was too slow.
    Late,
    /// The hello shows no knowledge of the target's key and the challenge.
    NoProof,
    /// The hello or a record is none of this connection.
    Forged,
    /// A request is too long.
    TooLong,
    /// The guest is no admin, or no more, or there is no room.
    Refused,
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Late => Self::Late,
            Broken::Forged => Self::Forged,
            Broken::TooLong => Self::TooLong,
            Broken::Closed | Broken::Io(_) => Self::Closed,
        }
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == ErrorKind::TimedOut { Self::Late } else { Self::Closed }
    }
}

/// Leads the handshake with a guest. `random`: for the challenge and for an ephemeral key, of a
/// cryptographic source, never used again. `admit` decides about the owner of a key, and is called
/// once the guest has proved that it is the owner.
///
/// # Errors
/// The reason why no requests may follow.
pub fn greet(
    wire: &mut impl Wire,
    owner: &Owner,
    random: ([u8; RANDOM_LEN], [u8; 32]),
    until: Instant,
    admit: impl FnOnce(&PublicKey) -> Verdict,
) -> Result<Records, End> {
    let challenge = handshake::challenge(random.0);
    wire.write(&challenge, until)?;
    let mut hello = [0; HELLO_LEN];
    wire.read(&mut hello, until)?;
    let known = owner.key(|public| handshake::has_proof(public, &challenge, &hello));
    let secret = known.ok_or(End::NoProof)?;
    let turn = owner.curve.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = handshake::open(&secret, &challenge, random.1, &hello);
    let (responder, guest) = opened.ok_or(End::Forged)?;
    let verdict = admit(&guest);
    let (message, secrets) = handshake::decide(responder, &owner.identity, verdict);
    drop(turn);
    wire.write(&message, until)?;
    if verdict.is_admitted() { Ok(Records::of_target(&secrets)) } else { Err(End::Refused) }
}

/// Time limits of an admin's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attending {
    /// For a request from its first byte on.
    pub request: Duration,
    /// Until the next request begins.
    pub idle: Duration,
    /// For an answer to be taken.
    pub answer: Duration,
}

/// Answers requests until the connection ends. `answer` has none if the guest is no admin any more.
pub fn attend(
    wire: &mut impl Wire,
    records: &mut Records,
    limits: Attending,
    mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> End {
    loop {
        let until = Instant::now() + limits.idle;
        let request = match records.receive(wire, REQUEST_MAX, until, limits.request) {
            Ok(request) => request,
            Err(broken) => return broken.into(),
        };
        let Some(answer) = answer(&request) else { return End::Refused };
        if let Err(broken) = records.send(wire, &answer, Instant::now() + limits.answer) {
            return broken.into();
        }
    }
}
