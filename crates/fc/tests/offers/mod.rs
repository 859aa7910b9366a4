//! Login parameters of the tests' ports and fabrics.

use tyche_fc::wire::Wwn;
use tyche_fc::wire::els::{Class3, FabricLogin, Features, PortLogin};

pub(crate) const CLASS3: Class3 = Class3 { receive_len: 2112, sequences: 255, open_sequences: 1 };

/// The login of a port.
pub(crate) fn plogi(wwpn: Wwn) -> PortLogin {
    PortLogin {
        wwpn,
        wwnn: wwpn,
        features: Features::CONTINUOUS_OFFSET,
        receive_len: 2112,
        sequences: 255,
        relative_offsets: 0x1f,
        e_d_tov: 2_000,
        class3: Some(CLASS3),
    }
}

/// The answer to FLOGI.
pub(crate) fn flogi_reply(wwpn: Wwn, features: Features) -> FabricLogin {
    FabricLogin {
        wwpn,
        wwnn: wwpn,
        features,
        receive_len: 2112,
        r_a_tov_ms: 10_000,
        e_d_tov: 2_000,
        class3: Some(CLASS3),
    }
}
