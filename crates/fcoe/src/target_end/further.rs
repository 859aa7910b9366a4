//! A further thread of a port: commands, without logins.

use tyche_engine::{Frames, Ports, Protocol, Received};
use tyche_fc::neighbour::Membership;
use tyche_fc::wire::{Mac, Reject};
use tyche_fc::{AllRules, Rules};
use tyche_time::Instant;

use super::role::TargetRole;
use crate::n_port::{self, Rejects};
use crate::role::Role;

/// A further thread of a port as the protocol of a loop, whose only port is [`FCOE`](crate::FCOE),
/// with a link for its [share](crate::share_of_thread) of the frames.
pub struct FurtherThread<R = AllRules> {
    /// The commands.
    pub role: TargetRole<R>,
    /// The address that the link has joined.
    joined: Option<Mac>,
    pub(super) rejects: Rejects,
}

impl<R: Rules> FurtherThread<R> {
    /// A thread that knows of no login.
    pub fn new(role: TargetRole<R>) -> Self {
        Self { role, joined: None, rejects: Rejects::default() }
    }

    /// Takes what other threads have to say. To be called in each turn of the loop; false if there
    /// is nothing new.
    pub fn attend(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let has_news = self.role.listen(now);
        let own = self.role.own_mac();
        if own != self.joined {
            let left = self.joined.map(Membership::Leave);
            let joined = own.map(Membership::Join);
            left.into_iter().chain(joined).for_each(|it| n_port::change(ports, it));
            self.joined = own;
        }
        // Frames of a login that has ended may wait for room in the interface.
        let has_confirmed = !ports.holds_frames() && self.role.confirm_left();
        has_news | has_confirmed
    }

    fn handle_fcoe(&mut self, now: Instant, frame: &Received<'_>) -> Result<(), Reject> {
        self.role.note_frame();
        let frame = n_port::parse(frame)?;
        frame.check_destination()?;
        // The login of its sender may be new.
        self.role.read_mail(now);
        self.role.handle_frame(now, &frame);
        Ok(())
    }
}

impl<R: Rules> Protocol for FurtherThread<R> {
    fn handle_frame(&mut self, now: Instant, _: usize, frame: &Received<'_>) {
        if let Err(reject) = self.handle_fcoe(now, frame) {
            self.rejects.add(reject);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.role.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.role.poll_timeout()
    }

    fn frames(&mut self, _: usize) -> impl Frames<'_> {
        self.role.frames()
    }
}
