//! Sealed channels: what is written with a key, and what is read with one. PROTOCOL.md, "Keys".
//!
//! A sealed frame that comes is looked up in the window of packet numbers, opened, and noted there,
//! in this order: a repeated frame costs no decryption, and a forged one notes nothing. What was
//! opened lies in memory of the caller, apart from the data of any request, until it has been
//! checked.

use tyche_crypto::{Opener, PSK_LEN, PublicKey, Sealer, SecretKey, Secrets, Suite};
use tyche_wire::{
    BOUND, CipherSuite, Cookie, ENTRY_LEN, HEAD_LEN, Header, PacketNumber, Reject, SealedConnect,
    TAG_LEN, Uuid, VERSION,
};

use crate::rules::{Rule, Rules};

/// The keys of a session: the host's own, and that of the only target that it talks to.
#[derive(Clone, Debug)]
pub struct HostKeys {
    /// The host's key.
    pub secret: SecretKey,
    /// The target's.
    pub target: PublicKey,
    /// The target's UUID, if that is known: several targets may have one key.
    pub target_uuid: Option<Uuid>,
}

/// Memory for the payload of a sealed frame, in the clear; used for one after the other.
#[derive(Debug, Default)]
pub struct Opened(Vec<u8>);

impl Opened {
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len {
            self.0.resize(len, 0);
        }
        &mut self.0[..len]
    }
}

/// No key is shared beforehand. The handshake has a place for one, as a guard against computers
/// that break its key exchange.
pub(crate) const PSK: [u8; PSK_LEN] = [0; PSK_LEN];

/// The bytes that the handshake binds: of which protocol and version it is, and what its first
/// frame says in the clear.
pub(crate) fn prologue(cookie: Cookie, connect: &SealedConnect) -> Vec<u8> {
    [&b"Tyche"[..], &[VERSION], &cookie.0.to_le_bytes(), &connect.clear()].concat()
}

/// Draws an ephemeral key.
pub(crate) fn draw(random: &mut dyn FnMut() -> u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.as_chunks_mut().0.iter_mut().for_each(|chunk| *chunk = random().to_le_bytes());
    bytes
}

/// The suite that is fast on this machine.
pub(crate) fn native_suite() -> CipherSuite {
    match Suite::native() {
        Suite::Aes128Gcm => CipherSuite::Aes128Gcm,
        Suite::ChaCha20Poly1305 => CipherSuite::ChaCha20Poly1305,
    }
}

fn cipher(suite: CipherSuite) -> Suite {
    match suite {
        CipherSuite::Aes128Gcm => Suite::Aes128Gcm,
        CipherSuite::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
    }
}

/// The keys of one end of a channel. `is_host`: the end that has connected.
pub(crate) fn ends(suite: CipherSuite, secrets: &Secrets, is_host: bool) -> (Sealer, Guard) {
    let (host, target) = (&secrets.initiator, &secrets.responder);
    let (ours, theirs) = if is_host { (host, target) } else { (target, host) };
    let cipher = cipher(suite);
    let (opener, window) = (Opener::new(cipher, theirs), Window::default());
    (Sealer::new(cipher, ours), Guard { suite, opener, window })
}

/// Opens the frames of a sealed channel, each once.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) suite: CipherSuite,
    opener: Opener,
    window: Window,
}

impl Guard {
    /// Opens the payload of a frame with this header, which was parsed from `head`.
    ///
    /// # Errors
    /// `Length`, `Reserved`, `Stale`, `Replayed` or `Forged`.
    pub(crate) fn open<'o, R: Rules>(
        &mut self,
        (header, head): (&Header, &[u8; HEAD_LEN]),
        payload: &[u8],
        opened: &'o mut Opened,
    ) -> Result<&'o [u8], Reject> {
        let len = header.data_len as usize + usize::from(header.entries) * ENTRY_LEN;
        if len.checked_add(TAG_LEN) != Some(payload.len()) {
            return Err(Reject::Length);
        }
        // The only field that the tag does not bind.
        if header.payload_crc != 0 {
            return Err(Reject::Reserved);
        }
        if R::keeps(Rule::RejectReplays) {
            self.window.check(header.packet)?;
        }
        let room = opened.room(len);
        let result = self.opener.open(header.packet.0, &head[BOUND], payload, room);
        if result.is_err() && R::keeps(Rule::CheckTag) {
            return Err(Reject::Forged);
        }
        self.window.note(header.packet);
        Ok(room)
    }
}

/// The packet numbers that have come, of the newest [`Window::LEN`] (RFC 6479).
#[derive(Debug)]
struct Window {
    newest: u64,
    /// A ring: the word of a number is its own divided by 64, modulo the words.
    seen: Box<[u64; Self::WORDS]>,
}

impl Default for Window {
    fn default() -> Self {
        Self { newest: 0, seen: Box::new([0; Self::WORDS]) }
    }
}

impl Window {
    const WORDS: usize = 256;
    /// Numbers that are told apart. Frames that the network has held back for longer are lost. One
    /// word less than there are: the newest has begun.
    const LEN: u64 = (Self::WORDS as u64 - 1) * 64;

    fn place(packet: u64) -> (usize, u64) {
        ((packet / 64) as usize % Self::WORDS, 1 << (packet % 64))
    }

    fn check(&self, PacketNumber(packet): PacketNumber) -> Result<(), Reject> {
        if self.newest.saturating_sub(packet) >= Self::LEN {
            return Err(Reject::Stale);
        }
        let (word, bit) = Self::place(packet);
        let is_seen = packet <= self.newest && self.seen[word] & bit != 0;
        if is_seen { Err(Reject::Replayed) } else { Ok(()) }
    }

    fn note(&mut self, PacketNumber(packet): PacketNumber) {
        if packet > self.newest {
            let passed = (packet / 64 - self.newest / 64).min(Self::WORDS as u64);
            let first = self.newest / 64 + 1;
            (first..first + passed).for_each(|word| self.seen[word as usize % Self::WORDS] = 0);
            self.newest = packet;
        }
        let (word, bit) = Self::place(packet);
        self.seen[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(window: &mut Window, packet: u64) -> Result<(), Reject> {
        window.check(PacketNumber(packet))?;
        window.note(PacketNumber(packet));
        Ok(())
    }

    #[test]
    fn each_number_comes_once() {
        // Against a list, with numbers that come late, twice, and far ahead.
        let (mut window, mut random) = (Window::default(), 1_u64);
        let (mut seen, mut newest) = (std::collections::BTreeSet::new(), 0);
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let late = (random >> 33) % 20_000;
            let ahead = if random.is_multiple_of(1000) { late } else { (random >> 50) % 4 };
            let packet = if (random >> 20).is_multiple_of(2) {
                newest + ahead
            } else {
                1 + u64::saturating_sub(newest, late)
            };
            let expected = match () {
                () if newest.saturating_sub(packet) >= Window::LEN => Err(Reject::Stale),
                () if seen.contains(&packet) => Err(Reject::Replayed),
                () => Ok(()),
            };
            assert_eq!(take(&mut window, packet), expected, "{packet} after {newest}");
            seen.insert(packet);
            newest = newest.max(packet);
        }
    }

    #[test]
    fn the_largest_number_is_one_like_others() {
        let mut window = Window::default();
        assert_eq!(take(&mut window, u64::MAX), Ok(()));
        assert_eq!(take(&mut window, u64::MAX), Err(Reject::Replayed));
        assert_eq!(take(&mut window, u64::MAX - 1), Ok(()));
        assert_eq!(take(&mut window, 1), Err(Reject::Stale));
    }
}
