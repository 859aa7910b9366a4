//! One lane of a target (FCP-4): the exchanges in which initiators have commands executed.
//!
//! ```text
//!  read              write                 user's part
//!  FCP_CMND ───►     FCP_CMND ───►         Command: device server; memory
//!                    ◄─── FCP_XFER_RDY
//!                    FCP_DATA ───► ..      Place, for each frame
//!                                          Execute, once: store
//!  ◄─── FCP_DATA ..
//!  ◄─── FCP_RSP      ◄─── FCP_RSP          Release: memory
//! ```
//!
//! The user has the device server, the memory of data, and the store. Data are neither copied nor
//! seen here: frames that come are placed by the user, and frames that go name a part of an
//! exchange's data.
//!
//! - A write is executed when all its bytes are there, and once. If some are lost, the command ends
//!   with CHECK CONDITION at once, so that the initiator sends it again.
//! - Nothing is said to be over while it is with the user. See `endings`.
//! - No more data are asked for than the receive ring holds. See `window`.
//! - An initiator that sends no data costs the others its share of the ring and of the exchanges,
//!   and its share of time. See `share`.
//!
//! One input ([`handle_frame`](Lane::handle_frame), [`logged_in`](Lane::logged_in),
//! [`logged_out`](Lane::logged_out), [`accept`](Lane::accept),
//! [`complete`](Lane::complete), [`managed`](Lane::managed),
//! [`handle_timeout`](Lane::handle_timeout)), then drain the outputs:
//! [`poll_action`](Lane::poll_action) until `None`, while the frame is at hand. Frames to send are
//! taken with [`poll_transmit`](Lane::poll_transmit), after which there may be actions, too; what
//! an action releases must not be used for anything else before the frames have been sent.

mod commands;
mod endings;
mod exchange;
mod gather;
mod nexus;
mod outputs;
mod rx_ids;
mod services;
mod share;
mod table;
mod transmit;
mod window;

use std::collections::VecDeque;

use tyche_fc_wire::{FCtl, Frame, Kind, Mac, PortId, Xid};
use tyche_time::Instant;

pub use exchange::SENSE_LEN_MAX;
pub use outputs::{Action, Command, Data, Function, Ignored};
pub use rx_ids::RX_IDS;
pub(crate) use rx_ids::is_later;
pub use services::exchange_named;
pub use share::Share;

use crate::port::Login;
use crate::{AllRules, Rules};
use exchange::State;
use nexus::Nexuses;
use outputs::Outputs;
use table::{Exchanges, INITIATORS};

/// The configuration of a lane, which does not change.
#[derive(Clone, Copy, Debug)]
pub struct LaneConfig {
    /// The most exchanges at a time, those that are remembered included.
    pub exchanges: u16,
    /// A random number, from which the first RX_IDs follow.
    pub seed: u64,
    /// The most bytes of a write that are asked for at once; 64 KiB by default.
    pub burst_len: u32,
    /// The most frames of data that are asked for at once: those that the receive ring holds.
    pub frames_max: u32,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion<'a> {
    /// Its SCSI status: 0 good.
    pub status: u8,
    /// Sense data, up to [`SENSE_LEN_MAX`] bytes.
    pub sense: &'a [u8],
    /// Bytes of data for the initiator.
    pub len: u32,
    /// Whether the user wants to know that the initiator has got it ([`Action::Confirmed`]). Not
    /// all initiators confirm responses.
    pub confirm: bool,
}

/// The state machine of one lane of an FCP target, without memory of data, store or I/O. It tells
/// its user what to do by [`Action`]s, and waits for the user before it says that a command is
/// over.
pub struct Lane<R = AllRules> {
    rules: R,
    burst_len: u32,
    nexuses: Nexuses,
    exchanges: Exchanges,
    /// Frames that the receive ring holds.
    ring: Share,
    /// Initiators with writes that wait for room in it, in turn.
    turns: VecDeque<u16>,
    /// Initiators with exchanges that have a frame to send, in turn.
    senders: VecDeque<u16>,
    /// Frames that the first of these was sent in its turn.
    turn: u32,
    outputs: Outputs,
}

