//! The outputs of the machine, and counters of what it ignores.

use tyche_fc_wire::Mac;

use crate::neighbour::Event;

/// Frames that wait to be sent: no input causes as many.
const FRAMES_MAX: usize = 8;

/// A frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Send {
    /// To all: is this N_Port_ID free?
    Probe,
    /// To the sender of a probe: it is not.
    ProbeReply(Mac),
    /// To all: this N_Port_ID is ours.
    Claim,
    /// To the sender of a claim: what we have claimed. With the longest FCoE frame it takes.
    ClaimResponse(Mac, u16),
    /// To all: we are present.
    Beacon,
}

/// Frames and inputs that had no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Frames while the link was down.
    pub down: u64,
    /// Frames with our own name: of a clone, or reflected.
    pub own_name: u64,
    /// Frames with an N_Port_ID or an address that no port may have.
    pub wrong_address: u64,
    /// Claims of an N_Port_ID that a living neighbour with a higher name has.
    pub conflict: u64,
    /// Claims of more neighbours than there is room for.
    pub no_room: u64,
    /// Questions that came faster than they are answered.
    pub busy: u64,
    /// Our own frames that the caller did not take before the next input.
    pub undrained: u64,
}

/// See [`outputs`](crate::outputs).
pub(super) type Outputs = crate::outputs::Outputs<Send, Ignored, FRAMES_MAX>;

impl Outputs {
    /// Takes events of neighbours: they are reported if the port is up.
    pub(super) fn reporter(&mut self, is_up: bool) -> impl FnMut(Event) {
        move |event| {
            if is_up {
                self.events.push_back(event);
            }
        }
    }
}
