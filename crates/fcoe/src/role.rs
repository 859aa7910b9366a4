//! The role of a port: what it does with its logins.

use tyche_engine::Frames;
use tyche_fc::Rules;
use tyche_fc::port;
use tyche_fc::wire::{Frame, Mac, PortId, Wwn};
use tyche_time::Instant;

/// The commands over the logins of a port: those of an initiator, or of a target.
pub trait Role {
    /// The rules that the port keeps.
    type Rules: Rules;

    /// The rules that the port keeps.
    fn rules(&self) -> Self::Rules;

    /// Takes the address of the port, once it has one. It keeps it until all logins have ended.
    fn handle_address(&mut self, address: (PortId, Mac));

    /// Takes a change of a login. The end of one is to be [confirmed](Self::poll_drained).
    fn handle_login(&mut self, now: Instant, event: port::Event);

    /// Notes that a frame has come, whatever it is.
    fn note_frame(&mut self) {}

    /// Takes a frame that is no link service of the logins. Its CRC has been checked.
    fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>);

    /// Runs the timers that have expired, if it has any.
    fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The next port of which nothing is at work any more, after its login has ended.
    fn poll_drained(&mut self) -> Option<Wwn>;

    /// The next port with whom the commands can't go on: the login is to begin anew.
    fn poll_restart(&mut self) -> Option<Wwn> {
        None
    }

    /// Whether the port is to begin anew, as if its link had gone down for a moment, once: nobody
    /// knows any more whether frames as long as those of the logins come through.
    fn poll_reclaim(&mut self) -> bool {
        false
    }

    /// The frames to send now.
    fn frames(&mut self) -> impl Frames<'_>;
}