impl Lane {
    /// A lane without initiators.
    ///
    /// # Panics
    /// If there are fewer than five exchanges or more than 2¹⁴, or no bytes or frames to ask for.
    pub fn new(config: LaneConfig) -> Self {
        Self::with_rules(config, AllRules)
    }
}

impl<R: Rules> Lane<R> {
    /// The same with other rules.
    ///
    /// # Panics
    /// As [`Lane::new`].
    pub fn with_rules(config: LaneConfig, rules: R) -> Self {
        let LaneConfig { exchanges, seed, burst_len, frames_max } = config;
        assert!(burst_len > 0 && frames_max > 0, "bursts have data, and a ring has frames");
        let exchanges = Exchanges::new(exchanges, seed);
        let count = exchanges.capacity();
        Self {
            rules,
            burst_len,
            nexuses: Nexuses::new(frames_max),
            exchanges,
            ring: Share::new(frames_max),
            turns: VecDeque::with_capacity(INITIATORS),
            senders: VecDeque::with_capacity(INITIATORS),
            turn: 0,
            outputs: Outputs::new(count),
        }
    }

    /// The rules that it keeps.
    pub fn rules(&self) -> R {
        self.rules
    }

    /// The number of exchanges that there can be: their indices are less.
    pub fn capacity(&self) -> usize {
        self.exchanges.capacity()
    }

    /// The RX_ID of an exchange, by its index; `None` if it is forgotten.
    pub fn rx_id(&self, exchange: u16) -> Option<Xid> {
        let xid = self.exchanges.at(exchange);
        self.exchanges.get(xid).map(|it| it.rx_id)
    }

    /// Counters of what was ignored, since the start.
    pub fn ignored(&self) -> Ignored {
        self.outputs.ignored
    }

    /// Takes a login, or what is new of it. `own` are the port's N_Port_ID and address.
    ///
    /// # Panics
    /// If its former login has ended, and [`Action::Drained`] has not come yet.
    pub fn logged_in(&mut self, own: (PortId, Mac), login: &Login) {
        self.nexuses.login(own, login);
    }

    /// Takes a frame that has come to the port's address. False if it is not one for a target: it
    /// is for others to handle.
    pub fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) -> bool {
        let header = &frame.header;
        let is_originators = !header.f_ctl.has(FCtl::EX_CTX);
        match header.kind {
            Kind::ElsRequest | Kind::Fc4Request => return self.handle_service(frame),
            Kind::FcpData if is_originators => {
                self.handle_data(now, frame);
                return true;
            }
            Kind::FcpCmnd | Kind::FcpConf | Kind::Abts if is_originators => {}
            _ => return false,
        }
        match (self.nexuses.of_frame(frame), header.kind) {
            (None, _) => self.outputs.ignored.stranger += 1,
            (Some(nexus), Kind::FcpCmnd) => self.handle_command(now, nexus, frame),
            (Some(nexus), Kind::Abts) => self.handle_abts(now, nexus, header),
            (Some(nexus), _) => self.handle_confirmation(nexus, header),
        }
        true
    }

    /// Whether a frame is one of an initiator whose login is good.
    pub fn knows_sender(&self, frame: &Frame<'_>) -> bool {
        self.nexuses.of_frame(frame).is_some()
    }

    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(xid) = self.exchanges.poll_expired(now) {
            match self.exchanges[xid].state {
                State::Gathering(_) => self.miss(now, xid),
                State::Managing(..) => self.give_up_management(now, xid),
                State::Done => self.exchanges.spare(xid),
                State::Aborted => self.exchanges.forget(xid),
                state => unreachable!("{state:?} has no timer"),
            }
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.exchanges.poll_timeout()
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.outputs.actions.pop_front()
    }
}

impl<R> std::fmt::Debug for Lane<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let states = self.exchanges.iter().map(|(xid, it)| (xid, it.state));
        f.debug_map().entries(states).finish()
    }
}
