//! Implementations that lack a protection for which the machines have no rule to leave out: what
//! comes to them, or from them, is put right in front of the machine, or they are set up so.

use tyche_conformance::{Result, Role};
use tyche_proto::crypto::{SecretKey, digest};
use tyche_proto::wire::{Checksum, HEAD_LEN};
use tyche_proto::{AllRules, Instant, RejectCounts};

use crate::failures;
use crate::host::Host;
use crate::machine::Machine;
use crate::target::Target;

/// Kinds of frames, and the first of those on channels.
const RESET: u8 = 7;
const SEALED_CONNECT: u8 = 8;
const CHANNELS: u8 = 0x10;
/// Where the checksums are, the token of a Reset, and the proof of a SealedConnect.
const PAYLOAD_CRC: std::ops::Range<usize> = 56..60;
const HEADER_CRC: std::ops::Range<usize> = 60..64;
const TOKEN: std::ops::Range<usize> = HEAD_LEN + 10..HEAD_LEN + 16;
const PROOF: usize = HEAD_LEN + 488;

/// A machine behind functions that change its frames.
struct Weak<M> {
    machine: M,
    incoming: fn(&mut [u8]),
    outgoing: fn(&mut [u8]),
    /// Whether it gives up its keys when its memory was put back.
    restores: bool,
}

fn keep(_: &mut [u8]) {}

impl<M> Weak<M> {
    fn new(machine: M) -> Self {
        Self { machine, incoming: keep, outgoing: keep, restores: true }
    }
}

/// Makes the checksums right; the payload's only outside of channels.
fn check(frame: &mut [u8]) {
    if frame[15] < CHANNELS {
        let sum = Checksum::of(&frame[HEAD_LEN..]).to_le_bytes();
        frame[PAYLOAD_CRC].copy_from_slice(&sum);
    }
    let sum = Checksum::of(&frame[14..60]).to_le_bytes();
    frame[HEADER_CRC].copy_from_slice(&sum);
}

/// No sender has to prove that he knows the key.
fn prove(frame: &mut [u8]) {
    if frame[15] == SEALED_CONNECT && frame.len() > PROOF {
        let key = SecretKey::from_random([2; 32]).public();
        let parts =
            [b"tyche connect", &key.as_bytes()[..], &frame[20..28], &frame[HEAD_LEN..PROOF]];
        let proof = digest(&parts);
        frame[PROOF..].copy_from_slice(&proof[..16]);
        check(frame);
    }
}

/// The checksum of a sealed payload is not looked at.
fn ignore_checksum(frame: &mut [u8]) {
    if frame[15] >= CHANNELS {
        frame[PAYLOAD_CRC].fill(0);
        check(frame);
    }
}

/// Resets have no token.
fn forget_token(frame: &mut [u8]) {
    if frame[15] == RESET {
        frame[TOKEN].fill(0);
        check(frame);
    }
}

/// Any Reset is believed.
fn believe(frame: &mut [u8]) {
    if frame[15] == RESET {
        frame[TOKEN].fill(5);
        check(frame);
    }
}

impl<M: Machine> Machine for Weak<M> {
    fn handle_frame(&mut self, now: Instant, head: &[u8; HEAD_LEN], payload: &[u8]) {
        let mut frame = [head, payload].concat();
        (self.incoming)(&mut frame);
        let (head, payload) = frame.split_first_chunk().unwrap();
        self.machine.handle_frame(now, head, payload);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut frame = self.machine.poll_transmit(now)?;
        (self.outgoing)(&mut frame);
        Some(frame)
    }

    fn order(&mut self, now: Instant, line: &str) -> Result<()> {
        self.machine.order(now, line)
    }

    fn said(&mut self) -> Option<String> {
        self.machine.said()
    }

    fn rejects(&self) -> &RejectCounts {
        self.machine.rejects()
    }

    fn restore(&mut self, now: Instant) {
        if self.restores {
            self.machine.restore(now);
        }
    }
}

fn target() -> Weak<Target<AllRules>> {
    Weak::new(Target::keyed())
}

fn host() -> Weak<Host<AllRules>> {
    Weak::new(Host::keyed())
}

/// The vectors that the machine does not meet, of which there must be one.
fn missed<M: Machine>(role: Role, machine: impl Fn() -> M) {
    let failed = failures(role, machine);
    println!("{}", failed.join("\n"));
    assert!(!failed.is_empty(), "no vector misses it");
}

#[test]
fn a_target_that_checks_no_proof_is_noticed() {
    missed(Role::SealedTarget, || Weak { incoming: prove, ..target() });
}

#[test]
fn a_target_that_lets_in_every_key_is_noticed() {
    missed(Role::SealedTarget, || {
        let mut weak = target();
        weak.machine.knows(&[(1, "conf-host"), (3, "conf-other"), (4, "stranger")]);
        weak
    });
}

#[test]
fn a_target_that_tells_hosts_apart_by_their_uuids_is_noticed() {
    missed(Role::SealedTarget, || {
        let mut weak = target();
        weak.machine.knows(&[(1, "conf-host"), (3, "conf-host")]);
        weak
    });
}

#[test]
fn a_target_that_ignores_checksums_of_sealed_frames_is_noticed() {
    missed(Role::SealedTarget, || Weak { incoming: ignore_checksum, ..target() });
}

#[test]
fn a_target_whose_resets_have_no_token_is_noticed() {
    missed(Role::SealedTarget, || Weak { outgoing: forget_token, ..target() });
}

#[test]
fn a_restored_target_that_keeps_its_keys_is_noticed() {
    missed(Role::SealedTarget, || Weak { restores: false, ..target() });
}

#[test]
fn a_host_that_ignores_checksums_of_sealed_frames_is_noticed() {
    missed(Role::SealedHost, || Weak { incoming: ignore_checksum, ..host() });
}

#[test]
fn a_host_that_believes_any_reset_is_noticed() {
    missed(Role::SealedHost, || Weak { incoming: believe, ..host() });
}

#[test]
fn a_restored_host_that_keeps_its_keys_is_noticed() {
    missed(Role::SealedHost, || Weak { restores: false, ..host() });
}
