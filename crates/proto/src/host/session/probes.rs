//! The frame lengths of a path that are probed, and the probes. PROTOCOL.md, "Handshake".

use arrayvec::ArrayVec;
use tyche_wire::{Control, FRAME_LEN_MIN, Hello, Ticket};

use super::target_search::ResolvedExport;

/// Rounds of probes before a frame length below the link's is settled. With 1 % loss in each
/// direction, a length that works is missed in one of 10⁵ cases.
pub(super) const PROBE_ROUNDS: u32 = 3;
/// Frame lengths that are probed below the link's own: the minimum, standard Ethernet (as UDP over
/// IPv6, as frames), one page, 9000 bytes of payload (the same). Short ones go first: a queue on
/// the way may hold only a few frames, and long ones would displace the others in every round.
const PROBE_LENS: [usize; 6] = [FRAME_LEN_MIN, 1452, 1514, 4210, 8952, 9014];
/// Frame lengths to be probed: some of these, and the link's own.
pub(super) type Lengths = ArrayVec<usize, { PROBE_LENS.len() + 1 }>;

/// The lengths to be probed on a link whose longest is this, ascending.
pub(super) fn lengths(longest: usize) -> Lengths {
    let shorter = PROBE_LENS.into_iter().filter(|&len| len < longest);
    shorter.chain([longest]).collect()
}

/// Probes of a live path for longer frames than its channel's: each is sent once.
pub(super) struct Widening {
    pub(super) nonce: u64,
    /// Frame lengths still to be sent, descending.
    sizes: Lengths,
}

impl Widening {
    /// Probes from above `now` up to `longest`; `None` if there is nothing above.
    pub(super) fn new(nonce: u64, now: usize, longest: usize) -> Option<Self> {
        let sizes: Lengths = lengths(longest).into_iter().filter(|&len| len > now).rev().collect();
        (!sizes.is_empty()).then_some(Self { nonce, sizes })
    }

    /// The next probe; `None` if all were sent.
    pub(super) fn next(&mut self, resolved: Option<ResolvedExport>) -> Option<Control> {
        Some(probe(resolved, self.nonce, self.sizes.pop()?))
    }
}

/// A probe of a frame length.
pub(super) fn probe(resolved: Option<ResolvedExport>, nonce: u64, len: usize) -> Control {
    let target = resolved.map(|resolved| resolved.target).unwrap_or_default();
    Control::Hello(Hello { nonce, target, ticket: Ticket::NONE, frame_len: len as u32 })
}
