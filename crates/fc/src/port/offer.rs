//! The parameters that a port offers in its logins.

use std::time::Duration;

use tyche_fc_wire::Wwn;
use tyche_fc_wire::els::{Class3, FabricLogin, Features, PortLogin};

/// Sequences at a time that a port takes: as many as the field of a class says.
const SEQUENCES: u16 = 255;
/// Kinds of information units with relative offsets: all.
const RELATIVE_OFFSETS: u16 = 0x1f;

/// The service parameters of a port: names, payload size and time-outs. It makes the payloads of
/// PLOGI and FLOGI of them.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) wwpn: Wwn,
    pub(crate) wwnn: Wwn,
    /// The most bytes of a frame's payload.
    pub(crate) payload_max: u16,
    pub(crate) e_d_tov: Duration,
    pub(crate) r_a_tov: Duration,
}

impl Offer {
    /// PLOGI, or the answer to it.
    pub(crate) fn port_login(&self) -> PortLogin {
        PortLogin {
            wwpn: self.wwpn,
            wwnn: self.wwnn,
            features: Features::CONTINUOUS_OFFSET,
            receive_len: self.payload_max,
            sequences: SEQUENCES,
            relative_offsets: RELATIVE_OFFSETS,
            e_d_tov: millis(self.e_d_tov),
            class3: Some(self.class3()),
        }
    }

    /// FLOGI: time-outs, and the numbers of the class, have no meaning in the request.
    pub(crate) fn fabric_request(&self) -> FabricLogin {
        FabricLogin {
            r_a_tov_ms: 0,
            e_d_tov: 0,
            class3: Some(Class3 { receive_len: 0, sequences: 0, open_sequences: 0 }),
            ..self.fabric_reply()
        }
    }

    /// The answer to FLOGI.
    pub(crate) fn fabric_reply(&self) -> FabricLogin {
        FabricLogin {
            wwpn: self.wwpn,
            wwnn: self.wwnn,
            features: Features::EMPTY,
            receive_len: self.payload_max,
            r_a_tov_ms: millis(self.r_a_tov),
            e_d_tov: millis(self.e_d_tov),
            class3: Some(self.class3()),
        }
    }

    fn class3(&self) -> Class3 {
        Class3 { receive_len: self.payload_max, sequences: SEQUENCES, open_sequences: 1 }
    }
}

/// A time in milliseconds, as logins and RTV have it.
pub(crate) fn millis(time: Duration) -> u32 {
    time.as_millis().try_into().unwrap_or(u32::MAX)
}
