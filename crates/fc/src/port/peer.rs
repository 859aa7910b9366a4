//! A neighbour and its login.

use std::time::Duration;

use tyche_fc_wire::els::{Code, PortLogin};
use tyche_fc_wire::{Header, Mac, PortId, Wwn, Xid};
use tyche_time::Instant;

use super::way::Way;
use crate::neighbour::{Functions, Neighbour};

/// The longest R_A_TOV that a peer can impose: so long it holds an exchange that was aborted.
const R_A_TOV_MAX: Duration = Duration::from_secs(60);
/// The longest E_D_TOV that a peer can impose, twice the usual: so long a target waits for its
/// data.
const E_D_TOV_MAX: Duration = Duration::from_secs(4);

/// The time in which a PLOGI in a fabric counts as repeated. A port that begins anew takes longer,
/// to find a forwarder.
const REPEATED_WITHIN: Duration = Duration::from_secs(1);

/// A login, as both ends have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login {
    /// Name of the other port.
    pub wwpn: Wwn,
    /// Its N_Port_ID.
    pub id: PortId,
    /// Where its frames go.
    pub mac: Mac,
    /// The functions of the other port that have been agreed: as a target it serves us, as an
    /// initiator it may ask us.
    pub functions: Functions,
    /// The most bytes of a frame's payload, of both ends.
    pub payload_max: usize,
    /// Whether both ends send sequences again on request (REC, SRR).
    pub retries: bool,
    /// Whether the other end, as an initiator, confirms responses that ask for it (FCP_CONF).
    pub confirms: bool,
    /// E_D_TOV: the larger of both ends' values.
    pub e_d_tov: Duration,
    /// R_A_TOV: the larger of both ends' values.
    pub r_a_tov: Duration,
}

/// The state of a login: the event that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The time for another attempt.
    Pause,
    /// The answer to our FLOGI.
    Flogi,
    /// PLOGI from the other end, whose name is higher.
    PlogiWait,
    /// The answer to our PLOGI.
    Plogi,
    /// The answer to our PRLI.
    Prli,
    /// The answer to our RTV.
    Rtv,
    /// The answer to our ADISC; the login is good meanwhile.
    Adisc,
    /// Nothing: all is agreed that we ask for.
    LoggedIn,
    /// The user's confirmation that all that depends on the login has ended.
    Draining,
}

/// A request whose answer waits until the former login has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withheld {
    pub(super) way: Way,
    pub(super) header: Header,
    pub(super) request: Ending,
}

/// A request that ends a login.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Flogi,
    Plogi(PortLogin),
    Logo,
    Prlo,
}

/// A neighbour that [`Logins`](super::Logins) logs in with: the stage of the login, the request in
/// progress, and a request of the other end that is withheld until the former login is drained.
pub(super) struct Peer {
    pub(super) neighbour: Neighbour,
    pub(super) stage: Stage,
    /// When the stage ends by itself.
    pub(super) at: Option<Instant>,
    /// The exchange of our request, until it is answered.
    pub(super) ox_id: Option<Xid>,
    /// How often our request was sent again.
    pub(super) repeats: u32,
    /// Whether a FLOGI of this attempt has been answered.
    pub(super) has_answered: bool,
    /// Whether it has ever sent PRLI as an initiator.
    pub(super) has_asked: bool,
    /// The exchange of the PLOGI that the other end has made the login with, and when it came.
    pub(super) plogi: Option<(Xid, Instant)>,
    /// The login since PLOGI; its functions are empty until PRLI.
    pub(super) login: Option<Login>,
    /// Whether the user knows of it.
    pub(super) is_reported: bool,
    /// Whether the neighbour has gone while the login was drained.
    pub(super) is_gone: bool,
    pub(super) withheld: Option<Withheld>,
}

impl Peer {
    pub(super) fn new(neighbour: Neighbour) -> Self {
        Self {
            neighbour,
            stage: Stage::Pause,
            at: None,
            ox_id: None,
            repeats: 0,
            has_answered: false,
            has_asked: false,
            plogi: None,
            login: None,
            is_reported: false,
            is_gone: false,
            withheld: None,
        }
    }

    /// Whether a PLOGI of that exchange is the one of the login, repeated by the network. A port
    /// that begins anew, and may use the number again, sends FLOGI first or looks for a forwarder.
    pub(super) fn has_come(&self, now: Instant, ox_id: Xid, is_in_fabric: bool) -> bool {
        let is_it =
            |(it, at): (Xid, Instant)| it == ox_id && (!is_in_fabric || now < at + REPEATED_WITHIN);
        self.login.is_some() && self.plogi.is_some_and(is_it)
    }

    /// Whether PLOGI may come: FLOGI has been answered, either way, since the last login ended.
    pub(super) fn awaits_plogi(&self) -> bool {
        match self.stage {
            Stage::Pause | Stage::Draining => false,
            Stage::Flogi => self.has_answered,
            // The other end may have missed our answer, and send PLOGI again.
            _ => true,
        }
    }

    /// The request that is to be answered in this stage.
    pub(super) fn request(&self) -> Option<Code> {
        match self.stage {
            Stage::Flogi => Some(Code::Flogi),
            Stage::Plogi => Some(Code::Plogi),
            Stage::Prli => Some(Code::Prli),
            Stage::Rtv => Some(Code::Rtv),
            Stage::Adisc => Some(Code::Adisc),
            Stage::Pause | Stage::PlogiWait | Stage::LoggedIn | Stage::Draining => None,
        }
    }
}

impl Login {
    /// Takes time-outs of the other end.
    pub(super) fn extend(&mut self, r_a_tov: Duration, e_d_tov: Duration) {
        self.r_a_tov = self.r_a_tov.max(r_a_tov.min(R_A_TOV_MAX));
        self.e_d_tov = self.e_d_tov.max(e_d_tov.min(E_D_TOV_MAX));
    }
}

/// A time in nanoseconds, or else in milliseconds.
pub(crate) fn in_unit(value: u32, is_ns: bool) -> Duration {
    if is_ns { Duration::from_nanos(value.into()) } else { Duration::from_millis(value.into()) }
}
